//! Perfetto export: a lane for each vCPU with slices `on`, `off` and `idle`.
//!
//! Each VM is a process track, each vCPU a track below it. Times are those of
//! the recording (the guest's CLOCK_MONOTONIC), which a clock snapshot at the
//! trace's head makes the clock of the whole trace. The file opens in the
//! Perfetto viewer and in its trace processor.

use std::io::Write;

use unspin_model::{Recording, VcpuState};

use crate::TraceError;

mod proto;

use proto::{
    Clock, ClockSnapshot, ProcessDescriptor, TracePacket, TrackDescriptor, TrackEvent, packet,
};

/// The only packet sequence of the trace: no packet needs state of another one.
const SEQUENCE: u32 = 1;
/// Track ids of one VM: its process takes `id << VM_SHIFT`, vCPU k that plus k + 1.
const VM_SHIFT: u32 = 32;

/// Writes the recordings as a Perfetto trace.
///
/// # Errors
/// [`TraceError::Write`] where `out` fails.
pub fn write(mut out: impl Write, recordings: &[Recording]) -> Result<(), TraceError> {
    let mut buffer = Vec::new();
    let mut emit = |packet: TracePacket| -> Result<(), TraceError> {
        buffer.clear();
        proto::encode_packet(packet, &mut buffer);
        Ok(out.write_all(&buffer)?)
    };
    let start_ns = recordings.iter().map(|r| r.start_ns).min().unwrap_or(0);
    emit(clock_snapshot(start_ns))?;
    for (id, recording) in (1..).zip(recordings) {
        emit(process_track(id, recording))?;
        for vcpu in 0..recording.vcpus {
            emit(vcpu_track(id, vcpu))?;
        }
        for interval in recording.intervals() {
            let track = vcpu_uuid(id, interval.vcpu);
            emit(slice_begin(track, interval.start_ns, interval.state))?;
            emit(slice_end(track, interval.end_ns))?;
        }
    }
    out.flush()?;
    Ok(())
}

/// The trace as bytes; see [`write()`].
pub fn to_bytes(recordings: &[Recording]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, recordings).expect("writing to memory cannot fail");
    bytes
}

fn vm_uuid(id: i32) -> u64 {
    (id as u64) << VM_SHIFT
}

fn vcpu_uuid(id: i32, vcpu: u16) -> u64 {
    vm_uuid(id) + u64::from(vcpu) + 1
}

fn packet_of(timestamp_ns: Option<u64>, data: packet::Data) -> TracePacket {
    TracePacket {
        timestamp: timestamp_ns,
        sequence: Some(SEQUENCE),
        clock_id: timestamp_ns.map(|_| proto::CLOCK_MONOTONIC),
        data: Some(data),
    }
}

/// Makes CLOCK_MONOTONIC the trace's clock. CLOCK_BOOTTIME, the viewer's default,
/// reads the same: the guest is never suspended.
fn clock_snapshot(start_ns: u64) -> TracePacket {
    let clock = |id| Clock { clock_id: Some(id), timestamp: Some(start_ns) };
    let snapshot = ClockSnapshot {
        clocks: vec![clock(proto::CLOCK_MONOTONIC), clock(proto::CLOCK_BOOTTIME)],
        primary: Some(proto::CLOCK_MONOTONIC as i32),
    };
    packet_of(None, packet::Data::ClockSnapshot(snapshot))
}

fn process_track(id: i32, recording: &Recording) -> TracePacket {
    let description = format!(
        "vCPU states as the host saw them; times within {} ns; {} events lost",
        recording.alignment_error_ns, recording.lost
    );
    let track = TrackDescriptor {
        uuid: Some(vm_uuid(id)),
        process: Some(ProcessDescriptor { pid: Some(id), name: Some(recording.vm.clone()) }),
        child_ordering: Some(proto::ORDER_EXPLICIT),
        description: Some(description),
        ..TrackDescriptor::default()
    };
    packet_of(None, packet::Data::TrackDescriptor(track))
}

fn vcpu_track(id: i32, vcpu: u16) -> TracePacket {
    let track = TrackDescriptor {
        uuid: Some(vcpu_uuid(id, vcpu)),
        name: Some(format!("vCPU {vcpu}")),
        parent_uuid: Some(vm_uuid(id)),
        order_rank: Some(i32::from(vcpu)),
        ..TrackDescriptor::default()
    };
    packet_of(None, packet::Data::TrackDescriptor(track))
}

fn slice_begin(track: u64, t_ns: u64, state: VcpuState) -> TracePacket {
    let name = match state {
        VcpuState::On => "on",
        VcpuState::Off => "off",
        VcpuState::Idle => "idle",
    };
    let event = TrackEvent {
        kind: Some(proto::SLICE_BEGIN),
        track_uuid: Some(track),
        category: vec!["vcpu".into()],
        name: Some(name.into()),
    };
    packet_of(Some(t_ns), packet::Data::TrackEvent(event))
}

fn slice_end(track: u64, t_ns: u64) -> TracePacket {
    let event = TrackEvent {
        kind: Some(proto::SLICE_END),
        track_uuid: Some(track),
        ..TrackEvent::default()
    };
    packet_of(Some(t_ns), packet::Data::TrackEvent(event))
}
