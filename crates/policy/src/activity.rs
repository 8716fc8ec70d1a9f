//! `policy/activity.h`: infers what a vCPU does from its signs of life.

/// What a vCPU does.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The vCPU runs on a pCPU.
    On,
    /// The vCPU wants to run and does not.
    Off,
    /// The vCPU halts.
    Idle,
}

/// The lateness from which the policy infers that a vCPU was off.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A timer that is served later than this expired while its vCPU was off.
    pub timer_ns: u64,
    /// A wake-up that is answered later than this arrived while the vCPU was off.
    pub wake_ns: u64,
}

/// One vCPU's record.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Activity {
    /// The time of the last sign of life.
    pub alive_ns: u64,
    /// When its next timer expires; 0: unknown.
    pub due_ns: u64,
    /// While idle: when another vCPU sent the first wake-up; 0: none was sent.
    pub woken_ns: u64,
    /// The start of the current run, as far as is known.
    pub run_ns: u64,
    /// The mean length of the runs that an off interval ended; 0: none was seen yet.
    pub run_mean_ns: u64,
    /// The mean length of the off intervals; 0: none was seen yet.
    pub off_mean_ns: u64,
    /// When its last off interval ended; before the first one, when the vCPU was first seen.
    pub stirred_ns: u64,
    /// 1 while the vCPU is idle.
    pub idle: u32,
    /// Padding.
    pub unused: u32,
}

/// An off interval.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Off {
    /// The earliest time at which it can have begun.
    pub earliest_ns: u64,
    /// The latest time at which it can have begun.
    pub latest_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

// SAFETY: for every call below: the functions read and write only what their references point to,
// and each struct has the fields of its C struct in the same order.
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
    /// Returns the interval's length, measured from the middle of its bounds.
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
    /// Notes a sign of life. Returns the off interval that ended with it, if there is one.
    pub fn alive(&mut self, limits: &Limits, now_ns: u64, due_ns: u64) -> Option<Off> {
        // SAFETY: see above.
        unsafe { activity_alive(self, limits, now_ns, due_ns) }.found()
    }

    /// Notes a sign of life soon after the last one. Returns `false`, and notes nothing, if the
    /// sign may end an off interval.
    pub fn is_early(&mut self, limits: &Limits, now_ns: u64) -> bool {
        // SAFETY: see above.
        unsafe { activity_is_early(self, limits, now_ns) != 0 }
    }

    /// Notes that the vCPU has programmed another timer since its last sign of life.
    pub fn set_timer(&mut self, due_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_set_timer(self, due_ns) }
    }

    /// Notes that the vCPU is on after an activity that may have held back its interrupts.
    pub fn postpone(&mut self, now_ns: u64, due_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_postpone(self, now_ns, due_ns) }
    }

    /// Notes that the vCPU halts.
    pub fn idle(&mut self, now_ns: u64, due_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_idle(self, now_ns, due_ns) }
    }

    /// Notes that another vCPU sends this one a wake-up.
    pub fn wake(&mut self, now_ns: u64) {
        // SAFETY: see above.
        unsafe { activity_wake(self, now_ns) }
    }

    /// Notes that the vCPU leaves idle. Returns the off interval since the wake-up if the answer
    /// came too late.
    pub fn resume(&mut self, limits: &Limits, now_ns: u64, due_ns: u64) -> Option<Off> {
        // SAFETY: see above.
        unsafe { activity_resume(self, limits, now_ns, due_ns) }.found()
    }

    /// Returns what the vCPU does now, as another vCPU sees it.
    pub fn look(&self, limits: &Limits, now_ns: u64) -> State {
        // SAFETY: see above; the C enum's values are those of `State`.
        unsafe { activity_look(self, limits, now_ns) }
    }

    /// Returns how long to wait before the next heartbeat; `None`: none is needed. `beat_ns` is the
    /// shortest interval; `alone` says that no other timer can show that the vCPU was off.
    pub fn beat_ns(&self, beat_ns: u64, alone: bool, now_ns: u64) -> Option<u64> {
        // SAFETY: see above.
        let wait_ns = unsafe { activity_beat_ns(self, beat_ns, u32::from(alone), now_ns) };
        (wait_ns != 0).then_some(wait_ns)
    }

    /// Returns how long this run will probably still last; `None`: unknown.
    pub fn left_ns(&self, now_ns: u64) -> Option<u64> {
        // SAFETY: see above.
        let left = unsafe { activity_left_ns(self, now_ns) };
        (left != u64::MAX).then_some(left)
    }
}
