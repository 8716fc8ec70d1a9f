//! A trial of fewer vCPUs, where what was seen of the host's time misleads.

use unspin_policy::pack::{Facts, Pack, WINDOW_NS};

/// Of eight vCPUs with time for so many; with more, most of the time on is spun away unseen.
fn collapsing(used: u32, time_for: u32) -> Facts {
    let on_m = if used > time_for { 200 * used } else { 1_000 * used };
    let wakes = if used > time_for { 5 } else { 100 * used };
    Facts { on_m, off_m: 1_000 * used - on_m, queued_m: 40_000, wakes, ..TAKEN }
}

#[test]
fn a_trial_finds_how_much_time_there_is_where_that_was_not_to_be_seen() {
    for (time_for, windows) in [(2, 400), (3, 400), (4, 60), (5, 60), (6, 60), (7, 60)] {
        let (mut pack, mut now) = (Pack::new(8), 1_000_000_000);
        for _ in 0..windows {
            now += WINDOW_NS;
            pack.step(&collapsing(pack.in_use(), time_for), now);
        }
        assert_eq!(pack.in_use(), time_for, "{pack:?}");
    }
}

/// What was seen of the host's time may be much too little: with half of the vCPUs there is more.
#[test]
fn a_trial_begins_with_half_at_least_where_none_was_in_vain() {
    let (mut pack, mut now, mut least) = (Pack::new(8), 1_000_000_000, 8);
    for _ in 0..60 {
        now += WINDOW_NS;
        least = least.min(pack.step(&collapsing(pack.in_use(), 4), now));
    }
    assert_eq!(least, 4, "{pack:?}");
}

#[test]
fn where_half_are_much_better_but_too_many_a_trial_goes_on_with_fewer() {
    let (mut pack, mut now, mut windows) = (Pack::new(16), 1_000_000_000, 0);
    while pack.in_use() != 2 && windows < 400 {
        now += WINDOW_NS;
        windows += 1;
        let used = pack.in_use();
        let on_m = 2_000.min(1_000 * used);
        let (off_m, wakes) = (1_000 * used - on_m, 6_400 / (used * used));
        let spin_m = on_m * u32::from(used > 2) / 2;
        pack.step(&Facts { on_m, off_m, spin_m, queued_m: 40_000, wakes, ..TAKEN }, now);
    }
    // 21; 39 where each number is settled upon before the next is tried.
    assert!(windows < 30, "{windows} {pack:?}");
}

const TAKEN: Facts =
    Facts { on_m: 0, off_m: 0, spin_m: 0, queued_m: 0, wakes: 0, taken: 50, done: 0 };
