//! `policy/share.h`: computes what a task's weight is worth if its group has a weight.

/// As a share: everything. As a factor: one, which leaves a weight unchanged.
pub const ONE: u64 = 1 << 20;

// SAFETY: for every call below: the functions use only their arguments.
unsafe extern "C" {
    fn share_of(parents: u64, weight: u64, beside: u64) -> u64;
    fn share_factor(share: u64, ready_in_group: u64, ready_in_all: u64) -> u64;
    fn share_charge_ns(ran_ns: u64, weight: u64, factor: u64) -> u64;
}

/// Returns the share of a group. `parents` is its parent's share; `beside` is the sum of all
/// weights that are ready in the parent, including the group's own.
pub fn of(parents: u64, weight: u64, beside: u64) -> u64 {
    // SAFETY: see above.
    unsafe { share_of(parents, weight, beside) }
}

/// Returns the factor for a group's tasks, from its share and the weights of what is ready in the
/// group and of all ready tasks.
pub fn factor(share: u64, ready_in_group: u64, ready_in_all: u64) -> u64 {
    // SAFETY: see above.
    unsafe { share_factor(share, ready_in_group, ready_in_all) }
}

/// Returns the virtual time that a task is charged for `ran_ns`, in nanoseconds.
pub fn charge_ns(ran_ns: u64, weight: u64, factor: u64) -> u64 {
    // SAFETY: see above.
    unsafe { share_charge_ns(ran_ns, weight, factor) }
}
