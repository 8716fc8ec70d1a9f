//! Tests of the lab's command line with real guests: its measurements, and its behaviour on
//! failures. They need QEMU and a kernel. A test that cannot run here prints the reason. Exit code
//! 77 means that no test with such requirements could run.

mod ab;
mod basics;
mod bench;
mod claims;
mod config;
mod confine;
mod faults;
mod nested;
mod scheduler;
mod virtual_time;

use std::process::ExitCode;
use std::sync::{PoisonError, RwLock};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use bench::{Needs, guest, guest_and_root, guest_and_tracing};
use virtual_time::{vt_answering_guest, vt_guest, vt_guest_and_compiler, vt_guest_and_root};

/// The share of the machine that a test needs.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    /// Virtual time, which no load disturbs, or no guest at all. Several such tests run in
    /// parallel.
    Little,
    /// Real time. No other test runs at the same time.
    Machine,
    /// Minutes. Only `make test-all` runs the test.
    Minutes,
}

/// The function of a test.
#[derive(Clone, Copy)]
enum Test {
    /// A test that passes or fails.
    Plain(Plain),
    /// A test that may find the machine too busy to judge its measurements.
    Timed(fn() -> Result<Completion, Failed>),
}

type Plain = fn() -> Result<(), Failed>;

impl Test {
    fn run(self) -> Result<Completion, Failed> {
        match self {
            Test::Plain(test) => test().map(|()| Completion::Completed),
            Test::Timed(test) => test(),
        }
    }
}

/// A test with its requirements.
struct Case {
    name: &'static str,
    needs: Needs,
    takes: Takes,
    test: Test,
}

/// The environment variable that `make test-all` sets.
const ALL: &str = "UNSPIN_TEST_ALL";

/// Lock that a test takes for writing if it needs the machine for itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// The plain cases, except those of [`ab`] and [`scheduler`].
const CASES: [(&str, Needs, Takes, Plain); 39] = {
    use Takes::{Little, Machine, Minutes};
    [
        ("malformed_toml_names_line_and_choices", None, Little, config::malformed_toml),
        ("impossible_topology_names_line_and_offer", None, Little, config::impossible_topology),
        (
            "unknown_experiment_names_the_one_that_is_meant",
            None,
            Little,
            config::unknown_experiment,
        ),
        ("dry_run_counts_runs", None, Little, config::dry_run),
        ("shipped_experiments_parse", None, Little, config::shipped_experiments_parse),
        ("man_pages_and_completions_are_written", None, Little, config::man_and_completions),
        ("missing_program_names_its_package", Some(guest), Little, faults::missing_package),
        ("measures_and_reports", Some(guest_and_tracing), Machine, basics::measures_and_reports),
        ("a_guest_records_itself", Some(vt_guest), Little, basics::records_itself),
        ("confine_comes_and_goes", Some(vt_guest), Little, confine::comes_and_goes),
        ("confine_rests_where_the_host_helps", Some(vt_guest), Little, confine::rests),
        ("confine_leaves_what_others_set", Some(vt_guest), Little, confine::leaves_others),
        (
            "confine_comes_and_goes_on_trixie",
            Some(confine::trixie),
            Little,
            confine::comes_and_goes_on_trixie,
        ),
        (
            "confine_comes_and_goes_on_bookworm",
            Some(confine::bookworm),
            Minutes,
            confine::comes_and_goes_on_bookworm,
        ),
        (
            "confine_counts_where_preempted",
            Some(vt_guest),
            Minutes,
            confine::counts_where_preempted,
        ),
        (
            "confine_needs_the_units_rights_only",
            Some(vt_guest),
            Little,
            confine::needs_the_unit_s_rights_only,
        ),
        ("confine_survives_more", Some(vt_guest), Minutes, confine::survives_more),
        ("confine_follows_hotplug", Some(vt_guest), Minutes, confine::follows_hotplug),
        ("neighbours_run_in_lock_step", Some(guest_and_root), Machine, basics::neighbours),
        ("failures_have_their_kinds", Some(vt_guest), Little, faults::kinds),
        ("boot_hang_is_told_and_passed", Some(vt_guest), Little, faults::boot_hang),
        ("out_of_memory_is_told", Some(vt_guest), Little, faults::out_of_memory),
        ("killed_qemu_is_told_and_passed", Some(vt_guest), Little, faults::qemu_killed),
        ("full_disk_loses_nothing", Some(vt_guest_and_root), Little, faults::full_disk),
        ("ctrl_c_then_resume", Some(vt_guest), Little, faults::ctrl_c),
        (
            "a_changed_experiment_is_measured_again",
            Some(vt_guest),
            Little,
            faults::changed_experiment,
        ),
        ("vt_refuses_real_neighbours", None, Little, virtual_time::real_neighbours_are_refused),
        ("vt_gives_the_same_bytes", Some(vt_guest), Little, virtual_time::same_bytes_twice),
        ("vt_injects_exactly", Some(vt_guest), Little, virtual_time::injected_times_are_exact),
        ("vt_clocks_agree", Some(vt_guest_and_compiler), Little, virtual_time::clocks_agree),
        ("vt_refuses_wrong_options", Some(vt_guest), Little, virtual_time::wrong_options),
        ("vt_neighbours_sleep", Some(vt_guest), Little, virtual_time::neighbours_sleep),
        ("vt_counts_critical", Some(vt_guest), Little, virtual_time::critical_sections_are_counted),
        ("vt_yields_to_kicked", Some(vt_guest), Little, virtual_time::kicked_vcpus_are_yielded_to),
        ("vt_sees_first_waiters", Some(vt_guest), Little, virtual_time::first_waiters_are_seen),
        ("vt_emulates_sev_es", Some(vt_guest), Little, virtual_time::confidential_guest),
        (
            "vt_reflects_pause_loops",
            Some(vt_answering_guest),
            Little,
            virtual_time::reflected_pause_loops_name_the_holder,
        ),
        ("claims_are_measured_again", Some(vt_guest), Little, claims::check_measures_each_time),
        ("nested_regimes", Some(bench::lab_kernel), Minutes, nested::regimes),
    ]
};

/// The only timed case.
const TRUTH: Case = Case {
    name: "injected_off_intervals_come_back",
    needs: Some(guest_and_tracing),
    takes: Takes::Machine,
    test: Test::Timed(basics::truth),
};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    // CI must not pass only because most tests are skipped.
    let in_ci = std::env::var_os("CI").is_some() && !arguments.list;
    if let Some(reason) = in_ci.then(vt_guest_and_root).flatten() {
        eprintln!("failed: CI {reason}");
        return ExitCode::FAILURE;
    }
    let all = std::env::var_os(ALL).is_some();
    let plain = |(name, needs, takes, test)| Case { name, needs, takes, test: Test::Plain(test) };
    let others = CASES.map(plain);
    let mut cases: Vec<Case> =
        ab::cases().into_iter().chain(scheduler::cases()).chain(others).chain([TRUTH]).collect();
    // Parallel tests come first, so that none of them waits for a test that needs the machine.
    cases.sort_by_key(|case| case.takes != Takes::Little);
    let mut able = 0;
    let trials = cases.into_iter().map(|case| {
        let missing = case.missing(all);
        match &missing {
            Some(reason) => eprintln!("skipped {}: {reason}", case.name),
            None => able += usize::from(case.needs.is_some()),
        }
        Trial::ignorable_test(case.name, move || case.run()).with_ignored_flag(missing.is_some())
    });
    let trials = trials.collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    let are_all = arguments.filter.is_none() && !arguments.list;
    if able == 0 && are_all && !conclusion.has_failed() {
        return ExitCode::from(77);
    }
    conclusion.exit_code()
}

impl Case {
    /// Returns why the case does not run here, or `None` if it does.
    fn missing(&self, all: bool) -> Option<String> {
        if self.takes == Takes::Minutes && !all {
            return Some("takes minutes: run `make test-all`".into());
        }
        self.needs.and_then(|missing| missing())
    }

    fn run(&self) -> Result<Completion, Failed> {
        if self.takes == Takes::Little {
            let _beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
            return self.test.run();
        }
        let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        self.test.run()
    }
}
