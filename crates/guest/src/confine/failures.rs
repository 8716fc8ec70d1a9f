//! Counts failed changes of the limit, and decides when to report them.

/// The kinds of changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    /// A limit leaves tasks fewer vCPUs.
    Limit,
    /// Tasks may use all vCPUs again.
    Lift,
    /// vCPUs came or went.
    Hotplug,
}

/// The failed changes.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// The number of failures since the start, each try counted.
    pub(super) count: u64,
    /// Whether the last change of each kind failed. Each kind counts alone: a trial whose limit
    /// fails ends with a lift that succeeds.
    last: [bool; 3],
}

impl Failures {
    /// Counts a change. Returns a message if failures of its kind begin or end.
    pub(super) fn step(&mut self, change: Change, failed: Option<&str>) -> Option<String> {
        self.count += u64::from(failed.is_some());
        let before = std::mem::replace(&mut self.last[change as usize], failed.is_some());
        let what = match change {
            Change::Limit => "limit vCPUs",
            Change::Lift => "lift the limit on vCPUs",
            Change::Hotplug => "follow vCPUs that came or went",
        };
        match (before, failed) {
            (false, Some(error)) => Some(format!("cannot {what}: {error}; trying again")),
            (true, None) => Some(format!("can {what} again")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_where_it_begins_and_where_it_ends() {
        let mut failures = Failures::default();
        let busy = Some("busy");
        assert_eq!(failures.step(Change::Limit, None), None);
        let said = failures.step(Change::Limit, busy);
        assert_eq!(said.as_deref(), Some("cannot limit vCPUs: busy; trying again"));
        // The trial ends, and the next one fails as well.
        assert_eq!(failures.step(Change::Lift, None), None);
        assert_eq!(failures.step(Change::Limit, busy), None);
        let said = failures.step(Change::Limit, None);
        assert_eq!(said.as_deref(), Some("can limit vCPUs again"));
        assert_eq!(failures.step(Change::Limit, None), None);
        assert_eq!(failures.count, 2);
        assert!(failures.step(Change::Hotplug, busy).is_some_and(|said| said.contains("came")));
    }
}
