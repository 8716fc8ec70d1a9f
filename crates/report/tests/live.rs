//! `unspin watch`, drawn from a synthetic guest.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use unspin_model::episode::{Owner, OwnerState, Spin, Wait};
use unspin_model::session::FoundOff;
use unspin_report::live::{View, draw};
use unspin_trace::live::Live;

const MS: u64 = 1_000_000;

/// A guest whose odd vCPUs are off for 4 of every 10 ms, and whose last one is idle.
fn guest(vcpus: u16) -> Live {
    let mut live = Live::new(vcpus, 0);
    for slice in 0..150_u64 {
        let start_ns = slice * 100 * MS;
        let mut offs = Vec::new();
        for vcpu in (1..vcpus).step_by(2) {
            for at in (0..100).step_by(if slice % 7 == 0 { 5 } else { 20 }) {
                let start_ns = start_ns + at * MS;
                let end_ns = start_ns + 4 * MS;
                offs.push(FoundOff { vcpu, start_ns, end_ns, start_error_ns: 0, was_idle: false });
            }
        }
        let spin = |wait, site: &str, vcpu, tid| Spin {
            wait,
            lock: 0xffff_8880_0000_1000,
            asleep: false,
            vcpu: 0,
            tid: 100,
            begin_ns: start_ns,
            end_ns: start_ns + 4 * MS,
            owner: Some(Owner { tid, vcpu, state: OwnerState::Running, delay_ns: 0 }),
            before: None,
            site: site.into(),
        };
        let spins = vec![
            spin(Wait::Mutex, "do_renameat2", 1, 77),
            spin(Wait::Spinlock, "d_alloc_parallel", 2, 78),
        ];
        let mut idle_ns = vec![0; usize::from(vcpus)];
        idle_ns[usize::from(vcpus) - 2] = 100 * MS;
        live.add(start_ns + 100 * MS, offs, spins, idle_ns, 0);
    }
    live
}

fn picture(vcpus: u16, width: u16, height: u16, view: View) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let live = guest(vcpus);
    terminal.draw(|frame| draw(frame, &live, view, "confidential VM (AMD SEV-SNP)")).unwrap();
    terminal.backend().to_string()
}

#[test]
fn four_vcpus_in_a_small_terminal() {
    insta::assert_snapshot!(picture(4, 80, 24, View::default()));
}

#[test]
fn many_vcpus_in_a_small_terminal_scroll() {
    let view = View { first: 250, worst_first: false, paused: true };
    insta::assert_snapshot!(picture(256, 80, 24, view));
}

#[test]
fn many_vcpus_in_a_large_terminal() {
    let view = View { worst_first: true, ..View::default() };
    insta::assert_snapshot!(picture(256, 160, 50, view));
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    for (width, height) in [(1, 1), (10, 3), (40, 5), (80, 8), (300, 100)] {
        picture(8, width, height, View::default());
    }
}
