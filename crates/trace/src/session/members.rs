//! The gzip members of a session file.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

use super::MAX_BATCH_BYTES;

/// The end of an Arrow stream: a continuation mark and a length of zero (Arrow columnar format,
/// "IPC streaming format"). The writer gives it a member of its own.
pub(super) const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Reader of one member after the other.
pub(super) struct Members<R> {
    pub(super) input: R,
    /// Offset of the member that was read last.
    pub(super) begin: u64,
    /// Number of bytes read.
    pub(super) read: u64,
}

impl<R: BufRead> Members<R> {
    /// Returns the next member, whole and with the right checksum; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.begin = self.read;
        if self.input.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        GzDecoder::new(&mut *self).take(MAX_BATCH_BYTES).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == MAX_BATCH_BYTES {
            return Err(io::Error::other(format!("more than {MAX_BATCH_BYTES} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Describes the end of a file that was cut off within a member. Member 0 is the head.
    pub(super) fn cut_off(&self, index: usize) -> String {
        let Members { begin, read, .. } = self;
        let used = batches(index - 1);
        format!("cut off in batch {index}, at byte {read}; {used}, up to byte {begin}, are used")
    }

    /// Describes the end of a file that was cut off between members.
    pub(super) fn no_end(&self, members: usize) -> String {
        format!(
            "the file has no end after batch {}, at byte {}: the recorder was killed, or the \
             rest was cut off",
            members - 1,
            self.read
        )
    }
}

fn batches(count: usize) -> String {
    if count == 1 { "the batch before".into() } else { format!("the {count} batches before") }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.read += count as u64;
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Members<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.read += count as u64;
        self.input.consume(count);
    }
}
