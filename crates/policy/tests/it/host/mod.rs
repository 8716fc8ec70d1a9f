//! Tests of `policy/host/`: the simulated host keeps the promises of the schedulers that it models.

mod balancing;
mod boosts;
mod delayed_groups;
mod delays;
mod extensions;
mod fairness;
mod forfeits;
mod intervals;
mod invariants;
mod machine;
mod neighbours;
mod quotas;
mod reflections;
mod turns;
mod wakeups;
mod yields;
