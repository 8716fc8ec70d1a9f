//! The lab from its command line, with real guests: what it measures, and what
//! it does when something goes wrong. Needs QEMU and a kernel; a test that
//! cannot run here says why, and exit code 77 means that none could.

mod basics;
mod bench;
mod claims;
mod config;
mod confine;
mod faults;
mod nested;
mod scheduler;
mod scheduler_faults;
mod scheduler_waits;
mod virtual_time;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use bench::Missing;

type Needs = Option<fn() -> Missing>;
type Test = fn() -> Result<(), Failed>;

/// Name, what it needs, body.
const TESTS: [(&str, Needs, Test); 40] = [
    ("malformed_toml_names_line_and_choices", None, config::malformed_toml),
    ("impossible_topology_names_line_and_offer", None, config::impossible_topology),
    ("unknown_experiment_lists_the_shipped_ones", None, config::unknown_experiment),
    ("dry_run_counts_runs", None, config::dry_run),
    ("shipped_experiments_parse", None, config::shipped_experiments_parse),
    ("man_pages_and_completions_are_written", None, config::man_and_completions),
    ("missing_program_names_its_package", Some(bench::guest), faults::missing_package),
    ("measures_and_reports", Some(bench::guest), basics::measures_and_reports),
    ("doctor_knows_the_guest", Some(bench::guest), basics::doctor),
    ("a_guest_records_itself", Some(bench::guest_and_tracing), basics::records_itself),
    ("guest_scheduler_runs_a_command", Some(bench::guest), scheduler::runs_a_command),
    ("guest_scheduler_spares_named", Some(bench::guest), scheduler::spares_named_holders),
    ("guest_scheduler_spares_holders", Some(bench::guest), scheduler::spares_holders_of_mutexes),
    ("guest_scheduler_always_leaves", Some(bench::guest), scheduler::leaves_however_it_ends),
    ("guest_scheduler_spreads_over_pcpus", Some(bench::guest), scheduler::spreads_over_pcpus),
    ("guest_scheduler_tells_its_figures", Some(bench::guest), scheduler::tells_its_figures),
    ("guest_scheduler_faults_are_told", Some(bench::guest), scheduler_faults::told),
    ("guest_scheduler_comes_and_goes", Some(bench::guest), scheduler_faults::comes_and_goes),
    ("guest_scheduler_and_suspend", Some(bench::suspending_guest), scheduler_faults::suspend),
    ("guest_scheduler_and_a_stop", Some(bench::guest), scheduler_faults::stopped_by_the_host),
    ("guest_scheduler_lets_all_run", Some(bench::guest), scheduler_waits::all_kinds),
    ("guest_scheduler_limits_groups", Some(bench::guest), scheduler_waits::groups_by_limit),
    ("guest_scheduler_weighs_groups", Some(bench::guest), scheduler_waits::groups_by_weight),
    ("guest_scheduler_and_cgroups", Some(bench::guest), scheduler_waits::cgroups_and_forks),
    ("confine_comes_and_goes", Some(virtual_time::vt_guest), confine::comes_and_goes),
    ("neighbours_run_in_lock_step", Some(bench::guest_and_cgroups), basics::neighbours),
    ("injected_off_intervals_come_back", Some(bench::guest_and_tracing), basics::truth),
    ("a_time_limit_is_a_result", Some(bench::guest), basics::did_not_finish),
    ("guest_panic_is_told_and_passed", Some(bench::guest), faults::guest_panic),
    ("boot_hang_is_told_and_passed", Some(bench::guest), faults::boot_hang),
    ("out_of_memory_is_told", Some(bench::guest), faults::out_of_memory),
    ("killed_qemu_is_told_and_passed", Some(bench::guest), faults::qemu_killed),
    ("full_disk_loses_nothing", Some(bench::guest_and_root), faults::full_disk),
    ("ctrl_c_then_resume", Some(bench::guest), faults::ctrl_c),
    ("a_changed_experiment_is_measured_again", Some(bench::guest), faults::changed_experiment),
    ("vt_refuses_real_neighbours", None, virtual_time::real_neighbours_are_refused),
    ("vt_gives_the_same_bytes", Some(virtual_time::vt_guest), virtual_time::same_bytes_twice),
    ("vt_failures_have_their_kind", Some(virtual_time::vt_guest), virtual_time::failures),
    ("claims_are_measured_again_each_time", Some(bench::guest), claims::check_measures_each_time),
    ("nested_regimes", Some(bench::lab_kernel), nested::regimes),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test wants the CPUs for itself.
    arguments.test_threads = Some(1);
    let mut able = 0;
    let trials = TESTS.map(|(name, needs, test)| {
        let missing = needs.and_then(|missing| missing());
        if let Some(reason) = &missing {
            eprintln!("skipped {name}: {reason}");
        } else {
            able += 1;
        }
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    });
    if able == 0 {
        return ExitCode::from(77);
    }
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
