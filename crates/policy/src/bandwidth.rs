//! `policy/bandwidth.h`: limits how much CPU time a group of tasks may use.

/// One group's limit and balance. All zeros mean no limit.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// The time that the group may use in a period; 0: no limit.
    pub quota_ns: u64,
    /// The length of a period.
    pub period_ns: u64,
    /// The most unused quota that carries over from earlier periods.
    pub burst_ns: u64,
    /// When the current period began.
    pub since_ns: u64,
    /// The time that the group may still use; negative: its overrun.
    pub left_ns: i64,
}

// SAFETY: for every call below: the functions read and write only what their references point to,
// and the struct has the fields of the C struct in the same order.
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
    /// Sets the limit. A limit that has changed takes effect at once, with a full quota.
    pub fn set(&mut self, quota_ns: u64, period_ns: u64, burst_ns: u64, now_ns: u64) {
        // SAFETY: see above.
        unsafe { bandwidth_set(self, quota_ns, period_ns, burst_ns, now_ns) }
    }

    /// Adds a quota for each period that has passed.
    pub fn refill(&mut self, now_ns: u64) {
        // SAFETY: see above.
        unsafe { bandwidth_refill(self, now_ns) }
    }

    /// Deducts the time that the group's tasks ran.
    pub fn charge(&mut self, ran_ns: u64) {
        // SAFETY: see above.
        unsafe { bandwidth_charge(self, ran_ns) }
    }

    /// Returns whether the group may use more than `ns`.
    pub fn has(&self, ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { bandwidth_has(self, ns) != 0 }
    }
}
