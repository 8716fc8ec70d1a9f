//! Writing a session file, a batch at a time.

use std::io::Write;
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    ArrayRef, DictionaryArray, RecordBatch, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use flate2::Compression;
use flate2::write::GzEncoder;
use unspin_model::VcpuState;
use unspin_model::episode::{OwnerState, Spin, Wait};
use unspin_model::session::{About, FoundOff, Look};

use super::{
    BEATS, IDLE, LOOK_IDLE, LOOK_OFF, LOOK_ON, LOST, MAX_SITE_BYTES, OFF, STEAL, SessionError,
    USER_SPIN, WAITS, WAKE, schema_of,
};

/// Sums for one vCPU over the period that a batch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The vCPU.
    pub vcpu: u16,
    /// Start of the period, nanoseconds of the guest's CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// End of the period.
    pub end_ns: u64,
    /// Number of heartbeats added.
    pub beats: u64,
    /// Idle time in nanoseconds.
    pub idle_ns: u64,
    /// Number of findings lost.
    pub lost: u64,
    /// Time spent spinning in user space in nanoseconds, if ticks sampled it.
    pub user_spin_ns: Option<u64>,
    /// Steal time in nanoseconds, if the kernel reports it.
    pub steal_ns: Option<u64>,
}

/// Writer of a session file.
pub struct Writer<W: Write> {
    out: W,
    schema: SchemaRef,
    /// Buffer of what has not yet gone to `out`.
    stream: StreamWriter<Vec<u8>>,
}

struct Row<'a> {
    kind: &'static str,
    vcpu: u16,
    start_ns: u64,
    end_ns: u64,
    value: u64,
    spin: Option<&'a Spin>,
}

impl<W: Write> Writer<W> {
    /// Writes the file's head.
    pub fn new(out: W, about: &About) -> Result<Writer<W>, SessionError> {
        let schema = schema_of(about);
        let stream = StreamWriter::try_new(Vec::new(), &schema)?;
        let mut writer = Writer { out, schema, stream };
        writer.flush()?;
        Ok(writer)
    }

    /// Appends a batch. The output has all of it on return.
    pub fn write(
        &mut self,
        offs: &[FoundOff],
        spins: &[Spin],
        looks: &[Look],
        stretches: &[Stretch],
    ) -> Result<(), SessionError> {
        let rows: Vec<Row> = offs
            .iter()
            .map(Row::of_off)
            .chain(spins.iter().map(Row::of_spin))
            .chain(looks.iter().map(Row::of_look))
            .chain(stretches.iter().flat_map(Row::of_stretch))
            .collect();
        let batch = RecordBatch::try_new(self.schema.clone(), columns(&rows))?;
        self.stream.write(&batch)?;
        self.flush()
    }

    /// Writes the file's end.
    pub fn finish(mut self) -> Result<(), SessionError> {
        self.stream.finish()?;
        self.flush()
    }

    /// Writes the buffered part of the stream as a gzip member.
    fn flush(&mut self) -> Result<(), SessionError> {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(self.stream.get_ref())?;
        self.stream.get_mut().clear();
        self.out.write_all(&member.finish()?)?;
        self.out.flush()?;
        Ok(())
    }
}

/// Returns the columns in the order of the schema.
fn columns(rows: &[Row]) -> Vec<ArrayRef> {
    let kinds: DictionaryArray<Int8Type> = rows.iter().map(|row| row.kind).collect();
    let words = |of: fn(&Row) -> u64| UInt64Array::from_iter_values(rows.iter().map(of));
    let spins = || rows.iter().map(|row| row.spin);
    let owners = || spins().map(|spin| spin?.owner);
    let takers = || spins().map(|spin| spin?.before);
    let is_kept = |site: &&str| (1..=MAX_SITE_BYTES).contains(&site.len());
    let sites: DictionaryArray<Int32Type> =
        spins().map(|spin| Some(spin?.site.as_str()).filter(is_kept)).collect();
    vec![
        Arc::new(kinds),
        Arc::new(UInt16Array::from_iter_values(rows.iter().map(|row| row.vcpu))),
        Arc::new(words(|row| row.start_ns)),
        Arc::new(words(|row| row.end_ns)),
        Arc::new(words(|row| row.value)),
        Arc::new(spins().map(|spin| Some(spin?.lock)).collect::<UInt64Array>()),
        Arc::new(spins().map(|spin| Some(spin?.tid)).collect::<UInt32Array>()),
        Arc::new(sites),
        Arc::new(owners().map(|owner| Some(owner?.tid)).collect::<UInt32Array>()),
        Arc::new(owners().map(|owner| Some(owner?.vcpu)).collect::<UInt16Array>()),
        Arc::new(owners().map(|owner| Some(state_number(owner?.state))).collect::<UInt8Array>()),
        Arc::new(owners().map(|owner| Some(owner?.delay_ns)).collect::<UInt64Array>()),
        Arc::new(takers().map(|taken| Some(taken?.vcpu)).collect::<UInt16Array>()),
        Arc::new(takers().map(|taken| Some(taken?.t_ns)).collect::<UInt64Array>()),
    ]
}

fn state_number(state: OwnerState) -> u8 {
    match state {
        OwnerState::Running => 1,
        OwnerState::Runnable => 2,
        OwnerState::Asleep => 3,
    }
}

impl<'a> Row<'a> {
    fn of_off(off: &FoundOff) -> Row<'a> {
        Row {
            kind: if off.was_idle { WAKE } else { OFF },
            vcpu: off.vcpu,
            start_ns: off.start_ns,
            end_ns: off.end_ns,
            value: off.start_error_ns,
            spin: None,
        }
    }

    /// Returns the row of a spin. An impossible one, from two threads whose waits were mixed up,
    /// counts as lost.
    fn of_spin(spin: &'a Spin) -> Row<'a> {
        let can_be =
            |(_, wait, asleep): &&(_, Wait, bool)| (*wait, *asleep) == (spin.wait, spin.asleep);
        let kind = WAITS.iter().find(can_be).map(|(kind, _, _)| *kind);
        Row {
            kind: kind.unwrap_or(LOST),
            vcpu: spin.vcpu,
            start_ns: spin.begin_ns,
            end_ns: spin.end_ns,
            value: kind.map_or(1, |_| spin.halted_ns),
            spin: kind.map(|_| spin),
        }
    }

    fn of_look(look: &Look) -> Row<'a> {
        let kind = match look.state {
            VcpuState::On => LOOK_ON,
            VcpuState::Off => LOOK_OFF,
            VcpuState::Idle => LOOK_IDLE,
        };
        Row { kind, vcpu: look.vcpu, start_ns: look.t_ns, end_ns: look.t_ns, value: 0, spin: None }
    }

    fn of_stretch(stretch: &Stretch) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let Stretch { vcpu, start_ns, end_ns, .. } = *stretch;
        let values = [
            (BEATS, Some(stretch.beats)),
            (IDLE, Some(stretch.idle_ns)),
            (LOST, Some(stretch.lost)),
            (USER_SPIN, stretch.user_spin_ns),
            (STEAL, stretch.steal_ns),
        ];
        let row = move |(kind, value): (_, Option<u64>)| {
            Some(Row { kind, vcpu, start_ns, end_ns, value: value?, spin: None })
        };
        values.into_iter().filter_map(row)
    }
}
