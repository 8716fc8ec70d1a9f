//! `policy/capacity.h`: measures what each vCPU really delivers.

use std::cmp::Ordering;

/// One vCPU's record.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    off_ns: u64,
    idle_ns: u64,
    /// The share of the time in which the vCPU wants to run that it does run, in thousandths; 0:
    /// unknown.
    pub share_m: u32,
    /// How many vCPUs on the same pCPU come before this one.
    pub behind: u32,
}

// SAFETY: for every call below: the functions read and write only what their references point to,
// and the struct has the fields of the C struct in the same order.
unsafe extern "C" {
    fn capacity_look(capacity: *mut Capacity, off_ns: u64, idle_ns: u64, window_ns: u64);
    fn capacity_comes_first(
        a: *const Capacity,
        a_index: u32,
        b: *const Capacity,
        b_index: u32,
    ) -> i32;
}

impl Capacity {
    /// Notes that a window has passed. `off_ns` and `idle_ns` are sums since the start.
    pub fn look(&mut self, off_ns: u64, idle_ns: u64, window_ns: u64) {
        // SAFETY: see above.
        unsafe { capacity_look(self, off_ns, idle_ns, window_ns) }
    }

    /// Returns which of two vCPUs is used first, by their records and indices.
    pub fn order(&self, index: u32, other: &Capacity, other_index: u32) -> Ordering {
        // SAFETY: see above.
        let first = |a, i, b, j| unsafe { capacity_comes_first(a, i, b, j) != 0 };
        match (first(self, index, other, other_index), first(other, other_index, self, index)) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }
}
