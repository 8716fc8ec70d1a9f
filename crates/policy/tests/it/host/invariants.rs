//! Tests with random calls in random order: `Machine` checks its invariants after each call.

use super::machine::{MS, Machine, SECOND};
use proptest::prelude::*;
use unspin_policy::host::{Config, Debooster, Scheduler, State};

#[derive(Debug, Clone, Copy)]
enum Act {
    Wake(u32, u32),
    Block(u32),
    Yield(u32),
    YieldTo(u32, u32),
    Toggle(u32),
    Critical(u32, bool),
    Reweigh(u32, u32),
    Pass(u64),
}

fn weights() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(1024u32), 1 => 15u32..88761]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0u32..64, 0u32..64).prop_map(|(thread, waker)| Act::Wake(thread, waker)),
        2 => (0u32..64).prop_map(Act::Block),
        1 => (0u32..64).prop_map(Act::Yield),
        3 => (0u32..64, 0u32..64).prop_map(|(from, to)| Act::YieldTo(from, to)),
        1 => (0u32..64).prop_map(Act::Toggle),
        1 => (0u32..64, any::<bool>()).prop_map(|(thread, is)| Act::Critical(thread, is)),
        1 => (0u32..64, weights()).prop_map(|(thread, weight)| Act::Reweigh(thread, weight)),
        5 => (0u64..5 * MS).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 1..200)
}

#[derive(Debug, Clone)]
struct Setup {
    config: Config,
    /// Each group's weight, and its quota in a period of 20 ms.
    groups: Vec<(u32, u64)>,
    /// Each thread's group, weight, first and last pCPU, to be reduced modulo their number.
    threads: Vec<(u32, u32, u32, u32)>,
}

fn setups() -> impl Strategy<Value = Setup> {
    let no_features = prop_oneof![3 => Just(0u32), 1 => 0u32..128];
    let kinds = (1u32..=5, any::<bool>(), 0u32..4, no_features, any::<bool>());
    let quota = prop_oneof![Just(0u64), 1u64..60 * MS];
    let groups = prop::collection::vec((2u32..5000, quota), 0..=3);
    let threads = prop::collection::vec((0u32..8, weights(), 0u32..8, 0u32..8), 1..=12);
    (kinds, groups, threads).prop_map(
        |((pcpus, is_cfs, debooster, no_features, extend), groups, threads)| {
            let scheduler = if is_cfs { Scheduler::Cfs } else { Scheduler::Eevdf };
            let debooster =
                [Debooster::Off, Debooster::Penalty, Debooster::Transfer, Debooster::Credit]
                    [debooster as usize];
            let config = Config::new(pcpus, scheduler);
            let config = Config { debooster, no_features, extend, ..config };
            Setup { config, groups, threads }
        },
    )
}

fn start(setup: &Setup) -> Machine {
    let mut machine = Machine::new(&setup.config);
    for (weight, quota) in &setup.groups {
        machine.host.group(*weight, *quota, 20 * MS);
    }
    for (group, weight, first, range) in &setup.threads {
        let first = first % setup.config.pcpus;
        let last = first + range % (setup.config.pcpus - first);
        machine.add_on(group % (setup.groups.len() as u32 + 1), *weight, first..=last);
    }
    machine
}

fn play(setup: &Setup, acts: &[Act]) -> Machine {
    let (mut machine, pcpus) = (start(setup), setup.config.pcpus);
    let count = setup.threads.len() as u32;
    for act in acts {
        match *act {
            Act::Wake(thread, waker) => {
                machine.wake_from(thread % count, (waker < 32).then_some(waker % pcpus));
            }
            Act::Block(thread) => machine.block(thread % count),
            Act::Yield(thread) => machine.yield_now(thread % count),
            Act::YieldTo(from, to) => {
                machine.yield_to(from % count, to % count);
            }
            Act::Toggle(pcpu) => machine.toggle(pcpu % pcpus),
            Act::Critical(thread, is) => machine.host.set_critical(thread % count, is),
            // CFS has no lag to keep.
            Act::Reweigh(_, _) if setup.config.scheduler == Scheduler::Cfs => {}
            Act::Reweigh(thread, weight) => machine.host.reweigh(thread % count, weight),
            Act::Pass(ns) => machine.run_for(ns),
        }
    }
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_host_conserves_work_and_counts_to_the_nanosecond(setup in setups(), acts in acts()) {
        play(&setup, &acts);
    }

    #[test]
    fn the_same_calls_have_the_same_results(setup in setups(), acts in acts()) {
        let (first, second) = (play(&setup, &acts), play(&setup, &acts));
        prop_assert!(first.host == second.host, "the states differ");
        prop_assert_eq!(first.switches, second.switches);
    }

    /// No thread starves: if all threads want to run all the time, each of them runs within two
    /// seconds.
    #[test]
    fn everybody_runs_sooner_or_later(setup in setups(), acts in acts()) {
        let unlimited = setup.groups.iter().map(|(weight, _)| (512 + weight % 1024, 0)).collect();
        let even = |weight| 512 + weight % 1024;
        let threads = setup.threads.iter().map(|t| (t.0, even(t.1), 0, 0)).collect();
        let setup = Setup { groups: unlimited, threads, ..setup };
        let keeps = |act: &Act| !matches!(act, Act::Toggle(_) | Act::Reweigh(..));
        let acts: Vec<Act> = acts.into_iter().filter(keeps).collect();
        let mut machine = play(&setup, &acts);
        machine.threads().for_each(|thread| machine.wake(thread));
        let ran = machine.shares_of(2 * SECOND);
        prop_assert!(ran.iter().all(|ran| *ran > 0), "{:?}", ran);
    }
}

#[test]
fn an_idle_host_has_no_ticks() {
    let mut machine = Machine::new(&Config::new(4, Scheduler::Eevdf));
    assert_eq!(machine.host.next(), None);
    let thread = machine.add(0, 1024);
    machine.wake(thread);
    assert_eq!(machine.host.next(), Some(4 * MS), "its pCPU ticks");
    machine.block(thread);
    assert_eq!(machine.host.next(), None);
}

/// As on Linux, all pCPUs tick at the boundary of a jiffy.
#[test]
fn ticks_of_pcpus_coincide() {
    for scheduler in [Scheduler::Eevdf, Scheduler::Cfs] {
        let config = Config { phase_ns: MS / 2, ..Config::new(4, scheduler) };
        let mut machine = Machine::new(&config);
        for pcpu in (0..4).flat_map(|pcpu| [pcpu; 2]) {
            let thread = machine.add_on(0, 1024, pcpu..=pcpu);
            machine.wake(thread);
        }
        machine.switches.clear();
        let mut ticks = Vec::new();
        while machine.now < 100 * MS {
            ticks.push(machine.host.next().unwrap());
            machine.run_until(ticks[ticks.len() - 1]);
        }
        assert_eq!(ticks[..3], [500_000, 4_500_000, 8_500_000], "{scheduler:?}");
        assert!(machine.switches.len() > 20);
        for switches in machine.switches.chunks(4) {
            assert!(switches.iter().all(|s| s.at == switches[0].at), "{scheduler:?}");
            assert_eq!(switches.iter().map(|s| s.pcpu).collect::<Vec<_>>(), [0, 1, 2, 3]);
        }
    }
}

#[test]
fn a_taken_pcpu_runs_nobody_and_its_queue_moves_unless_it_is_pinned() {
    let mut machine = Machine::new(&Config::new(2, Scheduler::Eevdf));
    let (pinned, free) = (machine.add_on(0, 1024, 0..=0), machine.add(0, 1024));
    machine.wake(pinned);
    machine.toggle(0);
    assert_eq!(machine.host.state(pinned), State::Queued);
    machine.wake(free);
    assert_eq!((machine.host.current(0), machine.host.current(1)), (None, Some(free)));
    machine.run_for(50 * MS);
    assert_eq!(machine.host.runtime(pinned, machine.now), 0);
    machine.toggle(1);
    machine.toggle(0);
    let on = machine.host.current(0);
    machine.run_for(50 * MS);
    assert!(on.is_some() && machine.host.runtime(pinned, machine.now) > 20 * MS);
    assert!(machine.host.runtime(free, machine.now) > 70 * MS, "it came to pCPU 0");
}
