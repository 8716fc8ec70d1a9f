//! `policy/place.h`: where a task waits, and whose task runs next.

/// A vCPU as a place to run.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// What it does now, an [`activity::State`](crate::activity::State) as a number.
    pub state: u32,
    /// Tasks that wait for it.
    pub waiting: u32,
    /// How long its run will probably last from now on.
    pub left_ns: u64,
    /// The mean length of its off intervals.
    pub off_ns: u64,
    /// How long it has taken to answer a wake-up, on average.
    pub wake_ns: u64,
}

/// A queue as other vCPUs see it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queue {
    /// The virtual time of its first task.
    pub first_vtime: u64,
    /// When its vCPU asked for a task last.
    pub served_ns: u64,
    /// 1: its vCPU is to be used, and is not off.
    pub serves: u32,
}

// SAFETY: of every call below: the functions read nothing but what they are given by
// reference, and each struct has the C one's fields in its order.
unsafe extern "C" {
    fn place_wait_ns(place: *const Place, slice_ns: u64) -> u64;
    fn place_is_better(other_wait_ns: u64, wait_ns: u64) -> i32;
    fn place_takes(own_vtime: u64, other: *const Queue, now_ns: u64, slice_ns: u64) -> i32;
}

impl Place {
    /// How long a task that is put there will probably wait.
    pub fn wait_ns(&self, slice_ns: u64) -> u64 {
        // SAFETY: see above.
        unsafe { place_wait_ns(self, slice_ns) }
    }

    /// Whether this place is so much better that the other one is left for it.
    pub fn is_better_than(&self, other: &Place, slice_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { place_is_better(self.wait_ns(slice_ns), other.wait_ns(slice_ns)) != 0 }
    }
}

impl Queue {
    /// Whether a vCPU whose own first task has that virtual time takes from here first.
    pub fn comes_before(&self, own_vtime: u64, now_ns: u64, slice_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { place_takes(own_vtime, self, now_ns, slice_ns) != 0 }
    }
}
