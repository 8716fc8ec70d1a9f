//! Nested machines: real KVM in an emulated host.

use libtest_mimic::Failed;

use crate::bench::{Bench, check, experiment};

/// The regimes are what their names say, as the L2's own kernel and the L1's
/// KVM see them.
pub fn regimes() -> Result<(), Failed> {
    let text = experiment(&["stress-ng-rename"], "truth = \"totals\"\ntime_limit_s = 60", "")
        .replace("debian-cloud", "lab")
        .replace("name = \"t\"\nvcpus = 2", "name = \"pv\"\nvcpus = 4");
    let regime = |name: &str| format!("nested = {{ regime = \"{name}\" }}\n");
    let topology = |name: &str| {
        format!(
            "[[topology]]\nname = \"{name}\"\nvcpus = 4\npcpus = 2\nmemory_mib = 512\n{}",
            regime(name)
        )
    };
    let text = text + &regime("pv") + &topology("ple") + &topology("abandoned");
    let bench = Bench::new(&text);
    let output = bench.run();
    check(output.status.success(), "the run", &output)?;
    let records = bench.results();
    assert_eq!(records.len(), 3);
    for record in &records {
        let regime = record["cell"]["topology"].as_str().unwrap_or_default();
        let spinlock = if regime == "pv" { "PV qspinlock" } else { "native qspinlock" };
        assert_eq!(record["spinlock"], spinlock, "{regime}");
        assert_eq!(record["label"]["nested"], true);
        let pause_exits = record["kvm"]["exit:pause"].as_u64().unwrap_or(0);
        assert_eq!(pause_exits > 0, regime != "abandoned", "{regime}: {pause_exits} PAUSE exits");
        assert!(record["truth"]["on_s"].as_f64() > Some(0.5), "the L1 saw its vCPUs run");
    }
    Ok(())
}
