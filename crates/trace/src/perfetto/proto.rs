//! The few Perfetto messages and fields that the export writes.
//!
//! Field numbers and enum values: Perfetto's public schema under
//! `protos/perfetto/trace/`: `trace.proto`, `trace_packet.proto`,
//! `clock_snapshot.proto`, `track_event/track_descriptor.proto`,
//! `track_event/process_descriptor.proto`, `track_event/track_event.proto`,
//! and `protos/perfetto/common/builtin_clock.proto`.

use prost::Message;

/// `BUILTIN_CLOCK_MONOTONIC`.
pub const CLOCK_MONOTONIC: u32 = 3;
/// `BUILTIN_CLOCK_BOOTTIME`.
pub const CLOCK_BOOTTIME: u32 = 6;
/// `TrackEvent.Type.TYPE_SLICE_BEGIN`.
pub const SLICE_BEGIN: i32 = 1;
/// `TrackEvent.Type.TYPE_SLICE_END`.
pub const SLICE_END: i32 = 2;
/// `TrackDescriptor.ChildTracksOrdering.EXPLICIT`: by `sibling_order_rank`.
pub const ORDER_EXPLICIT: i32 = 3;

/// `Trace`, with a single packet.
#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    /// `trusted_packet_sequence_id`.
    #[prost(uint32, optional, tag = "10")]
    pub sequence: Option<u32>,
    /// `timestamp_clock_id`.
    #[prost(uint32, optional, tag = "58")]
    pub clock_id: Option<u32>,
    #[prost(oneof = "packet::Data", tags = "6, 11, 60")]
    pub data: Option<packet::Data>,
}

/// The content of a packet.
pub mod packet {
    /// `TracePacket.data`.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Data {
        #[prost(message, tag = "6")]
        ClockSnapshot(super::ClockSnapshot),
        #[prost(message, tag = "11")]
        TrackEvent(super::TrackEvent),
        #[prost(message, tag = "60")]
        TrackDescriptor(super::TrackDescriptor),
    }
}

/// `ClockSnapshot`.
#[derive(Clone, PartialEq, Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    /// `primary_trace_clock`.
    #[prost(int32, optional, tag = "2")]
    pub primary: Option<i32>,
}

/// `ClockSnapshot.Clock`.
#[derive(Clone, PartialEq, Message)]
pub struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// `TrackDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub process: Option<ProcessDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
    #[prost(int32, optional, tag = "11")]
    pub child_ordering: Option<i32>,
    /// `sibling_order_rank`.
    #[prost(int32, optional, tag = "12")]
    pub order_rank: Option<i32>,
    #[prost(string, optional, tag = "14")]
    pub description: Option<String>,
}

/// `ProcessDescriptor`.
#[derive(Clone, PartialEq, Message)]
pub struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    /// `process_name`.
    #[prost(string, optional, tag = "6")]
    pub name: Option<String>,
}

/// `TrackEvent`.
#[derive(Clone, PartialEq, Message)]
pub struct TrackEvent {
    /// `type`.
    #[prost(int32, optional, tag = "9")]
    pub kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    /// `categories`.
    #[prost(string, repeated, tag = "22")]
    pub category: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    /// `flow_ids`: an arrow leads from each event with an id to the next event with it.
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub flow_ids: Vec<u64>,
}

/// Appends one packet in the form that makes a `Trace` by concatenation.
pub fn encode_packet(packet: TracePacket, out: &mut Vec<u8>) {
    let trace = Trace { packet: vec![packet] };
    out.extend(trace.encode_to_vec());
}
