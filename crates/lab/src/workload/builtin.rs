//! The shipped workloads, which are compiled into the program.

use std::path::Path;

use super::Workload;
use crate::shipped::{self, WORKLOADS};

/// Returns the shipped workload with this name, or `None` if it does not exist.
pub fn builtin(name: &str) -> Option<Workload> {
    let text = shipped::text(&WORKLOADS, name)?;
    let file = format!("workloads/{name}.toml");
    Some(Workload::parse(Path::new(&file), text).expect("a test reads every shipped workload"))
}

/// Returns the names of the shipped workloads, sorted.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    shipped::names(&WORKLOADS)
}

#[cfg(test)]
#[path = "builtin_tests.rs"]
mod tests;
