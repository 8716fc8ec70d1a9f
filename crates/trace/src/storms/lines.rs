//! Lines of a trace, gzipped or not.

use std::io::{self, BufRead, BufReader, ErrorKind};

use flate2::bufread::MultiGzDecoder;

/// Maximum length of a line in bytes; those of a trace are shorter.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Magic number of gzip data.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Returns the text of an input that may be gzipped.
pub(super) fn decoded<'a>(mut input: impl BufRead + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    if input.fill_buf()?.starts_with(&GZIP) {
        let text = MultiGzDecoder::new(input);
        return Ok(Box::new(BufReader::with_capacity(1 << 18, text)));
    }
    Ok(Box::new(input))
}

/// Calls `each` for each line, truncated to `LINE_BYTES_MAX`. A line that lies whole in the input's
/// buffer is not copied. Returns the number of lines, and a description of where the input is cut
/// off, if it is; `each` does not get a line that is cut off.
pub(super) fn each(
    mut input: impl BufRead,
    mut each: impl FnMut(&[u8]),
) -> io::Result<(u64, Option<String>)> {
    let (mut lines, mut begun) = (0, Vec::new());
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                let what = format!("its gzip data is cut off after line {lines}");
                return Ok((lines, Some(what)));
            }
            Err(error) => {
                let what = format!("damaged after line {lines}: {error}");
                return Err(io::Error::new(error.kind(), what));
            }
        };
        if buffer.is_empty() {
            if begun.is_empty() {
                return Ok((lines, None));
            }
            // What is left of its address may be another address.
            let what = format!("line {} is cut off", lines + 1);
            return Ok((lines + 1, Some(what)));
        }
        let mut rest = buffer;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            if begun.is_empty() {
                each(&rest[..end]);
            } else {
                append(&mut begun, &rest[..end]);
                each(&begun);
                begun.clear();
            }
            lines += 1;
            rest = &rest[end + 1..];
        }
        append(&mut begun, rest);
        let read = buffer.len();
        input.consume(read);
    }
}

fn append(line: &mut Vec<u8>, more: &[u8]) {
    let room = LINE_BYTES_MAX - line.len();
    line.extend_from_slice(&more[..more.len().min(room)]);
}
