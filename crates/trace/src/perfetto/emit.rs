//! Packets, and the tracks that they belong to.

use std::io::Write;

use super::proto::{
    self, Clock, ClockSnapshot, ProcessDescriptor, TracePacket, TrackDescriptor, TrackEvent, packet,
};
use crate::TraceError;

/// The only packet sequence of the trace: no packet needs the state of another one.
const SEQUENCE: u32 = 1;
/// Shift of process ids in track ids. A process has the track id `id << PROCESS_SHIFT`; its k-th
/// lane has that number plus k + 1.
const PROCESS_SHIFT: u32 = 32;

/// Writer of packets.
pub struct Emitter<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Emitter<W> {
    pub fn new(out: W) -> Self {
        Emitter { out, buffer: Vec::new() }
    }

    /// Makes CLOCK_MONOTONIC the trace's clock. CLOCK_BOOTTIME, the viewer's default, has the same
    /// readings, because the guest is never suspended.
    pub fn clock(&mut self, start_ns: u64) -> Result<(), TraceError> {
        let clock = |id| Clock { clock_id: Some(id), timestamp: Some(start_ns) };
        let snapshot = ClockSnapshot {
            clocks: vec![clock(proto::CLOCK_MONOTONIC), clock(proto::CLOCK_BOOTTIME)],
            primary: Some(proto::CLOCK_MONOTONIC as i32),
        };
        self.packet(None, packet::Data::ClockSnapshot(snapshot))
    }

    /// Writes the track of a process, which groups lanes.
    pub fn process(&mut self, id: i32, name: &str, about: String) -> Result<(), TraceError> {
        let track = TrackDescriptor {
            uuid: Some(process_uuid(id)),
            process: Some(ProcessDescriptor { pid: Some(id), name: Some(name.to_owned()) }),
            child_ordering: Some(proto::ORDER_EXPLICIT),
            description: Some(about),
            ..TrackDescriptor::default()
        };
        self.packet(None, packet::Data::TrackDescriptor(track))
    }

    /// Writes the track of a process's `rank`-th lane, counted from 0, and returns its id.
    pub fn lane(&mut self, process: i32, rank: u32, name: String) -> Result<u64, TraceError> {
        let uuid = process_uuid(process) + u64::from(rank) + 1;
        let track = TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name),
            parent_uuid: Some(process_uuid(process)),
            order_rank: Some(rank as i32),
            ..TrackDescriptor::default()
        };
        self.packet(None, packet::Data::TrackDescriptor(track))?;
        Ok(uuid)
    }

    /// Begins a slice. Arrows connect slices that have a flow in common.
    pub fn begin(
        &mut self,
        track: u64,
        t_ns: u64,
        categories: &[&str],
        name: String,
        flow: Option<u64>,
    ) -> Result<(), TraceError> {
        let event = TrackEvent {
            kind: Some(proto::SLICE_BEGIN),
            track_uuid: Some(track),
            category: categories.iter().map(|category| (*category).to_owned()).collect(),
            name: Some(name),
            flow_ids: flow.into_iter().collect(),
        };
        self.packet(Some(t_ns), packet::Data::TrackEvent(event))
    }

    /// Ends the slice that began last on a track.
    pub fn end(&mut self, track: u64, t_ns: u64) -> Result<(), TraceError> {
        let event = TrackEvent {
            kind: Some(proto::SLICE_END),
            track_uuid: Some(track),
            ..TrackEvent::default()
        };
        self.packet(Some(t_ns), packet::Data::TrackEvent(event))
    }

    /// Flushes the output.
    pub fn finish(mut self) -> Result<(), TraceError> {
        Ok(self.out.flush()?)
    }

    fn packet(&mut self, t_ns: Option<u64>, data: packet::Data) -> Result<(), TraceError> {
        let packet = TracePacket {
            timestamp: t_ns,
            sequence: Some(SEQUENCE),
            clock_id: t_ns.map(|_| proto::CLOCK_MONOTONIC),
            data: Some(data),
        };
        self.buffer.clear();
        proto::encode_packet(packet, &mut self.buffer);
        Ok(self.out.write_all(&self.buffer)?)
    }
}

fn process_uuid(id: i32) -> u64 {
    (id as u64) << PROCESS_SHIFT
}
