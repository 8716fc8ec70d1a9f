//! Perfetto export: a lane for each vCPU.
//!
//! Of what a host saw, each VM is a process track, each vCPU a lane below it with slices
//! `on`, `off` and `idle`. Of what a guest found out about itself, each vCPU has a lane of
//! its off intervals, and lanes of its spins and of what others spun for on it; arrows
//! lead from a spin to the one it waited for. Times are the guest's CLOCK_MONOTONIC, which
//! a clock snapshot at the trace's head makes the clock of the whole trace. The file opens
//! in the Perfetto viewer and in its trace processor.

use std::io::Write;

use unspin_model::{Recording, VcpuEvent, VcpuState};

use crate::TraceError;

mod emit;
mod proto;
mod session;

use emit::Emitter;
pub use session::write_session;

/// Writes what a host saw of its VMs.
///
/// # Errors
/// [`TraceError::Write`] where `out` fails.
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
        // Sorted once: a search for each vCPU's events takes hours where both are many. The sort
        // is stable, so each vCPU's stay in time order.
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
