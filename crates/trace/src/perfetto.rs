//! Perfetto export: a lane for each vCPU.
//!
//! In the trace of a host, each VM is a process track, and each vCPU is a lane below it with slices
//! `on`, `off` and `idle`. In the trace of a guest, each vCPU has a lane for its off intervals,
//! lanes for its spins, and lanes for the spins of others that wait for it. Arrows lead from a spin
//! to the slice that it waits for. Times are the guest's CLOCK_MONOTONIC, which a clock snapshot at
//! the trace's head makes the clock of the whole trace. The file opens in the Perfetto viewer and
//! in its trace processor.

use std::io::Write;

use unspin_model::{Recording, VcpuEvent, VcpuState};

use crate::TraceError;

mod emit;
mod proto;
mod session;

use emit::Emitter;
pub use session::write_session;

/// Writes a host's recordings of its VMs.
///
/// # Errors
/// Returns [`TraceError::Write`] if `out` fails.
pub fn write(out: impl Write, recordings: &[Recording]) -> Result<(), TraceError> {
    let mut emit = Emitter::new(out);
    emit.clock(recordings.iter().map(|r| r.start_ns).min().unwrap_or(0))?;
    for (id, recording) in (1..).zip(recordings) {
        let about = format!(
            "vCPU states as the host saw them; times within {} ns; {} events lost",
            recording.alignment_error_ns, recording.lost
        );
        emit.process(id, &recording.vm, about)?;
        let lanes = (0..recording.vcpus)
            .map(|vcpu| emit.lane(id, u32::from(vcpu), format!("vCPU {vcpu}")))
            .collect::<Result<Vec<u64>, _>>()?;
        // A separate search for the events of each vCPU would take hours if there are many of both.
        // The sort is stable, so the events of each vCPU stay in time order.
        let mut events: Vec<&VcpuEvent> = recording.events.iter().collect();
        events.sort_by_key(|event| event.vcpu);
        events.dedup_by_key(|event| (event.vcpu, event.state));
        for of_vcpu in events.chunk_by(|event, next| event.vcpu == next.vcpu) {
            let Some(lane) = lanes.get(usize::from(of_vcpu[0].vcpu)) else { continue };
            let ends_ns = of_vcpu[1..].iter().map(|next| next.t_ns).chain([recording.end_ns]);
            for (event, end_ns) in of_vcpu.iter().zip(ends_ns) {
                if end_ns > event.t_ns {
                    emit.begin(*lane, event.t_ns, &["vcpu"], name(event.state), None)?;
                    emit.end(*lane, end_ns)?;
                }
            }
        }
    }
    emit.finish()
}

fn name(state: VcpuState) -> String {
    let name = match state {
        VcpuState::On => "on",
        VcpuState::Off => "off",
        VcpuState::Idle => "idle",
    };
    name.to_owned()
}
