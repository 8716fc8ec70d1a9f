#!/usr/bin/env python3
"""Checks that random steps do not break unspin, and that they would find a bug. Runs in virtual time.
Usage: scripts/fuzz.py UNSPIN FOLDER [--seeds FIRST-LAST] [--only seeds|planted]

seeds runs `unspin lab fuzz` over the seeds, with both actuators. planted puts one bug after the other into
a copy of the source, searches for a failing seed, and repeats it in another folder. The repetition must fail
in the same way, and the program without the bug must not fail. Both resume in FOLDER. Prints claims for
`unspin claims record`. The 500 seeds of each actuator take about three hours on two CPUs.
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
# First seed of the search for a failing seed, number of seeds at a time, and end of the search. Seed 0 is
# skipped: under any scheduler, its guest collapses for a minute of virtual time.
FIRST, STEP, MOST = 1, 2, 400
# The program without the bug already shows whether the bug causes a failure, so no control runs are
# necessary.
ALONE = ("--controls", "0", "--shrink", "0")


@dataclass
class Bug:
    """A planted bug: the replacement of some text in a file."""

    name: str
    scheduler: str
    file: str
    text: str
    instead: str
    # Whether to search for the shortest plan too. The search repeats the seed for each of its steps, and a
    # seed whose tasks do not run takes minutes.
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


# Failures of this machine. A guest that runs out of memory does so each time.
MAY_PASS = ("TooSlow", "QemuDied", "Unavailable")


def fuzz(program: Path, out: Path, scheduler: str, seeds: str, *options: str) -> dict:
    """Returns the report of `unspin lab fuzz`."""
    command = [program, "lab", "fuzz", "--seeds", seeds, "--scheduler", scheduler, "--out", out]
    command += [*options, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        sys.exit(f"`unspin lab fuzz --seeds {seeds}` ended with status {done.returncode}")
    report = json.loads(done.stdout)
    again = [one for one in report["no_result"] if one["why"].split(":")[0] in MAY_PASS]
    for one in report["no_result"]:
        print(f"seed {one['seed']} has no result: {one['why']}", file=sys.stderr)
    if again:
        sys.exit("repeat the command: it runs these seeds again, and keeps the others")
    return report


def its_own(report: dict) -> list[dict]:
    """Returns the failures that never occur under the kernel's scheduler."""
    return [one for one in report["failures"] if not (one["stock"] and one["stock"]["failed"])]


def label(out: Path) -> str:
    """Returns the label of a folder's runs."""
    with (out / "fuzz/runs.jsonl").open() as lines:
        one = json.loads(next(lines))["label"]
    return f"{one['source']}/{one['accel']}, kernel {one['kernel']}, prices {one['prices']}"


def check_seeds(program: Path, folder: Path, seeds: str, claims: Claims) -> None:
    """Runs all seeds with both actuators."""
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
            report["longest_wait_s"], "s", report["seeds"],
        )


def build(bug: Bug, folder: Path) -> Path:
    """Builds the program with a bug. All bugs share a source and a target folder, so that cargo compiles only
    the changed code again."""
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
    """Returns the failure of the first seed that fails with the bug and passes without it."""
    for first in range(FIRST, MOST, STEP):
        seeds = f"{first}-{first + STEP - 1}"
        for failure in fuzz(program, here / f"first/{first}", scheduler, seeds, *ALONE)["failures"]:
            seed = str(failure["seed"])
            if not fuzz(sound, here / f"without/{seed}", scheduler, seed, *ALONE)["failures"]:
                return failure
            print(f"seed {seed} fails without the bug, too", file=sys.stderr)
    return None


def is_found(bug: Bug, index: int, sound: Path, folder: Path) -> bool:
    """Returns whether a seed fails with the bug, fails again in the same way, and passes without it. The
    answer is kept until the source changes."""
    here = folder / f"bug-{index}"
    kept = here / "verdict.json"
    trees = ["git", "rev-parse", *(f"HEAD:{room}" for room in ("bpf", "crates", "policy", "qemu"))]
    of = [subprocess.check_output(trees, cwd=ROOT, text=True).split(), bug.text, bug.instead]
    # The kept answer needs its runs too, because the label comes from them.
    runs = here / "first"
    if kept.is_file() and runs.is_dir() and (verdict := json.loads(kept.read_text()))["of"] == of:
        return verdict["found"]
    found = look_for(bug, here, sound, folder)
    here.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"of": of, "found": found}))
    return found


def look_for(bug: Bug, here: Path, sound: Path, folder: Path) -> bool:
    """Computes the answer of `is_found`."""
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
    """Searches for all planted bugs."""
    found = [is_found(bug, index, sound, folder / "planted") for index, bug in enumerate(BUGS)]
    # Each search keeps the runs of its first seeds, even if none failed.
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
    try:
        if args.only != "planted":
            check_seeds(program, folder, args.seeds, claims)
        if args.only != "seeds":
            check_planted(program, folder, claims)
    finally:
        # Print the claims in any case: the seeds took hours, and one bug may fail to be planted.
        print(claims.text())


if __name__ == "__main__":
    main()
