//! `policy/host/vnae.h`: reflects pause loops into a guest and judges the guest's answers.

/// The parts of an answer that the host uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the arms")]
#[repr(u32)]
pub enum Arm {
    Off,
    None,
    Cpl,
    Vcpu,
    Both,
    Sham,
    Force,
}

/// The state of a named vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the states")]
#[repr(u32)]
pub enum State {
    Nobody,
    Invalid,
    Ready,
    Running,
    Halted,
}

/// The host's reaction to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the outcomes")]
#[repr(u32)]
pub enum Outcome {
    Yielded,
    TargetRunning,
    Refused,
    OwnChoice,
}

/// A vCPU's state of the agreement.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Vnae {
    pub granted: u32,
    pub outstanding: u32,
}

/// The guest's answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Answer {
    pub valid: u32,
    pub kind: u32,
    pub user: u32,
    pub name: [u32; 2],
}

/// The host's decision.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Verdict {
    pub outcome: Outcome,
    pub name: u32,
    pub in_kernel: u32,
}

// SAFETY: for every call below: the functions read and write only what their references point to,
// and each struct has the fields of its C struct in the same order.
unsafe extern "C" {
    fn vnae_reset(v: *mut Vnae);
    fn vnae_config(v: *mut Vnae, info_1: u64, wanted: u64) -> u64;
    fn vnae_reflects(v: *mut Vnae, arm: u32) -> u32;
    fn vnae_vmgexit(v: *mut Vnae) -> u32;
    safe fn vnae_parse(info_1: u64, info_2: u64, cpl: u32) -> Answer;
    safe fn vnae_sham(random: u64, n: u32) -> u32;
    fn vnae_decide(arm: u32, outstanding: u32, a: *const Answer, state: *const u32) -> Verdict;
}

impl Vnae {
    /// Resets the vCPU, which ends the agreement.
    pub fn reset(&mut self) {
        // SAFETY: see above.
        unsafe { vnae_reset(self) }
    }

    /// Handles CONFIG. Returns the granted set, or `None` if the request makes no sense.
    pub fn config(&mut self, info_1: u64, wanted: u64) -> Option<u64> {
        // SAFETY: see above.
        let granted = unsafe { vnae_config(self, info_1, wanted) };
        (granted != u64::MAX).then_some(granted)
    }

    /// Returns whether the host reflects a pause loop, and notes the reflection.
    pub fn reflects(&mut self, arm: Arm) -> bool {
        // SAFETY: see above.
        unsafe { vnae_reflects(self, arm as u32) != 0 }
    }

    /// Handles a VMGEXIT. Returns whether a reflection was outstanding.
    pub fn vmgexit(&mut self) -> bool {
        // SAFETY: see above.
        unsafe { vnae_vmgexit(self) != 0 }
    }
}

impl Answer {
    /// Parses an answer from its two words and the GHCB's privilege level.
    pub fn parse(info_1: u64, info_2: u64, cpl: u32) -> Answer {
        vnae_parse(info_1, info_2, cpl)
    }

    /// Decides what the host does if the named vCPUs are in these states.
    pub fn decide(&self, arm: Arm, outstanding: bool, states: [State; 2]) -> Verdict {
        let states = states.map(|state| state as u32);
        // SAFETY: see above; the C enum's values are those of `Outcome`.
        unsafe { vnae_decide(arm as u32, u32::from(outstanding), self, states.as_ptr()) }
    }
}

/// Draws one of the `n` vCPUs that wait for a pCPU; `None` if `n` is 0.
pub fn sham(random: u64, n: u32) -> Option<u32> {
    let drawn = vnae_sham(random, n);
    (drawn != u32::MAX).then_some(drawn)
}
