//! Tests of the detector with vCPUs whose on, off and idle times are known.

use proptest::prelude::*;
use unspin_policy::activity::{Activity, Limits, Off, State};

const LIMITS: Limits = Limits { timer_ns: 200_000, wake_ns: 150_000 };
const PERIOD_NS: u64 = 500_000;

/// One stretch on a pCPU and the off interval after it.
#[derive(Debug, Clone)]
struct Turn {
    on_ns: u64,
    off_ns: u64,
    /// Signs of life without a heartbeat, each at a fraction of the stretch.
    signs: Vec<f64>,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (10_000..8_000_000_u64, 0..8_000_000_u64, prop::collection::vec(0.0..1.0_f64, 0..6));
    let turn = turn.prop_map(|(on_ns, off_ns, mut signs)| {
        signs.sort_by(f64::total_cmp);
        Turn { on_ns, off_ns, signs }
    });
    prop::collection::vec(turn, 1..30)
}

/// Runs a vCPU that is never idle and has a heartbeat, and calls `look` at instants of each
/// stretch. Returns the off intervals that were found, and the true ones.
fn run(turns: &[Turn], mut look: impl FnMut(&Activity, u64, State)) -> (Vec<Off>, Vec<(u64, u64)>) {
    let mut now = 1_000_000;
    let (mut vcpu, mut due) = (Activity::default(), now + PERIOD_NS);
    let (mut found, mut truth) = (Vec::new(), Vec::new());
    found.extend(vcpu.alive(&LIMITS, now, due));
    for turn in turns {
        let off_at = now + turn.on_ns;
        let mut signs: Vec<u64> =
            turn.signs.iter().map(|share| now + (turn.on_ns as f64 * share) as u64).collect();
        let beats = (0..).map(|n| due.max(now) + n * PERIOD_NS).take_while(|t| *t < off_at);
        let beats: Vec<u64> = beats.collect();
        signs.extend(&beats);
        signs.sort_unstable();
        for t in signs {
            look(&vcpu, t, State::On);
            if beats.contains(&t) {
                due = t + PERIOD_NS;
                found.extend(vcpu.alive(&LIMITS, t, due));
            } else if !vcpu.is_early(&LIMITS, t) {
                found.extend(vcpu.alive(&LIMITS, t, due));
            }
        }
        let back_at = off_at + turn.off_ns;
        if off_at + PERIOD_NS + LIMITS.timer_ns < back_at {
            look(&vcpu, off_at + PERIOD_NS + LIMITS.timer_ns + 1, State::Off);
        }
        truth.push((off_at, back_at));
        now = back_at;
        if due < now {
            due = now + PERIOD_NS;
            found.extend(vcpu.alive(&LIMITS, now, due));
        }
    }
    (found, truth)
}

proptest! {
    /// Each reported interval happened, within its bounds; each interval that is long enough is
    /// reported.
    #[test]
    fn off_intervals_are_found_and_no_others(turns in turns()) {
        let (found, truth) = run(&turns, |_, _, _| {});
        for off in &found {
            let real = truth.iter().find(|(_, end)| *end == off.end_ns);
            prop_assert!(real.is_some(), "{off:?} never was");
            let start = real.unwrap().0;
            prop_assert!(off.earliest_ns <= start && start <= off.latest_ns, "{off:?} began at {start}");
            let error = off.length_ns().abs_diff(off.end_ns - start);
            prop_assert!(error <= PERIOD_NS / 2 + 1, "{off:?}: {error} ns");
        }
        let long = |(start, end): &&(u64, u64)| end - start > PERIOD_NS + LIMITS.timer_ns;
        for (_, end) in truth.iter().filter(long) {
            prop_assert!(found.iter().any(|off| off.end_ns == *end), "missed the one until {end}");
        }
    }

    /// Another vCPU sees this one off once it has been off for a little more than a period, and
    /// never while it is on.
    #[test]
    fn a_look_from_outside_is_right(turns in turns()) {
        let mut wrong = Vec::new();
        run(&turns, |vcpu, now_ns, truth| {
            let seen = vcpu.look(&LIMITS, now_ns);
            // At the end of an off interval, the heartbeat is late and not yet served.
            let is_late = vcpu.due_ns + LIMITS.timer_ns < now_ns;
            if seen != truth && !(truth == State::On && is_late) {
                wrong.push((now_ns, seen));
            }
        });
        prop_assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// Spans one after the other have all of an off interval, and none of it twice.
    #[test]
    fn spans_share_an_off_interval(times in prop::collection::vec(1..9_000_u64, 3..9)) {
        let (bounds, cuts) = times.split_at(3);
        let (mut bounds, mut cuts) = (bounds.to_vec(), [cuts, &[0, 9_000][..]].concat());
        bounds.sort_unstable();
        cuts.sort_unstable();
        let off = Off { earliest_ns: bounds[0], latest_ns: bounds[1], end_ns: bounds[2] };
        let shares = cuts.windows(2).map(|span| off.within_ns(span[0], span[1]));
        prop_assert_eq!(shares.sum::<u64>(), off.length_ns());
    }

    /// Any order of calls with any times: no panic, no interval that ends before it begins.
    #[test]
    fn any_history_is_survived(
        steps in prop::collection::vec((0..7_u8, any::<u64>(), any::<u64>()), 0..50),
    ) {
        let mut vcpu = Activity::default();
        for (step, now_ns, due_ns) in steps {
            let off = match step {
                0 => vcpu.alive(&LIMITS, now_ns, due_ns),
                1 => vcpu.resume(&LIMITS, now_ns, due_ns),
                2 => { vcpu.idle(now_ns, due_ns); None }
                3 => { vcpu.postpone(now_ns, due_ns); None }
                4 => { vcpu.set_timer(due_ns); None }
                5 => { vcpu.is_early(&LIMITS, now_ns); None }
                _ => { vcpu.wake(now_ns); None }
            };
            if let Some(off) = off {
                prop_assert!(off.earliest_ns <= off.latest_ns && off.latest_ns < off.end_ns);
                prop_assert!(off.length_ns() <= off.end_ns - off.earliest_ns);
            }
            vcpu.look(&LIMITS, now_ns);
            vcpu.left_ns(now_ns);
        }
    }
}

#[test]
fn a_timer_that_waits_for_interrupts_is_due_from_the_last_sign_on() {
    let mut vcpu = Activity::default();
    assert_eq!(vcpu.alive(&LIMITS, 1_000, 500_000), None);
    // A sign of life after the timer was due: interrupts are disabled, and the vCPU is on.
    assert_eq!(vcpu.alive(&LIMITS, 600_000, 500_000), None);
    assert_eq!(vcpu.look(&LIMITS, 700_000), State::On);
    // The timer is served soon; before that, the vCPU set the next one.
    vcpu.set_timer(1_500_000);
    assert_eq!(vcpu.alive(&LIMITS, 750_000, 1_500_000), None);
    // The timer is not served: no code disables interrupts for so long.
    assert_eq!(vcpu.alive(&LIMITS, 1_400_000, 1_300_000), None);
    assert_eq!(vcpu.look(&LIMITS, 1_700_000), State::Off);
    vcpu.set_timer(9_000_000);
    let off = Off { earliest_ns: 1_400_000, latest_ns: 1_400_000, end_ns: 5_000_000 };
    assert_eq!(vcpu.alive(&LIMITS, 5_000_000, 9_000_000), Some(off));
}

#[test]
fn a_spin_that_held_interrupts_back_is_no_off_interval() {
    let mut vcpu = Activity::default();
    vcpu.alive(&LIMITS, 1_000, 500_000);
    vcpu.postpone(4_000_000, 500_000);
    assert_eq!(vcpu.alive(&LIMITS, 4_050_000, 4_500_000), None);
    vcpu.postpone(3_000_000, 0);
    assert_eq!((vcpu.alive_ns, vcpu.due_ns), (4_050_000, 4_500_000), "time does not go back");
}

#[test]
fn a_late_answer_to_a_wake_up_is_an_off_interval() {
    let mut vcpu = Activity::default();
    vcpu.alive(&LIMITS, 1_000, 500_000);
    vcpu.idle(2_000, 90_000_000);
    assert_eq!(vcpu.look(&LIMITS, 50_000_000), State::Idle, "however long");
    vcpu.wake(60_000_000);
    vcpu.wake(61_000_000);
    assert_eq!(vcpu.look(&LIMITS, 60_100_000), State::Idle);
    assert_eq!(vcpu.look(&LIMITS, 60_200_000), State::Off);
    let off = vcpu.resume(&LIMITS, 63_000_000, 64_000_000).unwrap();
    assert_eq!(off, Off { earliest_ns: 60_000_000, latest_ns: 60_000_000, end_ns: 63_000_000 });
    assert_eq!(off.length_ns(), 3_000_000);
    vcpu.idle(63_100_000, 90_000_000);
    vcpu.wake(70_000_000);
    assert_eq!(vcpu.resume(&LIMITS, 70_100_000, 71_000_000), None, "answered in time");
}

/// The tick that books it comes later.
#[test]
fn time_off_before_a_wake_up_lies_in_no_later_spin() {
    let mut vcpu = Activity::default();
    vcpu.alive(&LIMITS, 1_000, 4_000_000);
    vcpu.idle(2_000, 90_000_000);
    vcpu.wake(10_000_000);
    let off = vcpu.resume(&LIMITS, 15_000_000, 16_000_000).unwrap();
    assert_eq!(off.length_ns(), 5_000_000);
    assert_eq!(off.within_ns(15_000_000, 16_000_000), 0);
    // Off in a spin, which the tick interrupts once the vCPU is back.
    let off = vcpu.alive(&LIMITS, 22_000_000, 24_000_000).unwrap();
    assert_eq!(off.length_ns(), 6_500_000, "from the middle of 15 and 16 ms on");
    assert_eq!(off.within_ns(17_000_000, off.end_ns), 5_000_000);
}

#[test]
fn an_idle_vcpu_whose_timer_is_late_was_off() {
    let mut vcpu = Activity::default();
    vcpu.alive(&LIMITS, 1_000, 500_000);
    vcpu.idle(2_000, 10_000_000);
    vcpu.wake(11_000_000);
    let off = vcpu.resume(&LIMITS, 12_000_000, 13_000_000).unwrap();
    assert_eq!((off.earliest_ns, off.length_ns()), (10_000_000, 2_000_000));
    vcpu.idle(12_100_000, 0);
    assert_eq!(vcpu.look(&LIMITS, u64::MAX), State::Idle, "nothing asks for it");
    assert_eq!(vcpu.resume(&LIMITS, 99_000_000, 0), None);
}

#[test]
fn the_time_left_follows_the_runs_before() {
    let mut vcpu = Activity::default();
    let mut now = 1_000_000;
    vcpu.alive(&LIMITS, now, now + 500_000);
    assert_eq!(vcpu.left_ns(now), None);
    for _ in 0..40 {
        // The vCPU is on for 3 ms, with a heartbeat every 0.5 ms, and off for 2 ms.
        for _ in 0..6 {
            now += 500_000;
            vcpu.alive(&LIMITS, now, now + 500_000);
        }
        now += 2_000_000;
        assert!(vcpu.alive(&LIMITS, now, now + 500_000).is_some());
    }
    let left = vcpu.left_ns(now).unwrap();
    assert!(
        left.abs_diff(3_250_000) < 100_000,
        "{left}: 3 ms, and half of a beat that is not known"
    );
    assert_eq!(vcpu.left_ns(now + 10_000_000), Some(0));
    assert!(vcpu.off_mean_ns.abs_diff(1_750_000) < 100_000, "{}", vcpu.off_mean_ns);
}

#[test]
fn heartbeats_become_rare_where_nothing_happens() {
    const S: u64 = 1_000_000_000;
    let mut vcpu = Activity::default();
    vcpu.alive(&LIMITS, S, S + PERIOD_NS);
    let at = |vcpu: &Activity, tenths: u64| vcpu.beat_ns(PERIOD_NS, false, S + tenths * S / 10);
    assert_eq!(at(&vcpu, 0), Some(PERIOD_NS));
    assert_eq!((at(&vcpu, 6), at(&vcpu, 19)), (Some(2 * PERIOD_NS), Some(8 * PERIOD_NS)));
    assert_eq!(at(&vcpu, 20), None);
    // One off interval brings the heartbeats back.
    assert!(vcpu.alive(&LIMITS, 4 * S, 4 * S + PERIOD_NS).is_some());
    assert_eq!((at(&vcpu, 30), at(&vcpu, 50)), (Some(PERIOD_NS), None));
}

/// Without heartbeats, a vCPU that computes would never be seen off again.
#[test]
fn heartbeats_that_are_alone_do_not_end() {
    const S: u64 = 1_000_000_000;
    let mut vcpu = Activity::default();
    vcpu.alive(&LIMITS, S, S + PERIOD_NS);
    let at = |seconds: u64| vcpu.beat_ns(PERIOD_NS, true, S + seconds * S);
    assert_eq!((at(0), at(1)), (Some(PERIOD_NS), Some(4 * PERIOD_NS)));
    assert_eq!((at(2), at(3_600)), (Some(8 * PERIOD_NS), Some(8 * PERIOD_NS)));
}
