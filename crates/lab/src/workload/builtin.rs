//! The shipped workloads, compiled in.

use std::path::Path;

use super::Workload;
use crate::shipped::{self, WORKLOADS};

/// The shipped workload of that name, or `None` if there is none.
pub fn builtin(name: &str) -> Option<Workload> {
    let text = shipped::text(&WORKLOADS, name)?;
    let file = format!("workloads/{name}.toml");
    Some(Workload::parse(Path::new(&file), text).expect("a test reads every shipped workload"))
}

/// The names of the shipped workloads, sorted.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    shipped::names(&WORKLOADS)
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod tests;
