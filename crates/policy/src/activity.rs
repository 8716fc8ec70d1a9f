//! `policy/activity.h`: what a vCPU does, by its signs of life.

/// What a vCPU does.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs on a pCPU.
    On,
    /// It wants to run and does not.
    Off,
    /// It halts.
    Idle,
}

/// How late is too late.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A timer that is served later than this was due while its vCPU was off.
    pub timer_ns: u64,
    /// A wake-up that is answered later than this found a vCPU that was off.
    pub wake_ns: u64,
}

/// One vCPU's record.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// The last sign of life.
    pub alive_ns: u64,
    /// When its next timer expires; 0 where none is known.
    pub due_ns: u64,
    /// Idle: when the first wake-up since was sent to it; 0: none was.
    pub woken_ns: u64,
    /// Since when it has been on, as far as is known.
    pub run_ns: u64,
    /// Mean length of a run that an off interval ended; 0 where there was none.
    pub run_mean_ns: u64,
    /// Mean length of an off interval; 0 where there was none.
    pub off_mean_ns: u64,
    /// When its last off interval ended; before there was one, when it was first seen.
    pub stirred_ns: u64,
    /// 1 while it is idle.
    pub idle: u32,
    /// Fills the record up.
    pub unused: u32,
}

/// An off interval.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Off {
    /// It began not before.
    pub earliest_ns: u64,
    /// It began not after.
    pub latest_ns: u64,
    /// It ended.
    pub end_ns: u64,
}

// SAFETY: of every call below: the functions read and write nothing but what they
// are given by reference, and each struct has the C one's fields in its order.
unsafe extern "C" {
    fn activity_off_ns(off: *const Off) -> u64;
    fn activity_off_within_ns(off: *const Off, from_ns: u64, to_ns: u64) -> u64;
    fn activity_is_early(a: *mut Activity, limits: *const Limits, now_ns: u64) -> u32;
    fn activity_alive(a: *mut Activity, limits: *const Limits, now_ns: u64, due_ns: u64) -> Off;
    fn activity_set_timer(a: *mut Activity, due_ns: u64);
    fn activity_postpone(a: *mut Activity, now_ns: u64, due_ns: u64);
    fn activity_idle(a: *mut Activity, now_ns: u64, due_ns: u64);
    fn activity_wake(a: *mut Activity, now_ns: u64);
    fn activity_resume(a: *mut Activity, limits: *const Limits, now_ns: u64, due_ns: u64) -> Off;
    fn activity_look(a: *const Activity, limits: *const Limits, now_ns: u64) -> State;
    fn activity_beat_ns(a: *const Activity, beat_ns: u64, alone: u32, now_ns: u64) -> u64;
    fn activity_left_ns(a: *const Activity, now_ns: u64) -> u64;
}

impl Off {
    /// Its length, from the middle of its bounds.
    pub fn length_ns(&self) -> u64 {
        // SAFETY: see above.
        unsafe { activity_off_ns(self) }
    }

    /// How much of it lies between two instants, nanoseconds.
    pub fn within_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        // SAFETY: see above.
        unsafe { activity_off_within_ns(self, from_ns, to_ns) }
    }

    fn found(self) -> Option<Off> {
        (self.end_ns != 0).then_some(self)
    }
}

impl Activity {
    /// A sign of life; the off interval that lies behind it, if one does.
    pub fn alive(&mut self, limits: &Limits, now_ns: u64, due_ns: u64) -> Option<Off> {
        // SAFETY: see above.
        unsafe { activity_alive(self, limits, now_ns, due_ns) }.found()
    }

    /// A sign of life soon after the last one; `false`, and nothing noted, where there may be
    /// more to tell.
    pub fn is_early(&mut self, limits: &Limits, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { activity_is_early(self, limits, now_ns) != 0 }
    }

    /// Its next timer is another one.
    pub fn set_timer(&mut self, due_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_set_timer(self, due_ns) }
    }

    /// It is on after something that may have held its interrupts back.
    pub fn postpone(&mut self, now_ns: u64, due_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_postpone(self, now_ns, due_ns) }
    }

    /// The vCPU halts.
    pub fn idle(&mut self, now_ns: u64, due_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_idle(self, now_ns, due_ns) }
    }

    /// Another vCPU wakes it.
    pub fn wake(&mut self, now_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_wake(self, now_ns) }
    }

    /// It is no longer idle; the off interval since the wake-up, if it is one.
    pub fn resume(&mut self, limits: &Limits, now_ns: u64, due_ns: u64) -> Option<Off> {
        // SAFETY: see above.
        unsafe { activity_resume(self, limits, now_ns, due_ns) }.found()
    }

    /// What it does now, as another vCPU sees it.
    pub fn look(&self, limits: &Limits, now_ns: u64) -> State {
        // SAFETY: see above; the C enum's values are those of `State`.
        unsafe { activity_look(self, limits, now_ns) }
    }

    /// How long to wait for the next heartbeat, where `beat_ns` is the shortest time and no other
    /// timer shows anything if they are `alone`; `None`: none is needed.
    pub fn beat_ns(&self, beat_ns: u64, alone: bool, now_ns: u64) -> Option<u64> {
        // SAFETY: see above.
        let wait_ns = unsafe { activity_beat_ns(self, beat_ns, u32::from(alone), now_ns) };
        (wait_ns != 0).then_some(wait_ns)
    }

    /// How long this run will probably last; `None` where nothing is known.
    pub fn left_ns(&self, now_ns: u64) -> Option<u64> {
        // SAFETY: see above.
        let left = unsafe { activity_left_ns(self, now_ns) };
        (left != u64::MAX).then_some(left)
    }
}
