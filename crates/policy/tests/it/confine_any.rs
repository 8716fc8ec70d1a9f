//! Tests of the limit on vCPUs with facts that make no sense.

use proptest::prelude::*;
use unspin_policy::confine::{Confine, Facts};

prop_compose! {
    /// Facts, often with few spins and switches, so that calm windows and trials occur.
    fn facts()(
        on_m in 0_u32..70_000,
        off_m in 0_u32..70_000,
        spin_m in prop_oneof![0_u32..1_000, 0_u32..70_000],
        spin_off_m in 0_u32..70_000,
        held_m in 0_u32..70_000,
        paths in 0_u32..9,
        switch_m in prop_oneof![9 => 0_u32..100, 1 => 0_u32..70_000],
        ticks in prop_oneof![9 => 0_u32..9, 1 => any::<u32>()],
        user_ticks in prop_oneof![9 => 0_u32..9, 1 => any::<u32>()],
        windows in 0_u32..9,
    ) -> Facts {
        Facts {
            on_m, off_m, spin_m, spin_off_m, held_m, paths, switch_m, ticks, user_ticks, windows,
        }
    }
}

proptest! {
    #[test]
    fn any_facts_give_a_possible_number(
        vcpus in 1_u32..64,
        // A wake-up clears the sums, so more wake-ups would leave no trials to check.
        seen in prop::collection::vec(
            (facts(), prop::bool::weighted(0.05), 1_u64..2_000_000_000),
            1..300,
        ),
    ) {
        let (mut confine, mut now_ns) = (Confine::new(vcpus), 0);
        for (facts, wakes, ns) in seen {
            now_ns += ns;
            if wakes {
                confine.wake();
            }
            let used = confine.step(&facts, now_ns);
            prop_assert!((1..=vcpus).contains(&used) && used == confine.in_use());
            // If all vCPUs are in use, none is isolated.
            prop_assert!(used < vcpus || !confine.isolates(now_ns), "{confine:?}");
        }
    }
}
