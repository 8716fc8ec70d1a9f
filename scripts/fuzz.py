#!/usr/bin/env python3
"""Whether random steps break unspin, and whether they would find a bug. Runs in virtual time.
Usage: scripts/fuzz.py UNSPIN FOLDER [--seeds FIRST-LAST] [--only seeds|planted]

seeds runs `unspin lab fuzz` over the seeds, with both actuators. planted puts one bug after the
other into a copy of the source, looks for a seed that fails, and runs it again elsewhere: it must
fail in the same way, and the program without the bug must not. Both resume in FOLDER; prints what
`unspin claims record` takes. The 500 seeds of each actuator take some three hours on two CPUs.
"""

import argparse
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from claims import ROOT, Claims

CPUSET = "unspin run"
SCHED_EXT = "unspin run --actuator sched-ext"
# Where the search for a seed that fails begins, how many seeds it tries at a time, and where it ends.
# The guest of seed 0 collapses for a minute of virtual time, whatever its scheduler.
FIRST, STEP, MOST = 1, 2, 400
# A program without the bug shows whose a failure is, so the kernel's scheduler need not.
ALONE = ("--controls", "0", "--shrink", "0")


@dataclass
class Bug:
    """What is put in place of some text of a file."""

    name: str
    scheduler: str
    file: str
    text: str
    instead: str
    # Whether to look for the shortest plan, too: that runs the seed again for each of its steps, and
    # a seed whose tasks are not run takes minutes.
    shrink: bool = False


BUGS = [
    Bug(
        "a woken task is put into no queue now and then", SCHED_EXT, "bpf/run.bpf.c",
        "\tvtime = place_in_time(p, enq_flags);\n",
        "\tstatic u32 tasks;\n\n\tif (++tasks % 1024 == 0)\n\t\treturn;\n"
        "\tvtime = place_in_time(p, enq_flags);\n",
    ),
    Bug(
        "tasks whose group has used its time wait for ever", SCHED_EXT, "bpf/sched/limits.h",
        "\t\tif (now_ns < p->scx.dsq_vtime + LONGEST_WAIT_NS && !has_time(key))\n",
        "\t\tif (key)\n",
    ),
    Bug(
        "a limit is not lifted", CPUSET, "crates/guest/src/confine/cpusets.rs",
        r'let cleared = fs::write(&file, "\n").or_else(|error| match',
        "let cleared = Ok(()).or_else(|error: io::Error| match",
        shrink=True,
    ),
]


def fuzz(program: Path, out: Path, scheduler: str, seeds: str, *options: str) -> dict:
    """What `unspin lab fuzz` reports."""
    command = [program, "lab", "fuzz", "--seeds", seeds, "--scheduler", scheduler, "--out", out]
    command += [*options, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"`unspin lab fuzz --seeds {seeds}` ended with status {done.returncode}")
    return json.loads(done.stdout)


def its_own(report: dict) -> list[dict]:
    """The failures that never come under the kernel's scheduler."""
    return [one for one in report["failures"] if not (one["stock"] and one["stock"]["failed"])]


def label(out: Path) -> str:
    """That of a folder's runs."""
    with (out / "fuzz/runs.jsonl").open() as lines:
        one = json.loads(next(lines))["label"]
    return f"{one['source']}/{one['accel']}, kernel {one['kernel']}, prices {one['prices']}"


def check_seeds(program: Path, folder: Path, seeds: str, claims: Claims) -> None:
    """All seeds, with both actuators."""
    for name, scheduler in (("cpuset", CPUSET), ("sched-ext", SCHED_EXT)):
        report = fuzz(program, folder / name, scheduler, seeds)
        claims.every["label"] = label(folder / name)
        failures = its_own(report)
        for failure in report["failures"]:
            stock = failure["stock"]
            alone = f"{stock['failed']} of {stock['runs']}" if stock else "not run"
            print(
                f"{name}: seed {failure['seed']}: {failure['what']}; under the kernel's scheduler {alone}",
                file=sys.stderr,
            )
        claims.add(
            f"run.fuzz.{name}", f"seeds of random steps that fail under `{scheduler}` only",
            len(failures), "", report["seeds"], "<= 0",
        )
        claims.add(
            f"run.fuzz.{name}.stock", "seeds that fail under the kernel's scheduler, too",
            len(report["failures"]) - len(failures), "", report["seeds"],
        )
        claims.add(
            f"run.fuzz.{name}.wait", f"the longest wait of a task in the seeds that pass, `{scheduler}`",
            report["longest_wait_s"], "s", report["seeds"], "<= 3",
        )


def build(bug: Bug, folder: Path) -> Path:
    """The program with a bug. All bugs share a source and a target folder, so that only what a bug
    changes is compiled again."""
    source = folder / "source"
    if not source.exists():
        subprocess.run(["git", "clone", "--quiet", ROOT, source], check=True)
    subprocess.run(["git", "fetch", "--quiet", ROOT, "HEAD"], check=True, cwd=source)
    subprocess.run(["git", "reset", "--quiet", "--hard", "FETCH_HEAD"], check=True, cwd=source)
    file = source / bug.file
    text = file.read_text()
    if text.count(bug.text) != 1:
        sys.exit(f"{bug.file} has changed: there is no place to plant `{bug.name}`")
    file.write_text(text.replace(bug.text, bug.instead))
    command = [source / "scripts/with-rust", "cargo", "build", "--release", "--locked"]
    command += ["--workspace", "--exclude", "unspin-vmm", "--target-dir", folder / "target"]
    subprocess.run(command, check=True, cwd=source, stdout=sys.stderr)
    return folder / "target/release/unspin"


def first_failure(program: Path, sound: Path, here: Path, scheduler: str) -> dict | None:
    """That of the first seed that fails, and passes without the bug."""
    for first in range(FIRST, MOST, STEP):
        seeds = f"{first}-{first + STEP - 1}"
        for failure in fuzz(program, here / f"first/{first}", scheduler, seeds, *ALONE)["failures"]:
            seed = str(failure["seed"])
            if not fuzz(sound, here / f"without/{seed}", scheduler, seed, *ALONE)["failures"]:
                return failure
            print(f"seed {seed} fails without the bug, too", file=sys.stderr)
    return None


def is_found(bug: Bug, index: int, sound: Path, folder: Path) -> bool:
    """Whether a seed fails by the bug, fails again in the same way, and not without it. The answer is
    kept for as long as the source is the same."""
    here = folder / f"bug-{index}"
    kept = here / "verdict.json"
    trees = ["git", "rev-parse", *(f"HEAD:{room}" for room in ("bpf", "crates", "policy", "qemu"))]
    of = [subprocess.check_output(trees, cwd=ROOT, text=True).split(), bug.text, bug.instead]
    # Without its runs, there would be nothing to take a label from.
    runs = here / "first"
    if kept.is_file() and runs.is_dir() and (verdict := json.loads(kept.read_text()))["of"] == of:
        return verdict["found"]
    found = look_for(bug, here, sound, folder)
    here.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"of": of, "found": found}))
    return found


def look_for(bug: Bug, here: Path, sound: Path, folder: Path) -> bool:
    """What `is_found` says, without what was kept."""
    program = build(bug, folder)
    failure = first_failure(program, sound, here, bug.scheduler)
    if failure is None:
        print(f"{bug.name}: no seed of {MOST} fails by it", file=sys.stderr)
        return False
    seed, options = str(failure["seed"]), ["--controls", "0", "--shrink", str(int(bug.shrink))]
    shutil.rmtree(here / "again", ignore_errors=True)
    again = fuzz(program, here / "again", bug.scheduler, seed, *options)["failures"]
    same = [one["what"] for one in again] == [failure["what"]]
    print(f"{bug.name}: seed {seed}: {failure['what']}", file=sys.stderr)
    print(f"  without it, it passes; again: {'the same' if same else again}", file=sys.stderr)
    if again and bug.shrink:
        steps = "".join(f"\n    {step}" for step in again[0]["shortest"] or [])
        print(f"  of {len(failure['steps'])} steps, needed:{steps or ' none'}", file=sys.stderr)
    return same


def check_planted(sound: Path, folder: Path, claims: Claims) -> None:
    """All bugs."""
    found = [is_found(bug, index, sound, folder / "planted") for index, bug in enumerate(BUGS)]
    # Each search leaves the runs of its first seeds, whether or not one failed.
    claims.every["label"] = label(min((folder / "planted").glob("bug-*/first/*")))
    claims.add(
        "run.fuzz.planted", "planted bugs that a seed finds, and finds again in the same way",
        sum(found), "", len(found), f">= {len(found)}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("unspin", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0-499", metavar="FIRST-LAST")
    parser.add_argument("--only", choices=["seeds", "planted"])
    args = parser.parse_args()
    program, folder = args.unspin.resolve(), args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    claims = Claims("", "fuzz.py", "make fuzz")
    if args.only != "planted":
        check_seeds(program, folder, args.seeds, claims)
    try:
        if args.only != "seeds":
            check_planted(program, folder, claims)
    finally:
        # The seeds took hours: a bug that cannot be planted must not cost their claims.
        print(claims.text())


if __name__ == "__main__":
    main()
