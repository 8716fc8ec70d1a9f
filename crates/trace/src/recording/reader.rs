//! Decoding of recordings.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use unspin_model::{Recording, VcpuEvent, VcpuState};

use super::{FORMAT, Header, MAX_EVENTS, MAX_LINE_BYTES, MAX_RECORDINGS, MAX_VCPUS};
use crate::TraceError;

/// Reads all recordings from `input`; error messages contain `name`.
///
/// # Errors
/// Returns [`TraceError::Read`] if the data ends early or is damaged, and [`TraceError::Line`] if a
/// line does not have the expected content.
pub fn read_from(input: impl BufRead, name: &str) -> Result<Vec<Recording>, TraceError> {
    let mut lines = Lines {
        // GzDecoder would silently stop at anything that follows the first member.
        input: BufReader::new(MultiGzDecoder::new(input)),
        name,
        line: 0,
        text: Vec::new(),
    };
    let mut recordings = Vec::new();
    let mut room = Room { events: MAX_EVENTS, vcpus: MAX_VCPUS };
    while let Some(recording) = read_one(&mut lines, &mut room)? {
        recordings.push(recording);
        if recordings.len() > MAX_RECORDINGS {
            return Err(lines.bad(format!("more than {MAX_RECORDINGS} recordings")));
        }
    }
    Ok(recordings)
}

/// Numbers of events and vCPUs that the file may still hold.
struct Room {
    events: usize,
    vcpus: usize,
}

/// Reads one recording; returns `None` at the end of the file.
fn read_one<R: BufRead>(
    lines: &mut Lines<'_, R>,
    room: &mut Room,
) -> Result<Option<Recording>, TraceError> {
    let Some(text) = lines.next()? else { return Ok(None) };
    let header = parse_header(text).map_err(|what| lines.bad(what))?;
    let Some(events_left) = room.events.checked_sub(header.events) else {
        return Err(lines.bad(format!("the file has more than {MAX_EVENTS} events")));
    };
    let Some(vcpus_left) = room.vcpus.checked_sub(usize::from(header.vcpus)) else {
        return Err(lines.bad(format!("the file has more than {MAX_VCPUS} vCPUs")));
    };
    *room = Room { events: events_left, vcpus: vcpus_left };
    // The header's count is a claim until the lines are read, so it sizes no allocation.
    let mut events = Vec::new();
    let mut before_ns = header.start_ns;
    for read in 0..header.events {
        let Some(text) = lines.next()? else {
            let what = format!("the file ends after {read} of {} events", header.events);
            return Err(lines.bad(what));
        };
        let event = parse_event(text, before_ns, &header).map_err(|what| lines.bad(what))?;
        before_ns = event.t_ns;
        events.push(event);
    }
    Ok(Some(Recording {
        vm: header.vm,
        vcpus: header.vcpus,
        start_ns: header.start_ns,
        end_ns: header.end_ns,
        alignment_error_ns: header.alignment_error_ns,
        lost: header.lost,
        events,
    }))
}

fn parse_header(text: &str) -> Result<Header, String> {
    let header: Header = serde_json::from_str(text)
        .map_err(|e| format!("a recording's header was expected here: {e}"))?;
    if header.format != FORMAT {
        return Err(format!("format {} is not known; this version reads {FORMAT}", header.format));
    }
    if header.end_ns < header.start_ns {
        return Err("the window ends before it starts".into());
    }
    Ok(header)
}

fn parse_event(text: &str, before_ns: u64, header: &Header) -> Result<VcpuEvent, String> {
    let mut columns = text.split(' ');
    let (Some(delta), Some(vcpu), Some(state), None) =
        (columns.next(), columns.next(), columns.next(), columns.next())
    else {
        return Err("an event was expected here: nanoseconds, vCPU, state".into());
    };
    let delta_ns: u64 = delta.parse().map_err(|e| format!("nanoseconds `{delta}`: {e}"))?;
    let t_ns = before_ns
        .checked_add(delta_ns)
        .filter(|t_ns| *t_ns <= header.end_ns)
        .ok_or("the event lies after the window's end")?;
    let vcpu: u16 = vcpu.parse().map_err(|e| format!("vCPU `{vcpu}`: {e}"))?;
    if vcpu >= header.vcpus {
        return Err(format!("vCPU {vcpu} of only {}", header.vcpus));
    }
    Ok(VcpuEvent { t_ns, vcpu, state: parse_state(state)? })
}

fn parse_state(name: &str) -> Result<VcpuState, String> {
    match name {
        "on" => Ok(VcpuState::On),
        "off" => Ok(VcpuState::Off),
        "idle" => Ok(VcpuState::Idle),
        _ => Err(format!("state `{name}` is not one of on, off, idle")),
    }
}

/// Reader of lines of bounded length, which counts them.
struct Lines<'a, R> {
    input: R,
    name: &'a str,
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Lines<'_, R> {
    /// Returns the next line without its newline; `None` at the end of the data.
    fn next(&mut self) -> Result<Option<&str>, TraceError> {
        self.line += 1;
        self.text.clear();
        let mut bounded = self.input.by_ref().take(MAX_LINE_BYTES as u64);
        if let Err(source) = bounded.read_until(b'\n', &mut self.text) {
            return Err(TraceError::Read { name: self.name.into(), line: self.line, source });
        }
        if self.text.is_empty() {
            return Ok(None);
        }
        if self.text.pop() != Some(b'\n') {
            return Err(self.bad(format!("no end of line within {MAX_LINE_BYTES} bytes")));
        }
        match std::str::from_utf8(&self.text) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(self.bad("not UTF-8 text".into())),
        }
    }

    fn bad(&self, what: String) -> TraceError {
        TraceError::Line { name: self.name.into(), line: self.line, what }
    }
}
