//! The pages of the kernel's ring buffer (Documentation/trace/ring-buffer-design,
//! include/linux/ring_buffer.h): a header with the time of the page's first
//! event, then events whose headers hold the time since the one before.

use super::states::{Change, ThreadEvent};

/// Size of a page as trace_pipe_raw returns it.
pub const PAGE_BYTES: usize = 4096;

const HEADER_BYTES: usize = 16;
/// Bits of the header's `commit` that hold the length of the data; those above are flags.
const LENGTH_MASK: u64 = 0xf_ffff;
const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// Bits that an absolute time stamp cannot hold; they come from the time before it.
const TIME_STAMP_HIGH: u64 = 0xf800_0000_0000_0000;

/// Where the fields that are read stand in their events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    switch_id: u16,
    prev_pid: usize,
    prev_state: usize,
    next_pid: usize,
    waking_id: u16,
    waking_pid: usize,
    wakeup_id: u16,
    wakeup_pid: usize,
}

impl Layout {
    /// From the three events' `format` files; `None` where a field is missing.
    pub fn parse(switch: &str, waking: &str, wakeup: &str) -> Option<Layout> {
        Some(Layout {
            switch_id: event_id(switch)?,
            prev_pid: offset(switch, "prev_pid")?,
            prev_state: offset(switch, "prev_state")?,
            next_pid: offset(switch, "next_pid")?,
            waking_id: event_id(waking)?,
            waking_pid: offset(waking, "pid")?,
            wakeup_id: event_id(wakeup)?,
            wakeup_pid: offset(wakeup, "pid")?,
        })
    }
}

fn event_id(format: &str) -> Option<u16> {
    format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()
}

fn offset(format: &str, field: &str) -> Option<usize> {
    let line = format.lines().find(|line| {
        let declaration = line.trim().strip_prefix("field:").and_then(|l| l.split(';').next());
        declaration.and_then(|d| d.split_whitespace().last()) == Some(field)
    })?;
    line.split("offset:").nth(1)?.split(';').next()?.parse().ok()
}

/// Appends the events of a page. What does not parse ends the page.
pub fn parse_page(page: &[u8], layout: &Layout, out: &mut Vec<ThreadEvent>) {
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
                // The length counts its own word in an event, and not in padding.
                at += if kind == 0 { 4 } else { 0 };
                if kind == 0 { (length as usize).saturating_sub(4) } else { length as usize }
            }
            words => words as usize * 4,
        };
        t_ns = t_ns.wrapping_add(delta);
        let Some(record) = page.get(at..at + length) else { return };
        if kind != TYPE_PADDING {
            parse_record(record, t_ns, layout, out);
        }
        at += length;
    }
}

fn parse_record(record: &[u8], t_ns: u64, layout: &Layout, out: &mut Vec<ThreadEvent>) {
    let id = record.get(..2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let pid = |offset| u32_at(record, offset).map(|pid| pid as i32);
    if id == Some(layout.switch_id) {
        let (Some(prev), Some(next)) = (pid(layout.prev_pid), pid(layout.next_pid)) else { return };
        let Some(state) = u64_at(record, layout.prev_state) else { return };
        // Bits 0 to 7 are the sleeping states (TASK_REPORT); none set is
        // runnable. Preemption sets TASK_REPORT_MAX beside them.
        let change = if state & 0xff == 0 { Change::Preempted } else { Change::Slept };
        out.push(ThreadEvent { t_ns, tid: prev, change });
        out.push(ThreadEvent { t_ns, tid: next, change: Change::SwitchedIn });
        return;
    }
    let (offset, change) = match id {
        Some(id) if id == layout.waking_id => (layout.waking_pid, Change::Waking),
        Some(id) if id == layout.wakeup_id => (layout.wakeup_pid, Change::Woken),
        _ => return,
    };
    if let Some(tid) = pid(offset) {
        out.push(ThreadEvent { t_ns, tid, change });
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n";
    const WAKING: &str = "name: sched_waking\nID: 318\nformat:\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    const WAKEUP: &str = "name: sched_wakeup\nID: 317\nformat:\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";

    fn layout() -> Layout {
        Layout::parse(SWITCH, WAKING, WAKEUP).unwrap()
    }

    fn switch_record(prev: i32, state: u64, next: i32) -> Vec<u8> {
        let mut record = vec![0; 64];
        record[..2].copy_from_slice(&316_u16.to_le_bytes());
        record[24..28].copy_from_slice(&prev.to_le_bytes());
        record[32..40].copy_from_slice(&state.to_le_bytes());
        record[56..60].copy_from_slice(&next.to_le_bytes());
        record
    }

    fn page(events: &[(u32, Vec<u8>)]) -> Vec<u8> {
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

    #[test]
    fn layout_takes_the_exact_field() {
        assert_eq!(layout().prev_pid, 24);
        assert_eq!(layout().next_pid, 56);
        assert_eq!(layout().waking_id, 318);
        assert!(Layout::parse("ID: 3\n", WAKING, WAKEUP).is_none());
    }

    #[test]
    fn switches_are_read_with_their_times() {
        let page = page(&[(5, switch_record(11, 0x100, 12)), (7, switch_record(12, 1, 11))]);
        let mut events = Vec::new();
        parse_page(&page, &layout(), &mut events);
        let got: Vec<_> = events.iter().map(|e| (e.t_ns, e.tid, e.change)).collect();
        assert_eq!(
            got,
            [
                (1_005, 11, Change::Preempted),
                (1_005, 12, Change::SwitchedIn),
                (1_012, 12, Change::Slept),
                (1_012, 11, Change::SwitchedIn)
            ]
        );
    }

    #[test]
    fn a_wake_up_has_two_events() {
        let wake = |id: u16| {
            let mut record = vec![0; 28];
            record[..2].copy_from_slice(&id.to_le_bytes());
            record[24..28].copy_from_slice(&11_i32.to_le_bytes());
            record
        };
        let mut events = Vec::new();
        parse_page(&page(&[(5, wake(318)), (2, wake(317)), (1, wake(5))]), &layout(), &mut events);
        let got: Vec<_> = events.iter().map(|e| (e.t_ns, e.tid, e.change)).collect();
        assert_eq!(got, [(1_005, 11, Change::Waking), (1_007, 11, Change::Woken)]);
    }

    #[test]
    fn a_page_cut_anywhere_never_panics() {
        let whole = page(&[(5, switch_record(11, 0, 12)), (7, switch_record(12, 1, 11))]);
        for length in 0..200 {
            let mut events = Vec::new();
            parse_page(&whole[..length], &layout(), &mut events);
            assert!(events.len() <= 4);
        }
    }

    #[test]
    fn random_pages_never_panic() {
        use rand::{RngExt, SeedableRng};
        let mut rng = rand_pcg::Pcg64::seed_from_u64(1);
        for _ in 0..2_000 {
            let mut page = vec![0_u8; PAGE_BYTES];
            rng.fill(&mut page[..]);
            // A length within the page, so that the events are looked at.
            page[8..16].copy_from_slice(&(rng.random_range(0..4080_u64)).to_le_bytes());
            let mut events = Vec::new();
            parse_page(&page, &layout(), &mut events);
            assert!(events.len() <= 2 * PAGE_BYTES / 4);
        }
    }
}
