//! Planted bugs: each checker catches the bug that it is for, and none objects to a host that keeps
//! its rules.

use unspin_trace::check::{Rules, check, names};
use unspin_trace::virtual_time::{Event, Exits, Kind, Mark, Record};

const SLICE_NS: u64 = 3_000_000;
const SECONDS: u64 = 3;

/// Four vCPUs alternate on two pCPUs: entities 0 and 1 on pCPU 0, 2 and 3 on pCPU 1.
fn round_robin(slices_ns: [u64; 4]) -> Record {
    let mut events = Vec::new();
    for pcpu in 0..2 {
        let pair = [2 * pcpu, 2 * pcpu + 1];
        let (mut t_ns, mut turn) = (0, 0);
        events.extend(pair.map(|entity| event(0, Kind::Wake, None, entity)));
        events.push(event(0, Kind::On, Some(pcpu as u8), pair[0]));
        while t_ns < SECONDS * 1_000_000_000 + 100_000_000 {
            t_ns += slices_ns[usize::from(pair[turn])];
            events.push(event(t_ns, Kind::Off, Some(pcpu as u8), pair[turn]));
            turn = 1 - turn;
            events.push(event(t_ns, Kind::On, Some(pcpu as u8), pair[turn]));
        }
    }
    events.sort_by_key(|event| event.t_ns);
    let end_ns = events.iter().map(|event| event.t_ns).max().unwrap_or(0) + 1_000;
    Record { pcpus: 2, vcpus: 4, entities: 4, end_ns, events, ..Record::default() }
}

fn event(t_ns: u64, kind: Kind, pcpu: Option<u8>, entity: u16) -> Event {
    Event { t_ns, kind, pcpu, entity, offset: 0 }
}

fn fair() -> Record {
    round_robin([SLICE_NS; 4])
}

fn caught_by(record: &Record) -> Option<&'static str> {
    let rules = Rules { quantum_ns: 1_000, vm_of: vec![0; 4], ..Rules::default() };
    check(record, &rules).err().map(|violation| violation.checker)
}

/// Returns the index of the n-th event that matches.
fn nth(record: &Record, n: usize, wanted: impl Fn(&Event) -> bool) -> usize {
    let matching = record.events.iter().enumerate().filter(|(_, event)| wanted(event));
    matching.map(|(index, _)| index).nth(n).expect("the record has such an event")
}

#[test]
fn a_host_that_keeps_the_rules_passes() {
    assert_eq!(caught_by(&fair()), None);
    assert_eq!(names().count(), 7);
}

#[test]
fn time_that_goes_back_is_caught() {
    let mut record = fair();
    let index = nth(&record, 20, |event| event.kind == Kind::Off);
    record.events[index].t_ns = 1;
    assert_eq!(caught_by(&record), Some("order"));
}

#[test]
fn an_entity_on_two_pcpus_is_caught() {
    let mut record = fair();
    let index = nth(&record, 4, |event| event.kind == Kind::On && event.entity == 0);
    let t_ns = record.events[index].t_ns + 10;
    let at = nth(&record, 0, |event| event.t_ns > t_ns);
    record.events.insert(at, event(t_ns, Kind::On, Some(1), 0));
    assert_eq!(caught_by(&record), Some("one-pcpu"));
}

#[test]
fn a_halt_of_a_preempted_entity_is_caught() {
    let mut record = fair();
    let index = nth(&record, 4, |event| event.kind == Kind::Off && event.entity == 1);
    let again = Event { kind: Kind::Idle, ..record.events[index] };
    record.events.insert(index + 1, again);
    assert_eq!(caught_by(&record), Some("states"));
}

#[test]
fn a_preempted_entity_that_is_recorded_as_idle_is_caught() {
    let mut record = fair();
    let index = nth(&record, 4, |event| event.kind == Kind::Off && event.entity == 1);
    record.events[index].kind = Kind::Idle;
    assert_eq!(caught_by(&record), Some("states"));
}

#[test]
fn a_mark_of_an_entity_that_is_off_is_caught() {
    let mut record = fair();
    let index = nth(&record, 4, |event| event.kind == Kind::Off && event.entity == 1);
    let mark = Event { kind: Kind::Mark(Mark::Begin), pcpu: None, ..record.events[index] };
    record.events.insert(index + 1, mark);
    assert_eq!(caught_by(&record), Some("states"));
}

#[test]
fn a_pcpu_that_carries_while_it_is_stolen_is_caught() {
    let mut record = fair();
    let at = nth(&record, 9, |event| event.kind == Kind::On);
    let t_ns = record.events[at].t_ns + 100;
    let at = nth(&record, 0, |event| event.t_ns > t_ns);
    record.events.insert(at, event(t_ns, Kind::Steal(true), Some(0), u16::MAX));
    assert_eq!(caught_by(&record), Some("accounts"));
}

#[test]
fn exits_that_cost_more_than_there_was_are_caught() {
    let mut record = fair();
    record.exits.insert(1, Exits { count: 1, price_ns: 100_000_000_000 });
    assert_eq!(caught_by(&record), Some("accounts"));
}

#[test]
fn exits_that_are_not_recorded_are_caught() {
    let mut record = fair();
    record.exits.insert(1, Exits { count: 3, price_ns: 100 });
    record.counted.insert(1, 4);
    assert_eq!(caught_by(&record), Some("accounts"));
}

#[test]
fn a_reason_whose_exits_are_all_lost_is_caught() {
    let exits = Exits { count: 4, price_ns: 100 };
    let with = |exits: &[(u8, Exits)], counted: &[(u8, u64)]| {
        let (exits, counted) = (exits.iter().copied().collect(), counted.iter().copied().collect());
        caught_by(&Record { exits, counted, ..fair() })
    };
    assert_eq!(with(&[(1, exits)], &[(1, 4), (2, 0)]), None, "none of the second reason");
    assert_eq!(with(&[(1, exits)], &[(1, 4), (2, 3)]), Some("accounts"));
    assert_eq!(with(&[(1, exits), (2, exits)], &[(1, 4)]), Some("accounts"), "not counted");
    assert_eq!(with(&[], &[(1, 4), (2, 3)]), None, "a host that records no exits");
}

#[test]
fn a_model_may_stop_wanting_to_run_and_a_vcpu_may_not() {
    let mut record = fair();
    let index = nth(&record, 4, |event| event.kind == Kind::Off && event.entity == 1);
    let gives_up = Event { kind: Kind::Idle, pcpu: None, ..record.events[index] };
    let wakes = Event { kind: Kind::Wake, ..gives_up };
    record.events.splice(index + 1..index + 1, [gives_up, wakes]);
    assert_eq!(caught_by(&record), Some("states"));
    record.vcpus = 1;
    assert_eq!(caught_by(&record), None);
}

#[test]
fn a_free_pcpu_beside_a_waiting_entity_is_caught() {
    let mut record = fair();
    let index = nth(&record, 9, |event| event.kind == Kind::On);
    record.events[index].t_ns += 50_000;
    record.events.sort_by_key(|event| event.t_ns);
    assert_eq!(caught_by(&record), Some("no-idle-pcpu"));
}

/// Two entities on two pCPUs. The injector takes pCPU 1 from entity 1 while pCPU 0 idles.
fn injected(gives_back_ns: u64) -> Record {
    let none = u16::MAX;
    let events = vec![
        event(0, Kind::Wake, None, 0),
        event(0, Kind::Wake, None, 1),
        event(0, Kind::On, Some(0), 0),
        event(0, Kind::On, Some(1), 1),
        event(10_000, Kind::Idle, Some(0), 0),
        event(20_000, Kind::Off, Some(1), 1),
        event(20_000, Kind::Steal(true), Some(1), none),
        event(gives_back_ns, Kind::Steal(false), Some(1), none),
        event(50_000, Kind::On, Some(1), 1),
    ];
    let record = Record { pcpus: 2, vcpus: 2, entities: 2, quantum_ns: 1_000, ..Record::default() };
    Record { end_ns: 60_000, events, ..record }
}

#[test]
fn an_entity_waits_for_the_pcpu_that_it_is_held_to() {
    let free = Rules { quantum_ns: 1_000, vm_of: vec![0, 0], ..Rules::default() };
    let held = Rules { held_to: vec![0, 1], ..free.clone() };
    assert_eq!(check(&injected(50_000), &held), Ok(()));
    let caught = |record: &Record, rules| check(record, rules).unwrap_err().checker;
    assert_eq!(caught(&injected(50_000), &free), "no-idle-pcpu", "it could run on pCPU 0");
    assert_eq!(caught(&injected(40_000), &held), "no-idle-pcpu", "its own was given back");
}

#[test]
fn a_quantum_of_delay_is_allowed() {
    let mut record = fair();
    let index = nth(&record, 9, |event| event.kind == Kind::On);
    record.events[index].t_ns += 1_000;
    record.events.sort_by_key(|event| event.t_ns);
    assert_eq!(caught_by(&record), None);
}

#[test]
fn an_unfair_share_is_caught() {
    let record = round_robin([SLICE_NS, SLICE_NS, 2 * SLICE_NS, SLICE_NS]);
    assert_eq!(caught_by(&record), Some("shares"));
}

#[test]
fn a_host_that_has_yet_to_balance_is_not_unfair() {
    // Entity 0 has pCPU 0 to itself until 42 ms, while entity 1 waits.
    let mut record = fair();
    record.events.retain(|event| event.t_ns >= 42_000_000 || event.pcpu != Some(0));
    record.events.push(event(0, Kind::On, Some(0), 0));
    record.events.push(event(42_000_000 - 1, Kind::Off, Some(0), 0));
    record.events.push(event(42_000_000 - 1, Kind::On, Some(0), 1));
    record.events.sort_by_key(|event| event.t_ns);
    let first = nth(&record, 0, |event| event.t_ns >= 42_000_000 && event.pcpu == Some(0));
    assert_eq!((record.events[first].kind, record.events[first].entity), (Kind::Off, 1));
    assert_eq!(caught_by(&record), None);
}

#[test]
fn a_guest_that_runs_beyond_its_quota_is_caught() {
    // The guest uses all of two pCPUs, but the quota allows less.
    let rules = |quota_ms: u64| Rules {
        quantum_ns: 1_000,
        vm_of: vec![0; 4],
        quota_ns: Some((quota_ms * 1_000_000, 100_000_000)),
        ..Rules::default()
    };
    assert_eq!(check(&fair(), &rules(199)), Ok(()), "within what pCPUs may be ahead");
    let caught = check(&fair(), &rules(150)).unwrap_err();
    assert_eq!((caught.checker, caught.t_ns), ("quota", 1_000_000_000));
    assert!(caught.what.contains("1500000000 ns"), "{caught}");
}

#[test]
fn only_a_guest_with_a_quota_waits_beside_a_free_pcpu() {
    let mut record = fair();
    // At the end, no entity is on, and all wait.
    record.end_ns += 1_000_000;
    for pcpu in [0, 1] {
        let on = record.events.iter().rev().find(|event| event.pcpu == Some(pcpu));
        let entity = on.expect("somebody").entity;
        record.events.push(event(record.end_ns - 900_000, Kind::Off, Some(pcpu), entity));
    }
    assert_eq!(caught_by(&record), Some("no-idle-pcpu"));
    let rules = Rules { quantum_ns: 1_000, vm_of: vec![0; 4], ..Rules::default() };
    let quota_ns = Some((200_000_000, 100_000_000));
    assert_eq!(check(&record, &Rules { quota_ns, ..rules.clone() }), Ok(()));
    let neighbour = Rules { vm_of: vec![0, 0, 0, 1], quota_ns, ..rules };
    assert_eq!(check(&record, &neighbour).unwrap_err().checker, "no-idle-pcpu");
}

#[test]
fn a_vm_of_twice_the_weight_gets_twice_as_much() {
    let rules =
        Rules { quantum_ns: 1_000, per_vm: true, vm_of: vec![0, 1, 0, 1], ..Rules::default() };
    let double = Rules { weights: vec![2.0], ..rules.clone() };
    let record = round_robin([SLICE_NS * 2, SLICE_NS, SLICE_NS * 2, SLICE_NS]);
    assert_eq!(check(&record, &double), Ok(()));
    let equal = check(&fair(), &double).unwrap_err();
    assert_eq!(equal.checker, "shares");
    assert!(equal.what.starts_with("VM 0 was on for 1000000000 ns"), "{equal}");
    assert_eq!(check(&fair(), &rules), Ok(()));
}

#[test]
fn shares_follow_the_weights_of_vms() {
    // Each entity got half a pCPU. That is fair between two VMs of two vCPUs. Between a VM of three
    // vCPUs and a VM of one, the fair shares are a third of a pCPU and a whole one.
    let record = fair();
    let rules =
        Rules { quantum_ns: 1_000, per_vm: true, vm_of: vec![0, 0, 1, 1], ..Rules::default() };
    assert_eq!(check(&record, &rules), Ok(()));
    let rules = Rules { vm_of: vec![0, 0, 0, 1], ..rules };
    assert_eq!(check(&record, &rules), Ok(()), "half of a pCPU is within what balancing allows");
    let starved = round_robin([SLICE_NS, SLICE_NS, SLICE_NS, SLICE_NS / 4]);
    assert_eq!(check(&starved, &rules).unwrap_err().checker, "shares");
    assert_eq!(check(&starved, &Rules { yields: true, ..rules }), Ok(()));
}

#[test]
fn a_violation_says_where_it_is() {
    let mut record = fair();
    let index = nth(&record, 20, |event| event.kind == Kind::Off);
    record.events[index].t_ns = 1;
    record.events[index].offset = 4711;
    let violation = check(&record, &Rules::default()).unwrap_err();
    let text = violation.to_string();
    assert!(text.contains("`order`") && text.contains("byte 4711"), "{text}");
}
