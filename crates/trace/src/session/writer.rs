//! Writing a session file, a batch at a time.

use std::io::Write;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{DictionaryArray, RecordBatch, UInt16Array, UInt64Array};
use arrow_ipc::writer::StreamWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use unspin_model::VcpuState;
use unspin_model::session::{FoundOff, Look};

use super::{BEATS, IDLE, LOOK_IDLE, LOOK_OFF, LOOK_ON, LOST, OFF, SessionError, WAKE, schema};

/// What happened to one vCPU in the stretch of time that a batch covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The vCPU.
    pub vcpu: u16,
    /// Start of the stretch.
    pub start_ns: u64,
    /// End of the stretch.
    pub end_ns: u64,
    /// Heartbeats added.
    pub beats: u64,
    /// Nanoseconds idle.
    pub idle_ns: u64,
    /// Findings lost.
    pub lost: u64,
}

/// Writes a session file.
pub struct Writer<W: Write> {
    out: W,
    /// What is not yet on its way to `out`.
    stream: StreamWriter<Vec<u8>>,
}

struct Row {
    kind: &'static str,
    vcpu: u16,
    start_ns: u64,
    end_ns: u64,
    value: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the file's head.
    pub fn new(out: W) -> Result<Writer<W>, SessionError> {
        let stream = StreamWriter::try_new(Vec::new(), &schema())?;
        let mut writer = Writer { out, stream };
        writer.flush()?;
        Ok(writer)
    }

    /// Appends a batch, whole on return.
    pub fn write(
        &mut self,
        offs: &[FoundOff],
        looks: &[Look],
        stretches: &[Stretch],
    ) -> Result<(), SessionError> {
        let rows: Vec<Row> = offs
            .iter()
            .map(Row::of_off)
            .chain(looks.iter().map(Row::of_look))
            .chain(stretches.iter().flat_map(Row::of_stretch))
            .collect();
        let kinds: DictionaryArray<Int8Type> = rows.iter().map(|row| row.kind).collect();
        let column =
            |of: fn(&Row) -> u64| Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)));
        let batch = RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(kinds),
                Arc::new(UInt16Array::from_iter_values(rows.iter().map(|row| row.vcpu))),
                column(|row| row.start_ns),
                column(|row| row.end_ns),
                column(|row| row.value),
            ],
        )?;
        self.stream.write(&batch)?;
        self.flush()
    }

    /// Writes the file's end.
    pub fn finish(mut self) -> Result<(), SessionError> {
        self.stream.finish()?;
        self.flush()
    }

    /// What the stream has put together goes out as a gzip member.
    fn flush(&mut self) -> Result<(), SessionError> {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(self.stream.get_ref())?;
        self.stream.get_mut().clear();
        self.out.write_all(&member.finish()?)?;
        self.out.flush()?;
        Ok(())
    }
}

impl Row {
    fn of_off(off: &FoundOff) -> Row {
        Row {
            kind: if off.was_idle { WAKE } else { OFF },
            vcpu: off.vcpu,
            start_ns: off.start_ns,
            end_ns: off.end_ns,
            value: off.start_error_ns,
        }
    }

    fn of_look(look: &Look) -> Row {
        let kind = match look.state {
            VcpuState::On => LOOK_ON,
            VcpuState::Off => LOOK_OFF,
            VcpuState::Idle => LOOK_IDLE,
        };
        Row { kind, vcpu: look.vcpu, start_ns: look.t_ns, end_ns: look.t_ns, value: 0 }
    }

    fn of_stretch(stretch: &Stretch) -> [Row; 3] {
        [(BEATS, stretch.beats), (IDLE, stretch.idle_ns), (LOST, stretch.lost)].map(
            |(kind, value)| Row {
                kind,
                vcpu: stretch.vcpu,
                start_ns: stretch.start_ns,
                end_ns: stretch.end_ns,
                value,
            },
        )
    }
}
