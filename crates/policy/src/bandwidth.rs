//! `policy/bandwidth.h`: how much time a group of tasks may use.

/// A group's limit and what is left of it. Zeroed where there is none.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// What it may use in a period; 0: there is no limit.
    pub quota_ns: u64,
    /// The length of a period.
    pub period_ns: u64,
    /// What may be kept of earlier periods.
    pub burst_ns: u64,
    /// When the period of now began.
    pub since_ns: u64,
    /// What may still be used, or, below 0, has to be made up for.
    pub left_ns: i64,
}

// SAFETY: of every call below: the functions work on nothing but what they are given by
// reference, and the struct has the C one's fields in its order.
unsafe extern "C" {
    fn bandwidth_set(
        bandwidth: *mut Bandwidth,
        quota_ns: u64,
        period_ns: u64,
        burst_ns: u64,
        now_ns: u64,
    );
    fn bandwidth_refill(bandwidth: *mut Bandwidth, now_ns: u64);
    fn bandwidth_charge(bandwidth: *mut Bandwidth, ran_ns: u64);
    fn bandwidth_has(bandwidth: *const Bandwidth, ns: u64) -> i32;
}

impl Bandwidth {
    /// The limit as it is now: one that has changed counts from now on.
    pub fn set(&mut self, quota_ns: u64, period_ns: u64, burst_ns: u64, now_ns: u64) {
        // SAFETY: see above.
        unsafe { bandwidth_set(self, quota_ns, period_ns, burst_ns, now_ns) }
    }

    /// Periods that have passed bring a quota each.
    pub fn refill(&mut self, now_ns: u64) {
        // SAFETY: see above.
        unsafe { bandwidth_refill(self, now_ns) }
    }

    /// The group's tasks ran for so long.
    pub fn charge(&mut self, ran_ns: u64) {
        // SAFETY: see above.
        unsafe { bandwidth_charge(self, ran_ns) }
    }

    /// Whether there is more than that to be used.
    pub fn has(&self, ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { bandwidth_has(self, ns) != 0 }
    }
}
