//! `policy/host/vnae.h`: pause loops that a host reflects into a guest, and the guest's answers.

/// What the host uses of an answer.
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

/// What a named vCPU does.
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

/// What the host does at an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the outcomes")]
#[repr(u32)]
pub enum Outcome {
    Yielded,
    TargetRunning,
    Refused,
    OwnChoice,
}

/// A vCPU's part of the agreement.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Vnae {
    pub granted: u32,
    pub outstanding: u32,
}

/// What the guest says.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Answer {
    pub valid: u32,
    pub kind: u32,
    pub user: u32,
    pub name: [u32; 2],
}

/// What the host does.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Verdict {
    pub outcome: Outcome,
    pub name: u32,
    pub in_kernel: u32,
}

// SAFETY: of every call below: the functions read and write only what their references point
// to, and the structs have the C ones' fields in their order.
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
    /// The vCPU is reset.
    pub fn reset(&mut self) {
        // SAFETY: see above.
        unsafe { vnae_reset(self) }
    }

    /// CONFIG: the granted set, or `None` where the request makes no sense.
    pub fn config(&mut self, info_1: u64, wanted: u64) -> Option<u64> {
        // SAFETY: see above.
        let granted = unsafe { vnae_config(self, info_1, wanted) };
        (granted != u64::MAX).then_some(granted)
    }

    /// Whether a pause loop is reflected.
    pub fn reflects(&mut self, arm: Arm) -> bool {
        // SAFETY: see above.
        unsafe { vnae_reflects(self, arm as u32) != 0 }
    }

    /// A VMGEXIT: whether a reflection was outstanding.
    pub fn vmgexit(&mut self) -> bool {
        // SAFETY: see above.
        unsafe { vnae_vmgexit(self) != 0 }
    }
}

impl Answer {
    /// An answer's two words, and the GHCB's privilege level.
    pub fn parse(info_1: u64, info_2: u64, cpl: u32) -> Answer {
        vnae_parse(info_1, info_2, cpl)
    }

    /// What the host does, where the named vCPUs are in these states.
    pub fn decide(&self, arm: Arm, outstanding: bool, states: [State; 2]) -> Verdict {
        let states = states.map(|state| state as u32);
        // SAFETY: see above; the C enum's values are those of `Outcome`.
        unsafe { vnae_decide(arm as u32, u32::from(outstanding), self, states.as_ptr()) }
    }
}

/// Which of the `n` vCPUs that wait for a pCPU is drawn by lot.
pub fn sham(random: u64, n: u32) -> Option<u32> {
    let drawn = vnae_sham(random, n);
    (drawn != u32::MAX).then_some(drawn)
}
