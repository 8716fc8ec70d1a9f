//! Reading a session file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayAccessor, RecordBatch, StringArray, TypedDictionaryArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_schema::ArrowError;
use unspin_model::episode::{Owner, OwnerState, Spin, Taken, Wait};
use unspin_model::session::{About, FoundOff, Look};
use unspin_model::{Session, VcpuState};

use super::members::{END, Members};
use super::{
    BEATS, HIDDEN_KEY, IDLE, KERNEL_KEY, LOOK_IDLE, LOOK_OFF, LOOK_ON, LOST, MACHINE_KEY,
    MAX_ABOUT_BYTES, MAX_ROWS, MAX_SITE_BYTES, MAX_SITES_BYTES, OFF, PROGRAM_KEY, READ, STEAL,
    SessionError, USER_SPIN, VERSION, VERSION_KEY, WAITS, WAKE, schema,
};

/// Number of characters of an unknown kind that an error shows.
const SHOWN_CHARS: usize = 64;

/// Reads a session file.
pub fn read(path: &Path) -> Result<Session, SessionError> {
    let name = path.display().to_string();
    let file = File::open(path);
    let file = file.map_err(|source| SessionError::Open { name: name.clone(), source })?;
    read_from(BufReader::new(file), &name)
}

/// Reads a session; error messages contain `name`. A killed recorder leaves a batch that is cut
/// off: the reader skips it, and marks the session as incomplete.
pub fn read_from(input: impl BufRead, name: &str) -> Result<Session, SessionError> {
    read_within(input, name, MAX_ROWS, MAX_SITES_BYTES)
}

/// Reads a session of at most `max_rows` rows, and skips what follows.
fn read_within(
    input: impl BufRead,
    name: &str,
    max_rows: usize,
    max_sites_bytes: usize,
) -> Result<Session, SessionError> {
    let damaged =
        |batch, what: String| SessionError::Damaged { name: name.to_owned(), batch, what };
    let mut members = Members { input, begin: 0, read: 0 };
    let mut decoder = StreamDecoder::new();
    let mut session = Session { start_ns: u64::MAX, ..Session::default() };
    let mut seen =
        Seen { vcpus: Vec::new(), covered_to: HashMap::new(), sites_bytes: 0, max_sites_bytes };
    let (mut rows, mut ended) = (0, false);
    'members: for index in 0.. {
        let bytes = match members.next() {
            Ok(Some(_)) if ended => {
                let at = members.begin;
                return Err(damaged(index, format!("another session follows at byte {at}")));
            }
            Ok(Some(bytes)) => bytes,
            Ok(None) if index == 0 => {
                return Err(SessionError::Empty { name: name.to_owned() });
            }
            Ok(None) => {
                session.incomplete = (!ended).then(|| members.no_end(index));
                break;
            }
            Err(error) if index > 0 && error.kind() == io::ErrorKind::UnexpectedEof => {
                session.incomplete = Some(members.cut_off(index));
                break;
            }
            Err(error) if index == 0 => {
                return Err(damaged(0, format!("not a session file of `unspin record`: {error}")));
            }
            Err(error) => {
                return Err(damaged(index, format!("{error} (from byte {} on)", members.begin)));
            }
        };
        ended = bytes.ends_with(&END);
        for batch in batches(&mut decoder, bytes).map_err(|what| damaged(index, what))? {
            rows += batch.num_rows();
            if rows > max_rows {
                session.incomplete = Some(format!(
                    "it has more than {max_rows} rows; only what comes before batch {index} is used"
                ));
                break 'members;
            }
            add(&mut session, &mut seen, &batch).map_err(|what| damaged(index, what))?;
        }
    }
    let schema = decoder
        .schema()
        .ok_or_else(|| damaged(0, "cut off before its first second ended".into()))?;
    let text = |key: &str| match schema.metadata().get(key) {
        Some(text) if text.len() > MAX_ABOUT_BYTES => {
            let len = text.len();
            Err(damaged(0, format!("`{key}` has {len} bytes, more than {MAX_ABOUT_BYTES}")))
        }
        text => Ok(text.cloned()),
    };
    let hidden = text(HIDDEN_KEY)?.unwrap_or_default();
    session.about = About {
        program: text(PROGRAM_KEY)?,
        kernel: text(KERNEL_KEY)?,
        machine: text(MACHINE_KEY)?,
        hidden: hidden.lines().map(str::to_owned).collect(),
    };
    session.start_ns = session.start_ns.min(session.end_ns);
    session.offline = seen.offline();
    Ok(session)
}

/// Decodes the batches of a member. Its checksum was right, so only a malicious file can be invalid
/// here; arrow panics on some of those.
fn batches(decoder: &mut StreamDecoder, bytes: Vec<u8>) -> Result<Vec<RecordBatch>, String> {
    let mut buffer = Buffer::from_vec(bytes);
    let mut all = Vec::new();
    let decode = AssertUnwindSafe(|| {
        while let Some(batch) = decoder.decode(&mut buffer)? {
            let found = batch.schema();
            let version = found.metadata().get(VERSION_KEY);
            if !version.is_some_and(|version| READ.contains(&version.as_str())) {
                let known = READ.join(" or ");
                return Err(ArrowError::SchemaError(format!("no session of format {known}")));
            }
            if found.fields() != schema().fields() {
                return Err(ArrowError::SchemaError("its columns are not a session's".into()));
            }
            all.push(batch);
        }
        Ok(())
    });
    match catch_unwind(decode) {
        Ok(Ok(())) => Ok(all),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("its parts do not fit together".into()),
    }
}

/// State gathered from the rows so far.
struct Seen {
    /// Whether each vCPU has a row.
    vcpus: Vec<bool>,
    /// Time until which each vCPU is covered, in nanoseconds.
    covered_to: HashMap<u16, u64>,
    sites_bytes: usize,
    max_sites_bytes: usize,
}

impl Seen {
    fn vcpu(&mut self, vcpu: u16) {
        let at = usize::from(vcpu);
        self.vcpus.resize(self.vcpus.len().max(at + 1), false);
        self.vcpus[at] = true;
    }

    /// Returns the vCPUs without rows: a recorder covers every vCPU that is online.
    fn offline(&self) -> Vec<u16> {
        if self.covered_to.is_empty() {
            return Vec::new();
        }
        let offline = self.vcpus.iter().enumerate().filter(|(_, has_rows)| !**has_rows);
        offline.map(|(vcpu, _)| vcpu as u16).collect()
    }
}

/// The columns that every row has, then those that only a spin has.
struct Columns<'a> {
    kinds: TypedDictionaryArray<'a, Int8Type, StringArray>,
    vcpus: &'a UInt16Array,
    starts: &'a UInt64Array,
    ends: &'a UInt64Array,
    values: &'a UInt64Array,
    locks: &'a UInt64Array,
    tids: &'a UInt32Array,
    sites: TypedDictionaryArray<'a, Int32Type, StringArray>,
    owner_tids: &'a UInt32Array,
    owner_vcpus: &'a UInt16Array,
    owner_states: &'a UInt8Array,
    owner_delays_ns: &'a UInt64Array,
    taken_vcpus: &'a UInt16Array,
    taken_ns: &'a UInt64Array,
}

impl<'a> Columns<'a> {
    /// Returns the columns of a batch; `None` if a dictionary has other values than text.
    fn of(batch: &'a RecordBatch) -> Option<Columns<'a>> {
        let column = |at| batch.column(at);
        Some(Columns {
            kinds: column(0).as_dictionary::<Int8Type>().downcast_dict()?,
            vcpus: column(1).as_primitive(),
            starts: column(2).as_primitive(),
            ends: column(3).as_primitive(),
            values: column(4).as_primitive(),
            locks: column(5).as_primitive(),
            tids: column(6).as_primitive(),
            sites: column(7).as_dictionary::<Int32Type>().downcast_dict()?,
            owner_tids: column(8).as_primitive(),
            owner_vcpus: column(9).as_primitive(),
            owner_states: column(10).as_primitive(),
            owner_delays_ns: column(11).as_primitive(),
            taken_vcpus: column(12).as_primitive(),
            taken_ns: column(13).as_primitive(),
        })
    }

    /// Returns the row's site, or an empty string if it has none.
    fn site(&self, row: usize, seen: &mut Seen) -> Result<String, String> {
        if self.sites.is_null(row) {
            return Ok(String::new());
        }
        let site = self.sites.value(row);
        let len = site.len();
        if len > MAX_SITE_BYTES {
            return Err(format!("row {row}: a site of {len} bytes, more than {MAX_SITE_BYTES}"));
        }
        seen.sites_bytes += len;
        if seen.sites_bytes > seen.max_sites_bytes {
            let max = seen.max_sites_bytes;
            return Err(format!("row {row}: the sites of all rows have more than {max} bytes"));
        }
        Ok(site.to_owned())
    }

    fn halted_ns(&self, row: usize, asleep: bool) -> u64 {
        let whole_ns = self.ends.value(row).saturating_sub(self.starts.value(row));
        if asleep { 0 } else { self.values.value(row).min(whole_ns) }
    }

    fn spin(&self, row: usize, wait: Wait, asleep: bool, site: String) -> Spin {
        let owner = self.owner_tids.is_valid(row).then(|| Owner {
            tid: self.owner_tids.value(row),
            vcpu: self.owner_vcpus.value(row),
            state: match self.owner_states.value(row) {
                2 => OwnerState::Runnable,
                3 => OwnerState::Asleep,
                _ => OwnerState::Running,
            },
            delay_ns: self.owner_delays_ns.value(row),
        });
        let before = self
            .taken_ns
            .is_valid(row)
            .then(|| Taken { vcpu: self.taken_vcpus.value(row), t_ns: self.taken_ns.value(row) });
        Spin {
            wait,
            asleep,
            lock: self.locks.value(row),
            vcpu: self.vcpus.value(row),
            tid: self.tids.value(row),
            begin_ns: self.starts.value(row),
            end_ns: self.ends.value(row),
            halted_ns: self.halted_ns(row, asleep),
            owner,
            before,
            site,
        }
    }

    fn add(&self, session: &mut Session, seen: &mut Seen, row: usize) -> Result<(), String> {
        let (vcpu, start_ns, end_ns) =
            (self.vcpus.value(row), self.starts.value(row), self.ends.value(row));
        if end_ns < start_ns {
            return Err(format!("row {row}: ends {end_ns} before it starts {start_ns}"));
        }
        session.vcpus = session.vcpus.max(vcpu.saturating_add(1));
        seen.vcpu(vcpu);
        let look = |state| Look { t_ns: start_ns, vcpu, state };
        let kind = self.kinds.value(row);
        match kind {
            OFF | WAKE => session.offs.push(FoundOff {
                vcpu,
                start_ns,
                end_ns,
                start_error_ns: self.values.value(row),
                was_idle: kind == WAKE,
            }),
            LOOK_ON => session.looks.push(look(VcpuState::On)),
            LOOK_OFF => session.looks.push(look(VcpuState::Off)),
            LOOK_IDLE => session.looks.push(look(VcpuState::Idle)),
            BEATS => {
                let before = seen.covered_to.insert(vcpu, end_ns).unwrap_or(0);
                if start_ns < before {
                    return Err(format!(
                        "row {row}: repeated or out of time order: vCPU {vcpu} is covered up to \
                         {before} ns already, and again from {start_ns} ns on"
                    ));
                }
                session.start_ns = session.start_ns.min(start_ns);
                session.end_ns = session.end_ns.max(end_ns);
                session.beats = session.beats.saturating_add(self.values.value(row));
            }
            LOST => session.lost = session.lost.saturating_add(self.values.value(row)),
            USER_SPIN => add_to(&mut session.user_spin_ns, vcpu, self.values.value(row)),
            STEAL => add_to(&mut session.steal_ns, vcpu, self.values.value(row)),
            IDLE => {}
            kind => {
                let known = WAITS.iter().find(|(name, _, _)| *name == kind);
                let (_, wait, asleep) = known.ok_or_else(|| unknown(row, kind))?;
                let site = self.site(row, seen)?;
                session.spins.push(self.spin(row, *wait, *asleep, site));
            }
        }
        Ok(())
    }
}

/// Describes a row of an unknown kind. The kind can be of any length, so it is truncated.
fn unknown(row: usize, kind: &str) -> String {
    let kind: String = kind.chars().take(SHOWN_CHARS).collect();
    format!("row {row}: format {VERSION} has no findings of kind `{kind}`")
}

/// Adds `value` to a vCPU's sum.
fn add_to(by_vcpu: &mut Vec<u64>, vcpu: u16, value: u64) {
    let at = usize::from(vcpu);
    by_vcpu.resize(by_vcpu.len().max(at + 1), 0);
    by_vcpu[at] = by_vcpu[at].saturating_add(value);
}

fn add(session: &mut Session, seen: &mut Seen, batch: &RecordBatch) -> Result<(), String> {
    let columns = Columns::of(batch).ok_or("a dictionary holds no text")?;
    (0..batch.num_rows()).try_for_each(|row| columns.add(session, seen, row))
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;

    #[test]
    fn of_a_session_that_is_too_long_the_first_batches_are_used() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
        for batch in 0..4 {
            let start_ns = 1_000 * batch;
            let off = FoundOff {
                vcpu: 0,
                start_ns,
                end_ns: start_ns + 10,
                start_error_ns: 0,
                was_idle: false,
            };
            writer.write(&[off; 5], &[], &[], &[]).unwrap();
        }
        writer.finish().unwrap();
        let read = |max_rows| read_within(&bytes[..], "s", max_rows, MAX_SITES_BYTES).unwrap();
        assert_eq!((read(20).offs.len(), read(20).incomplete), (20, None));
        let long = read(12);
        assert_eq!(long.offs.len(), 10);
        let says = long.incomplete.unwrap();
        assert!(says.starts_with("it has more than 12 rows"), "{says}");
    }

    #[test]
    fn the_copies_of_a_site_are_limited_together() {
        let spin = Spin {
            wait: Wait::Mutex,
            lock: 1,
            asleep: false,
            vcpu: 0,
            tid: 7,
            begin_ns: 10,
            end_ns: 20,
            halted_ns: 0,
            owner: None,
            before: None,
            site: "do_rename".into(),
        };
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, &About::default()).unwrap();
        for _ in 0..2 {
            writer.write(&[], &[spin.clone(), spin.clone()], &[], &[]).unwrap();
        }
        writer.finish().unwrap();
        let read = |max_bytes| read_within(&bytes[..], "s", MAX_ROWS, max_bytes);
        assert_eq!(read(36).unwrap().spins.len(), 4);
        let error = read(35).unwrap_err().to_string();
        assert_eq!(error, "s, batch 2: row 1: the sites of all rows have more than 35 bytes");
    }

    #[test]
    fn an_unknown_kind_is_shown_in_part() {
        let said = unknown(3, &"x".repeat(1 << 20));
        assert_eq!(said.len(), unknown(3, "").len() + SHOWN_CHARS);
    }
}
