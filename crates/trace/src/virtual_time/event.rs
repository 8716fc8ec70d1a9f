//! One event of a record, and its encoding.

use std::fmt;

use super::EVENT_BYTES;

/// The byte that encodes "no pCPU".
const NO_PCPU: u8 = 255;
/// The 24 bits that encode "no target".
const NO_TARGET: u32 = 0xff_ffff;
/// Names of the reasons of exits, by code.
const REASONS: [&str; 9] =
    ["hlt", "ipi", "timer", "cpuid", "msr", "mmio", "io", "pause", "hypercall"];
/// Outcomes of a pause loop or a yield, by the codes of `enum boost_reason` in
/// `policy/host/boost.h`. Either the host yielded, or the outcome is what ruled out the candidate
/// that came nearest.
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
/// Code of a pause-loop exit's reason.
pub(super) const PAUSE: u8 = 7;

/// A guest's mark for the stage of its work (CPUID leaf 0x4fff0001).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A job begins.
    Begin,
    /// A job ended.
    End,
    /// All results are written; the guest powers off next.
    Done,
    /// A mark that this version does not know, with its code.
    Other(u32),
}

impl Mark {
    /// Returns the number that the guest passes in ECX.
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

/// Names of what a guest waits for, in its answer to a reflected pause loop.
const WAITS: [&str; 5] = ["unknown", "spinlock", "queue", "ipi", "sleeplock"];
/// Names of the host's reactions to an answer.
const OUTCOMES: [&str; 4] = ["yielded", "running", "refused", "own-choice"];
/// The byte that encodes "no vCPU".
const NO_NAME: u8 = 255;

/// A guest's answer to a reflected pause loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// Code of what the guest waits for.
    pub wait: u8,
    /// Code of the host's reaction.
    pub outcome: u8,
    /// The vCPU that, according to the guest, owns what it waits for.
    pub owner: Option<u8>,
    /// The vCPU that, according to the guest, precedes it in a queue.
    pub before: Option<u8>,
}

impl Answer {
    /// Returns the name of what the guest waits for.
    pub fn wait_name(self) -> &'static str {
        WAITS.get(usize::from(self.wait)).copied().unwrap_or("other")
    }

    /// Returns whether the guest waits for the owner of a spinlock and is the first in line.
    pub fn is_at_a_spinlock(self) -> bool {
        self.wait == 1
    }

    /// Returns the name of the host's reaction.
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

/// Kind of an event, with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The entity got a pCPU.
    On,
    /// The entity lost its pCPU and still wants to run.
    Off,
    /// The entity halted.
    Idle,
    /// The entity wants to run and has no pCPU yet.
    Wake,
    /// The entity left the guest and came back.
    Exit {
        /// Code of the reason, see [`reason_name`].
        reason: u8,
        /// Virtual nanoseconds that the host charged for the exit.
        price_ns: u32,
    },
    /// The entity had a pause-loop exit.
    PauseLoop {
        /// The entity that the host chose to boost.
        target: Option<u32>,
        /// Code of the outcome, see [`verdict_name`].
        verdict: u8,
    },
    /// The guest set a mark.
    Mark(Mark),
    /// The injector took the event's pCPU (`true`) or gave it back (`false`).
    Steal(bool),
    /// The run ended.
    End,
    /// A vCPU's number of exits for a reason, after [`Kind::End`]. [`Event::t_ns`] holds the
    /// number.
    Count {
        /// Code of the reason.
        reason: u8,
    },
    /// The host is about to preempt a vCPU in a critical section, as its guest reports;
    /// [`Kind::Off`] follows.
    Critical,
    /// The host returned a pause loop to the guest, as an exception.
    Reflect,
    /// The guest answered a reflected pause loop.
    Answer(Answer),
    /// The guest asked the host to yield to a vCPU: by KVM_HC_SCHED_YIELD, or because it kicked
    /// that vCPU.
    Yield {
        /// The entity that the guest named.
        target: u32,
        /// Code of the outcome, see [`verdict_name`].
        verdict: u8,
    },
}

/// One event of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Virtual time in nanoseconds.
    pub t_ns: u64,
    /// Kind of the event.
    pub kind: Kind,
    /// The pCPU of the event, if it has one.
    pub pcpu: Option<u8>,
    /// The entity of the event.
    pub entity: u16,
    /// Offset of the event's first byte in the file.
    pub offset: u64,
}

impl Event {
    /// Decodes an event; the error describes what is invalid.
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

    /// Encodes the event as in the file.
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

/// Prints fixed columns: virtual nanoseconds, pCPU, entity, kind.
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

/// Returns the name of the outcome of a pause loop or a yield, or its code if this version has no
/// name.
pub fn verdict_name(verdict: u8) -> String {
    name_of(&VERDICTS, verdict)
}

/// Returns the name of an exit's reason, or its code if this version has no name. The lab uses the
/// same names for KVM's own counters, so figures of both kinds compare.
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
