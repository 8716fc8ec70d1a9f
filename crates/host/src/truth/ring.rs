//! Pages of the kernel's ring buffer (Documentation/trace/ring-buffer-design,
//! include/linux/ring_buffer.h). A page has a header with the time of its first event, then events
//! whose headers hold the time since the event before.

/// Size of a page that trace_pipe_raw returns.
pub const PAGE_BYTES: usize = 4096;

const HEADER_BYTES: usize = 16;
/// Bits of the header's `commit` that hold the length of the data. The bits above are flags.
const LENGTH_MASK: u64 = 0xf_ffff;
const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// Bits that an absolute time stamp cannot hold; the previous time supplies them.
const TIME_STAMP_HIGH: u64 = 0xf800_0000_0000_0000;

/// Returns the number at the head of an event's records, from the event's `format` file.
pub fn event_id(format: &str) -> Option<u16> {
    format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()
}

/// Returns the offset of a field in its event's records.
pub fn offset(format: &str, field: &str) -> Option<usize> {
    let line = format.lines().find(|line| {
        let declaration = line.trim().strip_prefix("field:").and_then(|l| l.split(';').next());
        declaration.and_then(|d| d.split_whitespace().last()) == Some(field)
    })?;
    line.split("offset:").nth(1)?.split(';').next()?.parse().ok()
}

/// Calls `each` with the records of a page and their times. A malformed event ends the page.
pub fn parse_page(page: &[u8], each: &mut impl FnMut(u64, &[u8])) {
    let (Some(mut t_ns), Some(commit)) = (u64_at(page, 0), u64_at(page, 8)) else { return };
    let end = (HEADER_BYTES + (commit & LENGTH_MASK) as usize).min(page.len());
    let mut at = HEADER_BYTES;
    while let Some(header) = u32_at(&page[..end], at) {
        let (kind, delta) = (header & 0x1f, u64::from(header >> 5));
        at += 4;
        let length = match kind {
            TYPE_TIME_EXTEND | TYPE_TIME_STAMP => {
                let Some(high) = u32_at(&page[..end], at) else { return };
                let value = (u64::from(high) << 27) + delta;
                t_ns = if kind == TYPE_TIME_EXTEND {
                    t_ns.wrapping_add(value)
                } else {
                    (t_ns & TIME_STAMP_HIGH) | (value & !TIME_STAMP_HIGH)
                };
                at += 4;
                continue;
            }
            // Padding with no delta fills the rest of the page.
            TYPE_PADDING if delta == 0 => return,
            TYPE_PADDING | 0 => {
                let Some(length) = u32_at(&page[..end], at) else { return };
                // The length counts its own word in an event, but not in padding.
                at += if kind == 0 { 4 } else { 0 };
                if kind == 0 { (length as usize).saturating_sub(4) } else { length as usize }
            }
            words => words as usize * 4,
        };
        t_ns = t_ns.wrapping_add(delta);
        let Some(record) = page.get(at..at + length) else { return };
        if kind != TYPE_PADDING {
            each(t_ns, record);
        }
        at += length;
    }
}

/// Reads eight bytes as a number. Returns `None` beyond the end.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Reads four bytes as a number. Returns `None` beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    /// Returns a page as the kernel writes it: each record with the time since the one before.
    pub fn page(events: &[(u32, Vec<u8>)]) -> Vec<u8> {
        let mut data = Vec::new();
        for (delta, record) in events {
            data.extend(((delta << 5) | (record.len() / 4) as u32).to_le_bytes());
            data.extend(record);
        }
        let mut page = 1_000_u64.to_le_bytes().to_vec();
        page.extend((data.len() as u64).to_le_bytes());
        page.extend(data);
        page.resize(PAGE_BYTES, 0);
        page
    }

    fn records(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut records = Vec::new();
        parse_page(page, &mut |t_ns, record| records.push((t_ns, record.to_vec())));
        records
    }

    #[test]
    fn the_exact_field_is_taken() {
        assert_eq!((event_id(SWITCH), offset(SWITCH, "prev_pid")), (Some(316), Some(24)));
        assert_eq!((event_id("ID: x"), offset(SWITCH, "pid")), (None, None));
    }

    #[test]
    fn times_are_summed_up() {
        let (a, b) = (vec![1; 8], vec![2; 64]);
        let page = page(&[(5, a.clone()), (7, b.clone())]);
        assert_eq!(records(&page), [(1_005, a), (1_012, b)]);
    }

    #[test]
    fn a_page_cut_anywhere_never_panics() {
        let whole = page(&[(5, vec![1; 64]), (7, vec![2; 64])]);
        for length in 0..200 {
            assert!(records(&whole[..length]).len() <= 2);
        }
    }

    #[test]
    fn random_pages_never_panic() {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
        for _ in 0..2_000 {
            let mut page = vec![0_u8; PAGE_BYTES];
            rng.fill(&mut page[..]);
            // The length lies within the page, so that the parser looks at the events.
            page[8..16].copy_from_slice(&(rng.random_range(0..4080_u64)).to_le_bytes());
            assert!(records(&page).len() <= PAGE_BYTES / 4);
        }
    }
}
