//! `policy/place.h`: decides where a task waits, and whose task runs next.

/// A vCPU as a place to run.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// What the vCPU does now: an [`activity::State`](crate::activity::State) as a number.
    pub state: u32,
    /// The number of tasks that wait for it.
    pub waiting: u32,
    /// How long its run will probably still last.
    pub left_ns: u64,
    /// The mean length of its off intervals.
    pub off_ns: u64,
    /// How long it takes to answer a wake-up, on average.
    pub wake_ns: u64,
}

/// A queue as other vCPUs see it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// The approximate virtual time of its first task.
    pub first_vtime: u64,
    /// When its vCPU last asked for a task.
    pub served_ns: u64,
    /// 1 if tasks may use its vCPU and the vCPU is not off.
    pub serves: u32,
}

// SAFETY: for every call below: the functions read only what their references point to, and each
// struct has the fields of its C struct in the same order.
unsafe extern "C" {
    fn place_wait_ns(place: *const Place, slice_ns: u64) -> u64;
    fn place_is_better(other_wait_ns: u64, wait_ns: u64) -> i32;
    fn place_takes(own_vtime: u64, other: *const Queue, now_ns: u64, slice_ns: u64) -> i32;
}

impl Place {
    /// Returns how long a task that is queued here will probably wait.
    pub fn wait_ns(&self, slice_ns: u64) -> u64 {
        // SAFETY: see above.
        unsafe { place_wait_ns(self, slice_ns) }
    }

    /// Returns whether this place is so much better that a task should leave the other one.
    pub fn is_better_than(&self, other: &Place, slice_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { place_is_better(self.wait_ns(slice_ns), other.wait_ns(slice_ns)) != 0 }
    }
}

impl Queue {
    /// Returns whether a vCPU whose own first task has the virtual time `own_vtime` takes from this
    /// queue first.
    pub fn comes_before(&self, own_vtime: u64, now_ns: u64, slice_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { place_takes(own_vtime, self, now_ns, slice_ns) != 0 }
    }
}
