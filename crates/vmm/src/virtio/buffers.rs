//! The guest memory that a descriptor chain names: pieces, which are consumed from the front.

use std::io;
use std::os::fd::RawFd;

use vm_memory::VolatileSlice;

/// Pieces of guest memory. The guest may change their bytes at any time, so the code copies a value
/// once and checks the copy.
#[derive(Debug, Default)]
pub struct Buffers<'m> {
    pieces: Vec<VolatileSlice<'m>>,
}

impl<'m> Buffers<'m> {
    /// Removes all pieces.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: VolatileSlice<'m>) {
        self.pieces.push(piece);
    }

    /// Returns the number of pieces.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns the number of bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Takes `N` bytes from the front. Returns `None` if there are fewer.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        if self.bytes() < N as u64 {
            return None;
        }
        self.each(N, |piece, at| {
            piece.copy_to(&mut bytes[at..at + piece.len()]);
        });
        Some(bytes)
    }

    /// Writes to the front as far as there is room, and returns the number of bytes written.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let count = self.bytes().min(bytes.len() as u64) as usize;
        self.each(count, |piece, at| piece.copy_from(&bytes[at..at + piece.len()]));
        count
    }

    /// Drops `bytes` bytes from the front, or all if there are fewer.
    pub fn skip(&mut self, bytes: usize) {
        let count = self.bytes().min(bytes as u64) as usize;
        self.each(count, |_, _| {});
    }

    /// Keeps at most `bytes` bytes from the front.
    pub fn truncate(&mut self, bytes: usize) {
        let mut room = bytes;
        self.pieces.retain_mut(|piece| {
            // The length is at most the piece's, so `subslice` succeeds.
            if let Ok(kept) = piece.subslice(0, piece.len().min(room)) {
                *piece = kept;
            }
            room -= piece.len().min(room);
            !piece.is_empty()
        });
    }

    /// Removes the last byte and returns it.
    pub fn take_last(&mut self) -> Option<Buffers<'m>> {
        let piece = self.pieces.pop()?;
        // Pieces are not empty.
        let (rest, last) = piece.split_at(piece.len().checked_sub(1)?).ok()?;
        if !rest.is_empty() {
            self.pieces.push(rest);
        }
        Some(Buffers { pieces: vec![last] })
    }

    /// Calls `call` with each piece of the first `count` bytes and its offset in them, and drops
    /// these bytes. The caller ensures that they exist.
    fn each(&mut self, count: usize, mut call: impl FnMut(&VolatileSlice<'m>, usize)) {
        let (mut done, mut whole) = (0, 0);
        while done < count {
            let piece = self.pieces[whole];
            let bytes = piece.len().min(count - done);
            // `bytes` is at most the piece's length, so the piece can be split there.
            let Ok((front, rest)) = piece.split_at(bytes) else { break };
            call(&front, done);
            done += bytes;
            if rest.is_empty() {
                whole += 1;
            } else {
                self.pieces[whole] = rest;
            }
        }
        self.pieces.drain(..whole);
    }

    /// Returns the pieces for a system call. They live as long as the guest's memory.
    fn vectors(&self) -> Vec<libc::iovec> {
        let vector = |piece: &VolatileSlice| libc::iovec {
            iov_base: piece.ptr_guard_mut().as_ptr().cast(),
            iov_len: piece.len(),
        };
        self.pieces.iter().map(vector).collect()
    }

    /// Reads from a file into the pieces once, at the file's position.
    pub fn read_from(&self, fd: RawFd) -> io::Result<usize> {
        let vectors = self.vectors();
        // SAFETY: the vectors are guest memory, which stays mapped; any bytes may be written.
        checked(unsafe { libc::readv(fd, vectors.as_ptr(), vectors.len() as i32) })
    }

    /// Writes the pieces to a file once, at the file's position.
    pub fn write_to(&self, fd: RawFd) -> io::Result<usize> {
        let vectors = self.vectors();
        // SAFETY: the vectors are guest memory, which stays mapped.
        checked(unsafe { libc::writev(fd, vectors.as_ptr(), vectors.len() as i32) })
    }

    /// Fills all pieces from a file at `offset`. The end of the file is an error.
    pub fn read_exact_at(mut self, fd: RawFd, mut offset: u64) -> io::Result<()> {
        while !self.pieces.is_empty() {
            let vectors = self.vectors();
            let (list, count) = (vectors.as_ptr(), vectors.len() as i32);
            // SAFETY: as in `read_from`.
            let done = checked(unsafe { libc::preadv(fd, list, count, offset as i64) })?;
            offset += self.advance(done)?;
        }
        Ok(())
    }

    /// Writes all pieces to a file at `offset`.
    pub fn write_all_at(mut self, fd: RawFd, mut offset: u64) -> io::Result<()> {
        while !self.pieces.is_empty() {
            let vectors = self.vectors();
            let (list, count) = (vectors.as_ptr(), vectors.len() as i32);
            // SAFETY: as in `write_to`.
            let done = checked(unsafe { libc::pwritev(fd, list, count, offset as i64) })?;
            offset += self.advance(done)?;
        }
        Ok(())
    }

    fn advance(&mut self, done: usize) -> io::Result<u64> {
        if done == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.skip(done);
        Ok(done as u64)
    }
}

/// Converts a system call's result. An interrupted call has done nothing, and is an error like any
/// other: the devices' threads run no signal handlers.
fn checked(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};

    use super::*;
    use crate::memory::{self, Memory};

    fn buffers<'m>(memory: &'m Memory, pieces: &[(u64, usize)]) -> Buffers<'m> {
        let mut buffers = Buffers::default();
        for (at, bytes) in pieces {
            buffers.push(memory.get_slice(GuestAddress(*at), *bytes).unwrap());
        }
        buffers
    }

    #[test]
    fn bytes_are_taken_and_put_across_pieces() {
        let memory = memory::new(2 << 20).unwrap();
        memory.write_slice(b"abcdefgh", GuestAddress(0)).unwrap();
        let mut pieces = buffers(&memory, &[(0, 3), (4, 2), (6, 1)]);
        let status = pieces.take_last().unwrap();
        assert_eq!((pieces.bytes(), status.bytes(), pieces.pieces()), (5, 1, 2));
        assert_eq!(pieces.take::<4>(), Some(*b"abce"));
        assert_eq!(pieces.take::<2>(), None);
        assert_eq!(pieces.put(b"XY"), 1);
        assert_eq!((pieces.bytes(), pieces.pieces()), (0, 0));
        let mut after = [0; 8];
        memory.read_slice(&mut after, GuestAddress(0)).unwrap();
        assert_eq!(&after, b"abcdeXgh");
        let mut pieces = buffers(&memory, &[(0, 3)]);
        let last = pieces.take_last().unwrap();
        assert_eq!((pieces.bytes(), last.bytes()), (2, 1));
        for (kept, expected) in [(9, (6, 3)), (5, (5, 2)), (3, (3, 1)), (0, (0, 0))] {
            let mut pieces = buffers(&memory, &[(0, 3), (4, 2), (6, 1)]);
            pieces.truncate(kept);
            assert_eq!((pieces.bytes(), pieces.pieces()), expected);
        }
    }

    #[test]
    fn files_are_read_and_written_at_an_offset() {
        let memory = memory::new(2 << 20).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        buffers(&memory, &[(0, 2), (4, 3)]).read_exact_at(file.as_raw_fd(), 5).unwrap();
        let mut read = [0; 7];
        memory.read_slice(&mut read, GuestAddress(0)).unwrap();
        assert_eq!(&read, b"56\0\x00789");
        assert!(buffers(&memory, &[(0, 2)]).read_exact_at(file.as_raw_fd(), 9).is_err());
        buffers(&memory, &[(4, 3)]).write_all_at(file.as_raw_fd(), 0).unwrap();
        buffers(&memory, &[(16, 4)]).read_exact_at(file.as_raw_fd(), 0).unwrap();
        memory.read_slice(&mut read, GuestAddress(16)).unwrap();
        assert_eq!(&read[..4], b"7893");
    }
}
