//! One event of a record, to and from its bytes.

use std::fmt;

use super::EVENT_BYTES;

/// The byte that stands for "no pCPU".
const NO_PCPU: u8 = 255;
/// The 24 bits that stand for "no target".
const NO_TARGET: u32 = 0xff_ffff;
/// The names of exits' reasons.
const REASONS: [&str; 9] =
    ["hlt", "ipi", "timer", "cpuid", "msr", "mmio", "io", "pause", "hypercall"];
/// What a pause loop or a yield ended in, by the codes of `enum boost_reason` in
/// `policy/host/boost.h`: the host yielded, or what ruled out the candidate that came nearest.
const VERDICTS: [&str; 12] = [
    "unrecorded",
    "no-yield",
    "self",
    "halted",
    "not-ready",
    "not-preempted",
    "user-mode",
    "no-ipi",
    "not-critical",
    "spinning",
    "refused",
    "yielded",
];
/// The reason of a pause-loop exit.
pub(super) const PAUSE: u8 = 7;

/// What the guest says about the work it does (CPUID leaf 0x4fff0001).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A job begins.
    Begin,
    /// A job ended.
    End,
    /// All results are written; the guest powers off next.
    Done,
    /// A kind that this version has no name for.
    Other(u32),
}

impl Mark {
    /// The number that the guest passes in ECX.
    pub fn code(self) -> u32 {
        match self {
            Mark::Begin => 1,
            Mark::End => 2,
            Mark::Done => 3,
            Mark::Other(code) => code,
        }
    }

    fn of(code: u32) -> Mark {
        match code {
            1 => Mark::Begin,
            2 => Mark::End,
            3 => Mark::Done,
            other => Mark::Other(other),
        }
    }
}

/// What a guest waited for, as its answer to a reflected pause loop says.
const WAITS: [&str; 5] = ["unknown", "spinlock", "queue", "ipi", "sleeplock"];
/// What the host did at an answer.
const OUTCOMES: [&str; 4] = ["yielded", "running", "refused", "own-choice"];
/// The byte that stands for "names nobody".
const NO_NAME: u8 = 255;

/// A guest's answer to a reflected pause loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// What it waits for, by its code.
    pub wait: u8,
    /// What the host did, by its code.
    pub outcome: u8,
    /// The vCPU that it says has what it waits for.
    pub owner: Option<u8>,
    /// The vCPU that it says is before it in a queue.
    pub before: Option<u8>,
}

impl Answer {
    /// What it waits for.
    pub fn wait_name(self) -> &'static str {
        WAITS.get(usize::from(self.wait)).copied().unwrap_or("other")
    }

    /// Whether it waits for the owner of a spinlock, itself the first to get it.
    pub fn is_at_a_spinlock(self) -> bool {
        self.wait == 1
    }

    /// What the host did.
    pub fn outcome_name(self) -> &'static str {
        OUTCOMES.get(usize::from(self.outcome)).copied().unwrap_or("other")
    }

    fn of(arg: u32) -> Answer {
        let [wait, outcome, owner, before] = arg.to_le_bytes();
        let named = |vcpu: u8| (vcpu != NO_NAME).then_some(vcpu);
        Answer { wait, outcome, owner: named(owner), before: named(before) }
    }

    fn arg(self) -> u32 {
        let [owner, before] = [self.owner, self.before].map(|named| named.unwrap_or(NO_NAME));
        u32::from_le_bytes([self.wait, self.outcome, owner, before])
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The entity got a pCPU.
    On,
    /// It lost its pCPU and still wants to run.
    Off,
    /// It halted.
    Idle,
    /// It wants to run and has no pCPU yet.
    Wake,
    /// It left the guest and came back.
    Exit {
        /// Its reason, see [`reason_name`].
        reason: u8,
        /// What it was charged, nanoseconds.
        price_ns: u32,
    },
    /// A pause-loop exit.
    PauseLoop {
        /// The entity that the host chose to boost.
        target: Option<u32>,
        /// What it ended in, see [`verdict_name`].
        verdict: u8,
    },
    /// The guest marked its work.
    Mark(Mark),
    /// The injector took the event's pCPU (`true`) or gave it back (`false`).
    Steal(bool),
    /// The end of the run.
    End,
    /// Behind the end: how often a vCPU exited for a reason. The number is in the event's time.
    Count {
        /// The reason.
        reason: u8,
    },
    /// A vCPU is preempted in a critical section, as its guest says; [`Kind::Off`] follows.
    Critical,
    /// A pause loop went back to the guest, as an exception.
    Reflect,
    /// The guest's answer to one.
    Answer(Answer),
    /// The guest asked to give way to a vCPU: by KVM_HC_SCHED_YIELD, or because it kicked it.
    Yield {
        /// The entity that it named.
        target: u32,
        /// What it ended in, see [`verdict_name`].
        verdict: u8,
    },
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Virtual time, nanoseconds.
    pub t_ns: u64,
    /// What happened.
    pub kind: Kind,
    /// The pCPU it happened on, where it happened on one.
    pub pcpu: Option<u8>,
    /// The entity it happened to.
    pub entity: u16,
    /// Offset of its first byte in the file.
    pub offset: u64,
}

impl Event {
    /// Reads an event; the error says what is wrong with it.
    pub fn from_bytes(bytes: &[u8; EVENT_BYTES], offset: u64) -> Result<Event, String> {
        let [t0, t1, t2, t3, t4, t5, t6, t7, kind, pcpu, e0, e1, a0, a1, a2, a3] = *bytes;
        let kind = kind_of(kind, u32::from_le_bytes([a0, a1, a2, a3]))
            .ok_or_else(|| format!("{kind} is not a kind of event"))?;
        Ok(Event {
            t_ns: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            kind,
            pcpu: (pcpu != NO_PCPU).then_some(pcpu),
            entity: u16::from_le_bytes([e0, e1]),
            offset,
        })
    }

    /// The event as the file holds it.
    pub fn to_bytes(&self) -> [u8; EVENT_BYTES] {
        let (kind, arg) = code_of(self.kind);
        let mut bytes = [0; EVENT_BYTES];
        bytes[..8].copy_from_slice(&self.t_ns.to_le_bytes());
        bytes[8] = kind;
        bytes[9] = self.pcpu.unwrap_or(NO_PCPU);
        bytes[10..12].copy_from_slice(&self.entity.to_le_bytes());
        bytes[12..].copy_from_slice(&arg.to_le_bytes());
        bytes
    }
}

fn kind_of(code: u8, arg: u32) -> Option<Kind> {
    Some(match code {
        1 => Kind::On,
        2 => Kind::Off,
        3 => Kind::Idle,
        4 => Kind::Wake,
        5 => Kind::Exit { reason: arg as u8, price_ns: arg >> 8 },
        6 => {
            let target = arg & NO_TARGET;
            let verdict = (arg >> 24) as u8;
            Kind::PauseLoop { target: (target != NO_TARGET).then_some(target), verdict }
        }
        7 => Kind::Mark(Mark::of(arg)),
        8 => Kind::Steal(arg != 0),
        9 => Kind::End,
        10 => Kind::Count { reason: arg as u8 },
        11 => Kind::Critical,
        12 => Kind::Reflect,
        13 => Kind::Answer(Answer::of(arg)),
        14 => Kind::Yield { target: arg & NO_TARGET, verdict: (arg >> 24) as u8 },
        _ => return None,
    })
}

fn code_of(kind: Kind) -> (u8, u32) {
    match kind {
        Kind::On => (1, 0),
        Kind::Off => (2, 0),
        Kind::Idle => (3, 0),
        Kind::Wake => (4, 0),
        Kind::Exit { reason, price_ns } => (5, u32::from(reason) | price_ns << 8),
        Kind::PauseLoop { target, verdict } => {
            (6, target.unwrap_or(NO_TARGET) & NO_TARGET | u32::from(verdict) << 24)
        }
        Kind::Mark(mark) => (7, mark.code()),
        Kind::Steal(taken) => (8, u32::from(taken)),
        Kind::End => (9, 0),
        Kind::Count { reason } => (10, u32::from(reason)),
        Kind::Critical => (11, 0),
        Kind::Reflect => (12, 0),
        Kind::Answer(answer) => (13, answer.arg()),
        Kind::Yield { target, verdict } => (14, target & NO_TARGET | u32::from(verdict) << 24),
    }
}

/// Fixed columns: virtual ns, pCPU, entity, what.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pcpu = self.pcpu.map_or_else(|| "-".to_owned(), |pcpu| pcpu.to_string());
        write!(f, "{:>15} {pcpu:>4} {:>6} {}", self.t_ns, self.entity, self.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::On => f.write_str("on"),
            Kind::Off => f.write_str("off"),
            Kind::Idle => f.write_str("idle"),
            Kind::Wake => f.write_str("wake"),
            Kind::Exit { reason, price_ns } => {
                write!(f, "exit {} {price_ns} ns", reason_name(*reason))
            }
            Kind::PauseLoop { target: Some(target), verdict } => {
                write!(f, "pause-loop -> {target} {}", verdict_name(*verdict))
            }
            Kind::PauseLoop { target: None, verdict } => {
                write!(f, "pause-loop {}", verdict_name(*verdict))
            }
            Kind::Mark(mark) => write!(f, "mark {}", mark.code()),
            Kind::Steal(true) => f.write_str("steal taken"),
            Kind::Steal(false) => f.write_str("steal given"),
            Kind::End => f.write_str("end"),
            Kind::Count { reason } => write!(f, "exits {}", reason_name(*reason)),
            Kind::Critical => f.write_str("critical"),
            Kind::Reflect => f.write_str("reflect"),
            Kind::Answer(answer) => {
                write!(f, "answer {} {}", answer.wait_name(), answer.outcome_name())
            }
            Kind::Yield { target, verdict } => {
                write!(f, "yield -> {target} {}", verdict_name(*verdict))
            }
        }
    }
}

/// The name of what a pause loop or a yield ended in; a number where this version has none.
pub fn verdict_name(verdict: u8) -> String {
    name_of(&VERDICTS, verdict)
}

/// The name of an exit's reason. The names are those that the lab uses for KVM's own
/// counters, so that figures of both kinds compare.
pub fn reason_name(reason: u8) -> String {
    name_of(&REASONS, reason)
}

fn name_of(names: &[&str], code: u8) -> String {
    names.get(usize::from(code)).map_or_else(|| code.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_its_bytes() {
        let kinds = [
            Kind::On,
            Kind::Off,
            Kind::Idle,
            Kind::Wake,
            Kind::Exit { reason: 7, price_ns: 0xab_cdef },
            Kind::PauseLoop { target: Some(3), verdict: 2 },
            Kind::PauseLoop { target: None, verdict: 255 },
            Kind::Mark(Mark::Begin),
            Kind::Mark(Mark::Other(77)),
            Kind::Steal(true),
            Kind::End,
            Kind::Count { reason: 8 },
            Kind::Critical,
            Kind::Reflect,
            Kind::Answer(Answer { wait: 2, outcome: 1, owner: Some(3), before: None }),
            Kind::Yield { target: 3, verdict: 4 },
        ];
        for kind in kinds {
            let event = Event { t_ns: u64::MAX - 1, kind, pcpu: Some(3), entity: 515, offset: 32 };
            assert_eq!(Event::from_bytes(&event.to_bytes(), 32), Ok(event));
        }
        let nowhere = Event { t_ns: 1, kind: Kind::Wake, pcpu: None, entity: 0, offset: 0 };
        assert_eq!(Event::from_bytes(&nowhere.to_bytes(), 0).unwrap().pcpu, None);
    }
}
