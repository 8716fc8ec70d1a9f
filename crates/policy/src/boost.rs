//! `policy/host/boost.h`: chooses the vCPU that a vCPU in a pause loop yields to.

/// The rules that choose a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the years")]
#[repr(u32)]
pub enum Policy {
    Off,
    Y2009,
    Y2011,
    Y2012,
    Y2013,
    Y2017,
    Y2019,
    Mainline,
    Strict,
    Ecs,
}

/// Why a candidate is not chosen, in the order in which candidates are ruled out; `Yes`: it is
/// chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the header explains the reasons")]
#[repr(u32)]
pub enum Reason {
    NoYield = 1,
    Itself,
    Halted,
    NotReady,
    NotPreempted,
    UserMode,
    NoIpi,
    NotCritical,
    Spinning,
    Refused,
    Yes,
}

/// The facts about a vCPU; the header explains the fields.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the header explains the fields")]
pub struct Facts {
    pub vcpu: u32,
    pub ready: u32,
    pub preempted: u32,
    pub in_kernel: u32,
    pub critical: u32,
    pub halted: u32,
    pub pending: u32,
    pub posted: u32,
    pub spinning: u32,
    pub dy_eligible: u32,
    pub ipi_from: [u64; 4],
}

// SAFETY: for every call below: the functions read and write only what their references point to,
// and the struct has the fields of the C struct in the same order.
unsafe extern "C" {
    safe static boost_facts_size: u64;
    fn boost_verdict(me: *const Facts, candidate: *const Facts, policy: u32) -> Reason;
    fn boost_dy_after(candidate: *const Facts, verdict: Reason) -> u32;
    fn boost_ipi_sent(to: *mut Facts, from: u32);
    fn boost_entered(facts: *mut Facts);
    safe fn boost_look(policy: u32, n: u32) -> u32;
    safe fn boost_order(policy: u32, last_boosted: u32, n: u32, i: u32) -> u32;
    safe fn boost_sleep_ns(policy: u32) -> u64;
    safe fn boost_attempts(policy: u32) -> u32;
}

impl Facts {
    /// The size of the C struct.
    pub fn size() -> usize {
        boost_facts_size as usize
    }

    /// Returns whether this spinner yields to the candidate, and if not, why.
    pub fn verdict(&self, candidate: &Facts, policy: Policy) -> Reason {
        // SAFETY: see above; the C enum's values are those of `Reason`.
        unsafe { boost_verdict(self, candidate, policy as u32) }
    }

    /// Updates this candidate after a verdict, if it spins itself.
    pub fn judged(&mut self, verdict: Reason) {
        // SAFETY: see above.
        self.dy_eligible = unsafe { boost_dy_after(self, verdict) };
    }

    /// Notes that the vCPU `from` sends this one an interrupt.
    pub fn ipi_sent(&mut self, from: u32) {
        // SAFETY: see above.
        unsafe { boost_ipi_sent(self, from) }
    }

    /// Notes that the vCPU enters the guest.
    pub fn entered(&mut self) {
        // SAFETY: see above.
        unsafe { boost_entered(self) }
    }
}

impl Policy {
    /// Returns the rules of the policy's n-th look at all candidates; `None`: it does not look
    /// again.
    pub fn look(self, n: u32) -> Option<Policy> {
        let rules = boost_look(self as u32, n);
        [self, Policy::Mainline].into_iter().find(|policy| *policy as u32 == rules)
    }

    /// Returns the i-th candidate among n vCPUs; `None`: the policy has none.
    pub fn order(self, last_boosted: u32, n: u32, i: u32) -> Option<u32> {
        let candidate = boost_order(self as u32, last_boosted, n, i);
        (candidate != u32::MAX).then_some(candidate)
    }

    /// Returns how long the spinner sleeps instead of yielding; 0: it does not sleep.
    pub fn sleep_ns(self) -> u64 {
        boost_sleep_ns(self as u32)
    }

    /// Returns the number of useless yields after which the spinner gives up; `None`: it never
    /// does.
    pub fn attempts(self) -> Option<u32> {
        let attempts = boost_attempts(self as u32);
        (attempts != u32::MAX).then_some(attempts)
    }
}
