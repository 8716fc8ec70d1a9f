//! `policy/share.h`: what a task's weight is worth where its group has a weight.

/// Of shares and factors: all, and as it is.
pub const ONE: u64 = 1 << 20;

// SAFETY: of every call below: the functions work on nothing but their arguments.
unsafe extern "C" {
    fn share_of(parents: u64, weight: u64, beside: u64) -> u64;
    fn share_factor(share: u64, ready_in_group: u64, ready_in_all: u64) -> u64;
    fn share_charge_ns(ran_ns: u64, weight: u64, factor: u64) -> u64;
}

/// The share of a group by its parent's share, its weight, and the weights of all that is
/// ready in the parent.
pub fn of(parents: u64, weight: u64, beside: u64) -> u64 {
    // SAFETY: see above.
    unsafe { share_of(parents, weight, beside) }
}

/// The factor of a group's tasks by its share and the weights of what is ready in it, and of
/// all tasks that are.
pub fn factor(share: u64, ready_in_group: u64, ready_in_all: u64) -> u64 {
    // SAFETY: see above.
    unsafe { share_factor(share, ready_in_group, ready_in_all) }
}

/// What a task is charged for a time, in nanoseconds.
pub fn charge_ns(ran_ns: u64, weight: u64, factor: u64) -> u64 {
    // SAFETY: see above.
    unsafe { share_charge_ns(ran_ns, weight, factor) }
}
