//! `unspin watch`, drawn from a synthetic guest.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use unspin_model::diagnosis::Scheduling;
use unspin_model::episode::{Owner, OwnerState, Spin, Wait};
use unspin_model::scheduler::Stats;
use unspin_model::session::FoundOff;
use unspin_report::live::{Picture, View, draw};
use unspin_report::verdict::{Origin, judge};
use unspin_trace::live::{Live, News};

const MS: u64 = 1_000_000;
const SLICE_NS: u64 = 200 * MS;
const SLICES: u64 = 75;

/// A guest whose vCPUs share too few pCPUs: they are off for 0 to 8 of every 20 ms, and for more in
/// each seventh slice. The last vCPU but one is idle. A slice lasts 200 ms.
fn guest(vcpus: u16, slices: u64) -> Live {
    let mut live = Live::new(vcpus, 0);
    let idle = vcpus.saturating_sub(2);
    for slice in 0..slices {
        let start_ns = slice * SLICE_NS;
        let mut offs = Vec::new();
        for vcpu in (0..vcpus).filter(|vcpu| *vcpu != idle) {
            let slower = if slice % 7 == u64::from(vcpu % 7) { 8 } else { 0 };
            let len_ns = (u64::from(vcpu) * 5 % 9 + slower) * MS;
            for start_ns in (start_ns..start_ns + SLICE_NS).step_by(20 * MS as usize) {
                let end_ns = start_ns + len_ns;
                offs.push(FoundOff { vcpu, start_ns, end_ns, start_error_ns: 0, was_idle: false });
            }
        }
        offs.retain(|off| off.end_ns > off.start_ns);
        let mut idle_ns = vec![0; usize::from(vcpus)];
        idle_ns[usize::from(idle)] = SLICE_NS;
        let spins = spins(vcpus, start_ns);
        let user_spin_ns = vec![4 * MS; usize::from(vcpus)];
        let steal_ns = vec![if vcpus > 4 { 30 * MS } else { 0 }; usize::from(vcpus)];
        live.add(
            start_ns + SLICE_NS,
            News { offs, spins, idle_ns, user_spin_ns, steal_ns, ..News::default() },
        );
    }
    live
}

/// Returns some spins and waits of each kind.
fn spins(vcpus: u16, start_ns: u64) -> Vec<Spin> {
    let places = [
        (Wait::Mutex, false, OwnerState::Running, "do_renameat2"),
        (Wait::Mutex, true, OwnerState::Running, "do_renameat2"),
        (Wait::Spinlock, false, OwnerState::Running, "d_alloc_parallel"),
        (Wait::Spinlock, false, OwnerState::Running, "__percpu_counter_compare_and_add_all"),
        (Wait::Ipi, false, OwnerState::Running, "flush_tlb_mm_range"),
        (Wait::Futex, true, OwnerState::Runnable, "__x64_sys_futex"),
        (Wait::Rwsem, true, OwnerState::Running, "vm_mmap_pgoff"),
        (Wait::Mutex, false, OwnerState::Running, "pipe_write"),
        (Wait::Spinlock, false, OwnerState::Running, ""),
    ];
    let spin = |(place, (wait, asleep, state, site)): (usize, (Wait, bool, OwnerState, &str))| {
        let owned = !matches!(wait, Wait::Spinlock | Wait::Ipi);
        let vcpu = place as u16 % vcpus;
        Spin {
            wait,
            lock: 0xffff_8880_0000_1000 + place as u64 * 64,
            asleep,
            vcpu: 0,
            tid: 100,
            begin_ns: start_ns,
            end_ns: start_ns + (9 - place as u64) * MS,
            halted_ns: 0,
            owner: owned.then_some(Owner { tid: 77, vcpu, state, delay_ns: 0 }),
            before: None,
            site: site.into(),
        }
    };
    places.into_iter().enumerate().map(spin).collect()
}

fn picture(vcpus: u16, width: u16, height: u16, view: View) -> String {
    picture_beside(None, &guest(vcpus, SLICES), (width, height), view)
}

fn picture_beside(
    scheduler: Option<&Stats>,
    live: &Live,
    (width, height): (u16, u16),
    mut view: View,
) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let machine = "confidential VM (AMD SEV-SNP)";
    let digest = &live.digest();
    let verdict = &judge(digest, Origin::Here(Scheduling::Ready), &["waits for IPIs"]);
    let picture = Picture { live, digest, verdict, machine, scheduler };
    terminal.draw(|frame| _ = draw(frame, picture, &mut view)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn four_vcpus_in_a_small_terminal() {
    insta::assert_snapshot!(picture(4, 80, 24, View::of(4)));
}

#[test]
fn four_vcpus_in_a_large_terminal() {
    insta::assert_snapshot!(picture(4, 160, 50, View::of(4)));
}

#[test]
fn many_vcpus_in_a_small_terminal() {
    insta::assert_snapshot!(picture(256, 80, 24, View::of(256)));
}

#[test]
fn many_vcpus_in_a_large_terminal() {
    insta::assert_snapshot!(picture(256, 160, 50, View::of(256)));
}

#[test]
fn the_last_of_many_vcpus_are_scrolled_to() {
    let view = View { first: usize::MAX, worst_first: false, paused: true, help: false };
    insta::assert_snapshot!(picture(256, 80, 24, view));
}

#[test]
fn a_narrow_terminal_cuts_no_column_and_no_label() {
    insta::assert_snapshot!(picture(4, 40, 24, View::of(4)));
    insta::assert_snapshot!(picture(256, 40, 24, View::of(256)));
}

#[test]
fn the_ends_of_the_time_line_do_not_touch() {
    for slices in 1..30 {
        let text = picture_beside(None, &guest(4, slices), (80, 24), View::of(4));
        let line =
            text.lines().find(|line| line.contains("off  ")).expect("a line above the lanes");
        assert!(line.contains(" now") && !line.contains("snow"), "{slices}: {line}");
        let ago = line.contains(" s ");
        assert_eq!(ago, slices >= 8, "{slices}: {line}");
    }
}

#[test]
fn a_small_terminal_still_says_what_the_kernel_hides() {
    for size in [(40, 24), (80, 24)] {
        let text = picture_beside(Some(&Stats::default()), &guest(4, SLICES), size, View::of(4));
        let said = ["not shown: waits for IPIs", "does not show waits for IPIs"];
        assert!(said.iter().any(|said| text.contains(said)), "{size:?}: {text}");
    }
}

#[test]
fn help_says_what_keys_and_signs_mean() {
    let view = View { help: true, ..View::of(4) };
    insta::assert_snapshot!(picture(4, 80, 24, view));
    insta::assert_snapshot!(picture(4, 40, 24, view));
}

#[test]
fn a_scheduler_has_a_line_and_marks_what_it_does_not_use() {
    let stats = Stats {
        seconds: 75.0,
        vcpus: 4,
        used: 2,
        used_vcpus: vec![0, 2],
        trial: true,
        off_s: 4.5,
        spin_s: 2.25,
        trials_fewer: [12, 4],
        trials_more: [7, 3],
        extended: 8,
        handed: 5,
        slept: 3,
        ..Stats::default()
    };
    for size in [(80, 24), (190, 24)] {
        insta::assert_snapshot!(picture_beside(Some(&stats), &guest(4, SLICES), size, View::of(4)));
    }
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
    for (width, height) in [(1, 1), (10, 3), (40, 5), (40, 10), (80, 8), (300, 100)] {
        for vcpus in [1, 8, 300] {
            for help in [false, true] {
                picture(vcpus, width, height, View { help, ..View::of(vcpus) });
            }
        }
    }
}
