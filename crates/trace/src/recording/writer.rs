//! Encoding of recordings.

use std::io::{BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use unspin_model::{Recording, VcpuEvent};

use super::{Header, MAX_EVENTS, MAX_LINE_BYTES, MAX_RECORDINGS, MAX_VCPUS, state_name};
use crate::TraceError;

/// Writes recordings to `out` in the [module](super)'s format.
///
/// # Errors
/// Returns [`TraceError::Invalid`] for an invalid recording, before it writes anything, and
/// [`TraceError::Write`] if `out` fails.
pub fn write_to(out: impl Write, recordings: &[Recording]) -> Result<(), TraceError> {
    check_all(recordings)?;
    let mut lines = BufWriter::new(GzEncoder::new(out, Compression::default()));
    for recording in recordings {
        write_one(&mut lines, recording)?;
    }
    let encoder = lines.into_inner().map_err(|e| e.into_error())?;
    encoder.finish()?.flush()?;
    Ok(())
}

fn write_one(out: &mut impl Write, recording: &Recording) -> Result<(), TraceError> {
    out.write_all(header_line(recording)?.as_bytes())?;
    let mut before_ns = recording.start_ns;
    for event in &recording.events {
        let delta_ns = event.t_ns - before_ns;
        writeln!(out, "{delta_ns} {} {}", event.vcpu, state_name(event.state))?;
        before_ns = event.t_ns;
    }
    Ok(())
}

fn header_line(recording: &Recording) -> Result<String, TraceError> {
    let json = serde_json::to_string(&Header::of(recording))
        .map_err(|e| invalid(recording, e.to_string()))?;
    if json.len() >= MAX_LINE_BYTES {
        return Err(invalid(recording, format!("its header exceeds {MAX_LINE_BYTES} bytes")));
    }
    Ok(json + "\n")
}

fn check_all(recordings: &[Recording]) -> Result<(), TraceError> {
    let (mut events, mut vcpus) = (0, 0);
    for (index, recording) in recordings.iter().enumerate() {
        events += recording.events.len();
        vcpus += usize::from(recording.vcpus);
        if index >= MAX_RECORDINGS || events > MAX_EVENTS || vcpus > MAX_VCPUS {
            let what = format!(
                "a file holds at most {MAX_RECORDINGS} recordings, {MAX_EVENTS} events and \
                 {MAX_VCPUS} vCPUs; split it"
            );
            return Err(invalid(recording, what));
        }
        check(recording)?;
    }
    Ok(())
}

fn check(recording: &Recording) -> Result<(), TraceError> {
    if recording.end_ns < recording.start_ns {
        return Err(invalid(recording, "its window ends before it starts".into()));
    }
    header_line(recording)?;
    let mut before_ns = recording.start_ns;
    for event in &recording.events {
        check_event(recording, event, before_ns).map_err(|what| invalid(recording, what))?;
        before_ns = event.t_ns;
    }
    Ok(())
}

fn check_event(recording: &Recording, event: &VcpuEvent, before_ns: u64) -> Result<(), String> {
    if event.t_ns < before_ns {
        return Err(format!("the event at {} ns is out of time order", event.t_ns));
    }
    if event.t_ns > recording.end_ns {
        return Err(format!("the event at {} ns is after the window's end", event.t_ns));
    }
    if event.vcpu >= recording.vcpus {
        return Err(format!("vCPU {} of only {}", event.vcpu, recording.vcpus));
    }
    Ok(())
}

fn invalid(recording: &Recording, what: String) -> TraceError {
    TraceError::Invalid { vm: recording.vm.clone(), what }
}
