//! Decoding of a record. The input is not trusted. Everything that is wrong with it is an error
//! with an offset, and the memory used depends on the input's size instead of on the claims of its
//! header.

use std::io::{ErrorKind, Read};

use super::event::PAUSE;
use super::{
    EVENT_BYTES, Event, HEADER_BYTES, Kind, MAGIC, MAX_KEPT, Mark, Record, STORM_MIN, VERSION,
};
use crate::TraceError;

/// Maximum number of pCPUs: their numbers are one byte, and 255 encodes "no pCPU".
const PCPUS_MAX: u32 = 255;
/// Maximum number of entities: their numbers are two bytes.
const ENTITIES_MAX: u32 = u16::MAX as u32;

/// Reads a record from `input`; error messages contain `name`.
///
/// # Errors
/// Returns [`TraceError::Bytes`] with the offset of what does not follow the format: another magic
/// or version, a count out of range, an unknown kind, a pCPU or an entity that the header does not
/// announce, time that goes back for an entity, bytes after the end, or no end.
pub fn read_from(mut input: impl Read, name: &str) -> Result<Record, TraceError> {
    let place = Place { name };
    let mut header = [0; HEADER_BYTES];
    if fill(&mut input, &mut header, &place, 0)? < HEADER_BYTES {
        return Err(place.bad(0, "shorter than a header: QEMU did not start its record"));
    }
    let mut record = parse_header(&header).map_err(|(offset, what)| place.bad(offset, what))?;
    let mut latest_ns = vec![0; record.entities as usize];
    let mut storms = Storms { in_a_row: vec![0; record.vcpus as usize] };
    let mut offset = HEADER_BYTES as u64;
    let mut bytes = [0; EVENT_BYTES];
    let (mut in_job, mut ended) = (false, false);
    loop {
        match fill(&mut input, &mut bytes, &place, offset)? {
            0 if ended => return Ok(record),
            0 => return Err(place.bad(offset, "no end event: QEMU was stopped before its end")),
            EVENT_BYTES => {}
            read => return Err(place.bad(offset, format!("{read} bytes of an event of 16"))),
        }
        let event = Event::from_bytes(&bytes, offset)
            .and_then(|event| announced(&record, event))
            .map_err(|what| place.bad(offset, what))?;
        let counts = matches!(event.kind, Kind::Count { .. });
        if ended != counts {
            let what = if ended { "an event after the end" } else { "a count before the end" };
            return Err(place.bad(offset, what));
        }
        ended |= event.kind == Kind::End;
        in_order(&mut latest_ns, &event).map_err(|what| place.bad(offset, what))?;
        match event.kind {
            Kind::Mark(Mark::Begin) => in_job = true,
            Kind::Mark(_) => in_job = false,
            _ => {}
        }
        record.job_storm_exits += storms.exits_of(&event, in_job);
        keep(&mut record, event, in_job).map_err(|what| place.bad(offset, what))?;
        offset += EVENT_BYTES as u64;
    }
}

fn parse_header(bytes: &[u8; HEADER_BYTES]) -> Result<Record, (u64, String)> {
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if bytes[..8] != MAGIC {
        return Err((0, "not a record of virtual time".into()));
    }
    let (version, pcpus, vcpus, entities) = (word(8), word(12), word(16), word(20));
    if version != VERSION {
        return Err((8, format!("version {version}; this unspin reads version {VERSION}")));
    }
    if !(1..=PCPUS_MAX).contains(&pcpus) {
        return Err((12, format!("{pcpus} pCPUs, expected 1 to {PCPUS_MAX}")));
    }
    if !(1..=entities).contains(&vcpus) || entities > ENTITIES_MAX {
        return Err((16, format!("{vcpus} vCPUs among {entities} entities")));
    }
    let quantum_ns = u64::from(word(28)) << 32 | u64::from(word(24));
    Ok(Record { pcpus, vcpus, entities, quantum_ns, ..Record::default() })
}

/// Returns the event if the header announces its pCPU and its entity.
fn announced(record: &Record, event: Event) -> Result<Event, String> {
    if let Some(pcpu) = event.pcpu.filter(|pcpu| u32::from(*pcpu) >= record.pcpus) {
        return Err(format!("pCPU {pcpu} of {}", record.pcpus));
    }
    let about_an_entity = !matches!(event.kind, Kind::Steal(_) | Kind::End);
    if about_an_entity && u32::from(event.entity) >= record.entities {
        return Err(format!("entity {} of {}", event.entity, record.entities));
    }
    let placed = matches!(event.kind, Kind::On | Kind::Off | Kind::Steal(_));
    if placed && event.pcpu.is_none() {
        return Err(format!("`{}` without a pCPU", event.kind));
    }
    Ok(event)
}

/// Rejects time that goes back for an entity, and an end before any entity's last change of state.
/// The host stamps exits and marks as if their price were paid. An entity that is preempted first
/// pays it only when it is back, so these stamps may be later than the change that follows.
fn in_order(latest_ns: &mut [u64], event: &Event) -> Result<(), String> {
    let back = |latest_ns: u64| {
        format!("time goes back from {latest_ns} to {} ns: {}", event.t_ns, event.kind)
    };
    if event.kind == Kind::End {
        let latest_ns = latest_ns.iter().copied().max().unwrap_or(0);
        return if event.t_ns < latest_ns { Err(back(latest_ns)) } else { Ok(()) };
    }
    if !matches!(event.kind, Kind::On | Kind::Off | Kind::Idle | Kind::Wake) {
        return Ok(());
    }
    let latest = &mut latest_ns[usize::from(event.entity)];
    if event.t_ns < *latest {
        return Err(format!("entity {}: {}", event.entity, back(*latest)));
    }
    *latest = event.t_ns;
    Ok(())
}

fn keep(record: &mut Record, event: Event, in_job: bool) -> Result<(), String> {
    let preempted = event.kind == Kind::Off && u32::from(event.entity) < record.vcpus;
    record.job_preemptions[0] += u64::from(preempted && in_job);
    match event.kind {
        Kind::Exit { reason, price_ns } => {
            record.exits.entry(reason).or_default().add(price_ns);
            if in_job {
                record.job_exits.entry(reason).or_default().add(price_ns);
            }
        }
        Kind::PauseLoop { verdict, .. } => {
            *record.job_pause_loops.entry(verdict).or_default() += u64::from(in_job);
        }
        Kind::Yield { verdict, .. } => {
            *record.job_yields.entry(verdict).or_default() += u64::from(in_job);
        }
        Kind::Critical => record.job_preemptions[1] += u64::from(in_job),
        Kind::Reflect => record.job_reflections += u64::from(in_job),
        Kind::Answer(answer) => {
            *record.job_answers.entry((event.entity, answer)).or_default() += u64::from(in_job);
        }
        Kind::End => record.end_ns = event.t_ns,
        Kind::Count { reason } => {
            let sum = record.counted.entry(reason).or_default();
            *sum = sum.checked_add(event.t_ns).ok_or("more exits than can be counted")?;
        }
        _ if record.events.len() >= MAX_KEPT => {
            return Err(format!("more than {MAX_KEPT} changes of state"));
        }
        _ => record.events.push(event),
    }
    Ok(())
}

/// Counter of the pause-loop exits in storms.
struct Storms {
    /// Number of consecutive pause-loop exits of each vCPU.
    in_a_row: Vec<u64>,
}

impl Storms {
    /// Returns by how much this event raises the number of exits in storms.
    fn exits_of(&mut self, event: &Event, in_job: bool) -> u64 {
        let Some(in_a_row) = self.in_a_row.get_mut(usize::from(event.entity)) else { return 0 };
        match event.kind {
            Kind::PauseLoop { .. } if in_job => *in_a_row += 1,
            Kind::Exit { reason, .. } if reason != PAUSE => {
                *in_a_row = 0;
                return 0;
            }
            _ => return 0,
        }
        match *in_a_row {
            0..=STORM_MIN => 0,
            n if n == STORM_MIN + 1 => n,
            _ => 1,
        }
    }
}

struct Place<'a> {
    name: &'a str,
}

impl Place<'_> {
    fn bad(&self, offset: u64, what: impl Into<String>) -> TraceError {
        TraceError::Bytes { name: self.name.into(), offset, what: what.into() }
    }
}

/// Fills the buffer as far as the input reaches; returns the number of bytes.
fn fill(
    input: &mut impl Read,
    buffer: &mut [u8],
    place: &Place,
    offset: u64,
) -> Result<usize, TraceError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(place.bad(offset, format!("cannot read on: {error}"))),
        }
    }
    Ok(filled)
}
