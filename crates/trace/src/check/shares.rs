//! Fairness: in a second in which every entity wants to run all the time, each gets the share that
//! its weight entitles it to.
//!
//! Linux schedules each pCPU on its own and moves whole tasks between them, seldom while all are
//! busy. So a second counts only after the load balancer has had time to settle. The check depends
//! on the entities:
//!
//! - If their fair shares are equal and they divide evenly among the pCPUs, each share is within
//!   2 % of the second.
//! - Otherwise, no entity gets less than two fifths of its fair share.
//! - If VMs have weights, each VM as a whole gets at least four fifths of its fair share.
//!
//! Shares do not follow weights if vCPUs give up their pCPU through pause-loop exits or directed
//! yields, if entities are pinned to pCPUs, or if the guest has a quota. The check then passes
//! every record.

use std::collections::BTreeMap;

use super::{Found, Rules};
use crate::virtual_time::{Event, Kind, Record};

const WINDOW_NS: u64 = 1_000_000_000;
const TOLERANCE_NS: f64 = WINDOW_NS as f64 / 50.0;
const LEAST_SHARE: f64 = 0.4;
const LEAST_SHARE_OF_VM: f64 = 0.8;
/// Time for which the balancer settles, for each pCPU. Linux balances busy CPUs every 16 x 2 ms for
/// each CPU of a domain (`busy_factor` and `max_interval`, kernel/sched/topology.c).
const SETTLES_NS_BY_PCPU: u64 = 32_000_000;

pub(super) fn check(record: &Record, rules: &Rules) -> Result<(), Found> {
    if rules.yields || !rules.held_to.is_empty() || rules.quota_ns.is_some() {
        return Ok(());
    }
    let fair_ns = fair_shares(record, rules);
    let even = fair_ns.iter().all(|ns| *ns == fair_ns[0]) && record.entities % record.pcpus == 0;
    let mut seconds = Seconds {
        on_since_ns: vec![None; record.entities as usize],
        runnable: vec![false; record.entities as usize],
        on_ns: vec![0; record.entities as usize],
        settles_ns: SETTLES_NS_BY_PCPU * u64::from(record.pcpus),
        start_ns: None,
    };
    for event in record.in_time_order() {
        while let Some(end_ns) = seconds.full_before(event.t_ns) {
            seconds.close(end_ns);
            judge(&seconds.on_ns, &fair_ns, even)
                .and_then(|()| judge_vms(&seconds.on_ns, &fair_ns, rules))
                .map_err(|what| Found(end_ns, event.offset, what))?;
            seconds.open(end_ns);
        }
        seconds.step(event);
    }
    Ok(())
}

/// Returns the nanoseconds of a second that each entity is entitled to: its weighted share of all
/// pCPUs. An entity can use at most one pCPU; what exceeds it goes to the others.
fn fair_shares(record: &Record, rules: &Rules) -> Vec<f64> {
    let vm = |entity: usize| rules.vm(entity);
    let entities = record.entities as usize;
    let weight = |entity: usize| {
        let vcpus = (0..entities).filter(|other| vm(*other) == vm(entity)).count();
        rules.weight(vm(entity)) / if rules.per_vm { vcpus as f64 } else { 1.0 }
    };
    let mut shares = vec![0.0; entities];
    let mut open: Vec<usize> = (0..entities).collect();
    let mut left = f64::from(record.pcpus);
    while !open.is_empty() {
        let weights: f64 = open.iter().map(|entity| weight(*entity)).sum();
        let share = |entity: usize| left * weight(entity) / weights;
        let (capped, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|entity| share(**entity) >= 1.0);
        if capped.is_empty() {
            for entity in &rest {
                shares[*entity] = share(*entity) * WINDOW_NS as f64;
            }
            break;
        }
        for entity in &capped {
            shares[*entity] = WINDOW_NS as f64;
        }
        left = (left - capped.len() as f64).max(0.0);
        open = rest;
    }
    shares
}

fn judge(on_ns: &[u64], fair_ns: &[f64], even: bool) -> Result<(), String> {
    for (entity, (on_ns, fair_ns)) in on_ns.iter().zip(fair_ns).enumerate() {
        let unfair = match even {
            true => (*on_ns as f64 - fair_ns).abs() > TOLERANCE_NS,
            false => (*on_ns as f64) < LEAST_SHARE * fair_ns,
        };
        if unfair {
            return Err(format!(
                "entity {entity} was on for {on_ns} ns of a second, its fair share is {fair_ns:.0} ns"
            ));
        }
    }
    Ok(())
}

/// Checks whether each VM as a whole has its share, if VMs have weights.
fn judge_vms(on_ns: &[u64], fair_ns: &[f64], rules: &Rules) -> Result<(), String> {
    if rules.weights.is_empty() {
        return Ok(());
    }
    let mut sums: BTreeMap<u16, (f64, f64)> = BTreeMap::new();
    for (entity, (on_ns, fair_ns)) in on_ns.iter().zip(fair_ns).enumerate() {
        let (on, fair) = sums.entry(rules.vm(entity)).or_default();
        (*on, *fair) = (*on + *on_ns as f64, *fair + fair_ns);
    }
    match sums.iter().find(|(_, (on_ns, fair_ns))| *on_ns < LEAST_SHARE_OF_VM * fair_ns) {
        None => Ok(()),
        Some((vm, (on_ns, fair_ns))) => Err(format!(
            "VM {vm} was on for {on_ns:.0} ns of a second, its fair share is {fair_ns:.0} ns"
        )),
    }
}

/// The seconds in which all entities want to run.
struct Seconds {
    on_since_ns: Vec<Option<u64>>,
    runnable: Vec<bool>,
    on_ns: Vec<u64>,
    settles_ns: u64,
    /// Start of the current second, possibly in the future; `None` while some entity does not want
    /// to run.
    start_ns: Option<u64>,
}

impl Seconds {
    /// Returns the end of the current second if it is over by `now_ns`.
    fn full_before(&self, now_ns: u64) -> Option<u64> {
        self.start_ns.map(|start_ns| start_ns + WINDOW_NS).filter(|end_ns| *end_ns <= now_ns)
    }

    fn open(&mut self, start_ns: u64) {
        self.start_ns = Some(start_ns);
        self.on_ns.fill(0);
    }

    /// Counts the time of the entities that are on, until `end_ns`.
    fn close(&mut self, end_ns: u64) {
        let start_ns = self.start_ns.unwrap_or(end_ns);
        for (on_ns, since_ns) in self.on_ns.iter_mut().zip(&mut self.on_since_ns) {
            if let Some(since_ns) = since_ns {
                *on_ns += end_ns.saturating_sub((*since_ns).max(start_ns));
                *since_ns = end_ns;
            }
        }
    }

    /// Counts the part of an interval ending now that lies in the current second.
    fn count(&mut self, entity: usize, now_ns: u64) {
        let (Some(since_ns), Some(start_ns)) = (self.on_since_ns[entity].take(), self.start_ns)
        else {
            return;
        };
        self.on_ns[entity] += now_ns.saturating_sub(since_ns.max(start_ns));
    }

    fn step(&mut self, event: &Event) {
        let entity = usize::from(event.entity);
        match event.kind {
            Kind::On => {
                self.on_since_ns[entity] = Some(event.t_ns);
                self.runnable[entity] = true;
            }
            Kind::Off | Kind::Idle => {
                self.count(entity, event.t_ns);
                self.runnable[entity] = event.kind == Kind::Off;
            }
            Kind::Wake => self.runnable[entity] = true,
            Kind::Steal(_) => {
                self.start_ns = None;
                return;
            }
            _ => return,
        }
        match (self.runnable.iter().all(|wants| *wants), self.start_ns) {
            (true, None) => self.open(event.t_ns + self.settles_ns),
            (false, Some(_)) => self.start_ns = None,
            _ => {}
        }
    }
}
