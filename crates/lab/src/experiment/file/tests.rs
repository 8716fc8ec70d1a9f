//! Valid files, and the errors of invalid ones.

use super::*;

const GOOD: &str = r#"
name = "sample"
title = "A sample"
about = "What?"
repeats = 2
kernels = ["lab"]
schedulers = ["stock", "hold:2"]
workloads = ["stress-ng-rename"]
[[topology]]
name = "2:1"
vcpus = 4
pcpus = 2
[[topology.neighbour]]
vcpus = 4
workload = "greedy"
"#;

const INJECTOR: &str = "injector = { pcpu = 1, lengths_us = [1000], gap_us = 30000, count = 4 }";

fn error_of(text: &str) -> String {
    Experiment::parse(Path::new("x.toml"), text).unwrap_err().to_string()
}

#[test]
fn a_good_file_is_read() {
    let experiment = Experiment::parse(Path::new("x.toml"), GOOD).unwrap();
    assert_eq!(experiment.baseline_scheduler, "stock");
    assert_eq!(experiment.topologies[0].neighbours[0].name, "neighbour1");
    assert_eq!(experiment.boot_params, [""]);
    let seconds = |text: &str| {
        let experiment = Experiment::parse(Path::new("x.toml"), text).unwrap();
        experiment.workloads.iter().map(|workload| workload.seconds).collect::<Vec<_>>()
    };
    assert_eq!(seconds(GOOD), [Some(3)]);
    assert_eq!(seconds(&GOOD.replace("repeats = 2", "repeats = 2\nseconds = 1")), [Some(1)]);
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_the_choices() {
    let cases = [
        ("repeats = 2", "repeats = 0", "x.toml:5:11: repeats must be at least 1"),
        ("repeats = 2", "repeats = 2\nseconds = 0", "x.toml:6:11: a workload runs for at least"),
        ("stress-ng-rename\"]", "idle\"]\nseconds = 2", "none of the workloads runs for a time"),
        ("repeats = 2", "repeats = \"2\"", "x.toml:5:11: invalid type"),
        ("vcpus = 4\npcpus", "vcpus = 0\npcpus", "x.toml:11:9: a guest has 1 to 128 vCPUs"),
        ("pcpus = 2", "pcpus = \"a\"", "x.toml:12:9: expected a number of pCPUs, or a list such"),
        ("pcpus = 2", "pcpus = 0", "x.toml:12:9: a topology needs at least one pCPU"),
        ("pcpus = 2", "pcpus = [0, 1, 0]", "x.toml:12:9: pCPU 0 is there twice"),
        ("hold:2", "held:2", "expected `stock`, `tuned`, `hold:K`"),
        ("hold:2", "hold:2\", \"hold:02", "x.toml:7:34: `hold:02` is written `hold:2`"),
        ("stress-ng-rename", "stress-rename", "expected one of `"),
        ("workloads = [", "workloads = [\"fio\", \"fio\", ", "`workloads` lists `fio` twice"),
        ("kernels = [", "kernels = [\"lab\", \"lab\", ", "`kernels` lists `lab` twice"),
        ("pcpus = 2", "pcpus = 2\nsockets = 1", "unknown field `sockets`"),
        ("greedy", "stress-ng-rename", "until_stopped"),
        ("pcpus = 2", "pcpus = 3\npinned = true", "pinned needs as many vCPUs for each pCPU"),
        ("pcpus = 2", &format!("pcpus = 2\npinned = true\n{INJECTOR}"), "a pCPU for each vCPU"),
        (
            "pcpus = 2",
            "pcpus = 2\nnested = { regime = \"tdx\" }",
            "expected `pv`, `ple` or `abandoned`",
        ),
        (
            "pcpus = 2",
            "pcpus = 2\nspinlock = \"tas\"\nnested = { regime = \"pv\" }",
            "x.toml:14:21: a nested guest has the spinlock of its regime",
        ),
        (
            "repeats = 2",
            "repeats = 2\ntruth = \"totals\"\nkeep_latencies = true",
            "x.toml:7:18: keep_latencies needs single intervals",
        ),
        ("name = \"sample\"", "name = \"../x\"", "x.toml:2:8: a name is made of"),
    ];
    for (from, to, expected) in cases {
        let message = error_of(&GOOD.replacen(from, to, 1));
        assert!(message.contains(expected), "{to}: {message}");
    }
}

#[test]
fn figures_beyond_all_bounds_are_refused_at_their_line() {
    let injector = |more: &str| {
        format!("pcpus = 4\npinned = true\n{}", INJECTOR.replace("gap_us = 30000", more))
    };
    let cases = [
        ("pcpus = 2", "pcpus = 2\nmemory_mib = 1048577", "x.toml:13:14: a guest has at most"),
        (
            "pcpus = 2",
            "pcpus = 2\nnested = { regime = \"pv\", memory_mib = 1048577 }",
            "x.toml:13:40: a guest has at most 1048576 MiB",
        ),
        (
            "workload = \"greedy\"",
            "workload = \"greedy\"\nmemory_mib = 9223372036854775807",
            "x.toml:16:14: a guest has at most",
        ),
        (
            "workload = \"greedy\"",
            "model = \"burst\"\nwork_us = 3600000001",
            "x.toml:16:11: a time here is at most an hour",
        ),
        (
            "workload = \"greedy\"",
            "model = \"burst\"\nphase_us = 9223372036854775807",
            "x.toml:16:12: a time here",
        ),
        (
            "workload = \"greedy\"",
            "model = \"at\"\ntimes_us = [[1, 9223372036854775807]]",
            "x.toml:16:12: a time here",
        ),
        (
            "workload = \"greedy\"",
            "workload = \"greedy\"\nmemory_mib = 127",
            "x.toml:16:14: a guest needs at least 128 MiB",
        ),
        (
            "workload = \"greedy\"",
            "model = \"periodic\"\nsleep_us = 0",
            "x.toml:15:9: work_us and sleep_us are at least 1",
        ),
        (
            "repeats = 2",
            "repeats = 2\nsmallest_effect = 3",
            "x.toml:6:19: smallest_effect is a share below 1",
        ),
        (
            "pcpus = 2",
            "pcpus = 2\nvt = { quantum_ns = 0 }",
            "x.toml:13:21: `quantum_ns` is 1 to 1000000",
        ),
        (
            "pcpus = 2",
            "pcpus = 2\nvt = { instructions = 17 }",
            "x.toml:13:23: `instructions` is 1 to 16",
        ),
        ("pcpus = 2", &injector("gap_us = 3600000001"), "x.toml:14:12: gap_us: a time here"),
        (
            "pcpus = 2",
            &injector("gap_us = 1, after_ms = 9223372036854775807"),
            "x.toml:14:12: after_ms: a time here",
        ),
    ];
    for (from, to, expected) in cases {
        let message = error_of(&GOOD.replacen(from, to, 1));
        assert!(message.contains(expected), "{to}: {message}");
    }
}

#[test]
fn topologies_in_real_time_ask_for_one_accelerator() {
    let first = GOOD.split("[[topology.neighbour]]").next().unwrap();
    let two = |accels: [&str; 2]| {
        let [one, other] = accels.map(|accel| match accel {
            "" => String::new(),
            _ => format!("accel = \"{accel}\"\n"),
        });
        format!("{first}{one}[[topology]]\nname = \"1:1\"\nvcpus = 4\npcpus = 4\n{other}")
    };
    for accels in [["tcg", "tcg"], ["vt", "kvm"], ["real", ""]] {
        Experiment::parse(Path::new("x.toml"), &two(accels)).unwrap();
    }
    for (accels, place) in [
        (["tcg", "kvm"], "x.toml:18:9: "),
        (["real", "tcg"], "x.toml:18:9: "),
        (["tcg", ""], "x.toml:13:9: "),
    ] {
        let message = error_of(&two(accels));
        assert!(message.starts_with(place), "{message}");
        assert!(message.contains("write the same `accel`"), "{message}");
    }
}

#[test]
fn virtual_time_takes_models_and_says_so() {
    let vt = GOOD.replace("repeats = 2", "repeats = 2\naccel = \"vt\"");
    let message = error_of(&vt);
    assert!(
        message.contains("x.toml:16:12") && message.contains("model = \"greedy\""),
        "{message}"
    );
    let modelled = vt.replace("workload = \"greedy\"", "model = \"periodic\"\nwork_us = 5");
    let experiment = Experiment::parse(Path::new("x.toml"), &modelled).unwrap();
    let neighbour = &experiment.topologies[0].simulated.neighbours[0];
    assert_eq!((neighbour.work_ns, neighbour.sleep_ns), (5_000, 10_000_000));
    let real = error_of(&modelled.replace("\"vt\"", "\"real\""));
    assert!(real.contains("exists in virtual time only"), "{real}");
    let both = vt.replace("workload = \"greedy\"", "workload = \"greedy\"\nmodel = \"greedy\"");
    assert!(error_of(&both).contains("either a `workload` or a `model`"));
}

#[test]
fn what_can_run_in_virtual_time_does_unless_it_says_otherwise() {
    let accel =
        |text: &str| Experiment::parse(Path::new("x.toml"), text).unwrap().topologies[0].accel;
    let alone = GOOD.split("[[topology.neighbour]]").next().unwrap();
    assert_eq!(accel(alone), Some(Accel::Vt));
    let modelled = GOOD.replace("workload = \"greedy\"", "model = \"greedy\"");
    assert_eq!(accel(&modelled), Some(Accel::Vt));
    assert_eq!(accel(GOOD), None, "a real neighbour");
    let nested = format!("{alone}[topology.nested]\nregime = \"pv\"\n");
    assert_eq!(accel(&nested), None);
    let large = alone.replace("pcpus = 2", "pcpus = 97");
    assert_eq!(accel(&large), None, "more than a simulated host has");
    let asked =
        |accel: &str| alone.replace("repeats = 2", &format!("repeats = 2\naccel = {accel:?}"));
    assert_eq!(accel(&asked("real")), None, "what works");
    assert_eq!(accel(&asked("tcg")), Some(Accel::Tcg));
    assert!(error_of(&asked("fast")).contains("`kvm`, `tcg`, `vt`, `real`"));
}

#[test]
fn a_simulated_host_has_its_limit_of_pcpus() {
    let text = GOOD.split("[[topology.neighbour]]").next().unwrap();
    let vt = text.replace("repeats = 2", "repeats = 2\naccel = \"vt\"");
    for (count, refused) in [(96, false), (97, true)] {
        let asked = vt.replace("pcpus = 2", &format!("pcpus = {count}"));
        let parsed = Experiment::parse(Path::new("x.toml"), &asked);
        let message = parsed.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(message.contains("at most 96 pCPUs"), refused, "{count}: {message}");
    }
}

#[test]
fn an_injector_takes_time_from_a_vcpu() {
    let text = GOOD.split("[[topology.neighbour]]").next().unwrap();
    let pinned = |pcpu: u32| {
        let injector = INJECTOR.replace("pcpu = 1", &format!("pcpu = {pcpu}"));
        text.replace("pcpus = 2", &format!("pcpus = 5\npinned = true\n{injector}"))
    };
    Experiment::parse(Path::new("x.toml"), &pinned(3)).unwrap();
    let message = error_of(&pinned(4));
    assert!(message.starts_with("x.toml:12:9: ") && message.contains("[0, 1, 2, 3]"), "{message}");
    let real = pinned(7).replace("repeats = 2", "repeats = 2\naccel = \"real\"");
    let experiment = Experiment::parse(Path::new("x.toml"), &real).unwrap();
    experiment.check_pcpus(&[4, 5, 6, 7, 8]).unwrap();
    let message = experiment.check_pcpus(&[0, 1, 2, 3, 4]).unwrap_err().to_string();
    assert!(message.contains("pCPU 7 has no vCPU"), "{message}");
}

#[test]
fn reflected_pause_loops_need_a_guest_that_answers() {
    let vt = |more: &str| GOOD.replace("repeats = 2", &format!("repeats = 2\nvt = {{ {more} }}"));
    let message = error_of(&vt("regime = \"ple\", vnae = \"both\""));
    assert!(message.contains("x.toml:6:31") && message.contains("sev-es-emulated"), "{message}");
    let message = error_of(&vt("cvm = \"sev-es-emulated\", vnae = \"both\""));
    assert!(message.contains("regime = \"ple\""), "{message}");
    assert!(error_of(&vt("vnae = \"force\"")).contains("unknown variant `force`"));
}

#[test]
fn an_accelerator_can_be_forced_where_nothing_keeps_from_it() {
    let text = GOOD.split("[[topology.neighbour]]").next().unwrap();
    let mut experiment = Experiment::parse(Path::new("x.toml"), text).unwrap();
    experiment.force_accel(Accel::Vt).unwrap();
    assert!(experiment.topologies[0].in_virtual_time());
    let nested = format!("{text}nested = {{ regime = \"pv\" }}\n");
    let mut experiment = Experiment::parse(Path::new("x.toml"), &nested).unwrap();
    let message = experiment.force_accel(Accel::Vt).unwrap_err().to_string();
    assert!(message.contains("[topology.vt]"), "{message}");
}
