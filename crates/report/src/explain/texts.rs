//! The texts of the topics. A cause without a text does not compile.

use unspin_model::episode::Cause;

use super::causes::{in_sentence, in_table};
use super::{Explanation, Topic};

/// Advice on `unspin run`, for every topic in which preemption prolongs waits.
const RUN: &str = "In the guest: `sudo unspin run` limits tasks to as many vCPUs as do the most \
                   useful work. It needs cgroup version 2, or sched_ext; `unspin doctor` says \
                   what this kernel has. Where the host offers PV spinlocks and steal time, it \
                   does nothing without `--actuator cpuset`.";
/// Advice on using fewer vCPUs, without any tool.
const FEWER: &str = "Without unspin: use fewer vCPUs. Hold the work to half of them \
                     (with four, `taskset -c 0,1 CMD`, or `AllowedCPUs=` of its systemd unit) \
                     and measure again.";
/// Advice on the host.
const HOST: &str = "On the host: give the guest as many pCPUs as it has busy vCPUs, or fewer \
                    vCPUs; let KVM help (steal time, PV spinlocks, pause exits). \
                    `unspin doctor` lists which of these this guest gets.";

/// Returns the text of a topic.
pub(super) fn of(topic: Topic) -> Explanation {
    match topic {
        Topic::Preempted => preempted(),
        Topic::Cause(Cause::HolderOff) => holder_off(),
        Topic::Cause(Cause::WaiterOff) => waiter_off(),
        Topic::Cause(Cause::IpiOff) => ipi_off(),
        Topic::Cause(Cause::HolderPreempted) => holder_preempted(),
        Topic::Cause(Cause::Plain) => plain(),
        Topic::UserSpin => user_spin(),
        Topic::Steal => steal(),
        Topic::PauseStorm => pause_storm(),
    }
}

/// Returns the names of a cause in the verdict and in the table.
const fn shown_as(cause: Cause) -> [&'static str; 2] {
    [in_sentence(cause), in_table(cause)]
}

fn preempted() -> Explanation {
    Explanation {
        name: "preempted",
        also: &["off"],
        shown_as: &[],
        brief: "the host took the vCPU away while it wanted to run",
        means: "The host runs more vCPUs than it has pCPUs, or holds the guest to a quota. \
                While a vCPU is off, its task makes no progress and the guest's kernel does \
                not know it. By itself that is time that others got: a guest cannot take it \
                back. It becomes waste when other vCPUs wait for the one that is off.",
        recognised: "A timer tick, a heartbeat or an answer to an interrupt comes later than \
                     it can while the vCPU is on (`--late`). Steal time is not needed; where \
                     the hypervisor counts it, it is shown for comparison.",
        remedies: &[
            "If no locks are involved, there is nothing to mend in the guest: ask who runs \
             the host for more pCPUs or a larger quota, or use fewer vCPUs.",
            "If locks are involved, see holder-off, waiter-off and ipi-off: that part can be \
             got back.",
        ],
    }
}

fn holder_off() -> Explanation {
    Explanation {
        name: Cause::HolderOff.name(),
        also: &["lhp"],
        shown_as: const { &shown_as(Cause::HolderOff) },
        brief: "lock-holder preemption: the vCPU of the lock's holder was off",
        means: "The host preempted a vCPU whose thread held a lock. All other threads that \
                need the lock spin or sleep until that vCPU runs again: milliseconds for a \
                critical section of microseconds.",
        recognised: "The kernel named the owner of the mutex, and its vCPU was off for at \
                     least half of the wait (sure: 95 %); or the vCPU that took the spinlock \
                     last was (85 %); or one vCPU was off for most of the spin, which ended \
                     within 1 ms of its return (60 %); or passing the spinlock from one vCPU \
                     to the next took 1 ms or longer, which it never does while both are on \
                     (70 %).",
        remedies: &[RUN, FEWER, HOST],
    }
}

fn waiter_off() -> Explanation {
    Explanation {
        name: Cause::WaiterOff.name(),
        also: &["lwp"],
        shown_as: const { &shown_as(Cause::WaiterOff) },
        brief: "lock-waiter preemption: the vCPU of a waiter in front was off",
        means: "Queued spinlocks, native and PV, serve waiters in the order in which they \
                came. Where the host preempts a waiter whose turn it is, nobody behind it can \
                have the lock, though it is free. With PV spinlocks, waiters halt instead of \
                spinning on. Test-and-set spinlocks have no queue, so a waiter that is off \
                delays nobody; `unspin doctor` says which this kernel has.",
        recognised: "Another thread waited for the same lock, got it earlier, and its vCPU \
                     was off for most of this spin (sure: 85 %); or the lock took 1 ms or \
                     longer to get to it (70 %).",
        remedies: &[
            RUN,
            FEWER,
            "Where `unspin doctor` says that this virtual machine has the native queue: boot it \
             without nopvspin, and let its host not set KVM's realtime hint. The kernel then \
             chooses test-and-set spinlocks, which pass over waiters that are off, or PV ones.",
            "On the host: offer KVM's PV spinlocks (kvm-pv-unhalt).",
        ],
    }
}

fn ipi_off() -> Explanation {
    Explanation {
        name: Cause::IpiOff.name(),
        also: &["ipi", "csd", "tlb", "ipi-target-off"],
        shown_as: const { &shown_as(Cause::IpiOff) },
        brief: "a vCPU that had to answer an IPI or a TLB flush was off",
        means: "TLB shootdowns (munmap, mprotect, page migration) and other calls to all \
                vCPUs wait until each has answered (csd_lock_wait in profiles). One that is \
                off answers when the host runs it again; the caller spins meanwhile.",
        recognised: "The vCPU that was off longest while the caller waited was off for at \
                     least half of that time (sure: 85 %). The wait is seen at \
                     smp_call_function_many_cond, which needs fentry; without it, these waits \
                     are not shown.",
        remedies: &[
            RUN,
            "On the host: let KVM answer for vCPUs that are off (kvm-pv-tlb-flush and \
             kvm-pv-sched-yield, both with kvm-steal-time). `unspin doctor` says which the \
             guest has.",
            "In the program: fewer shootdowns. Keep freed memory (glibc: M_TRIM_THRESHOLD, \
             M_MMAP_THRESHOLD), unmap in larger pieces, run fewer threads in one process.",
        ],
    }
}

fn holder_preempted() -> Explanation {
    Explanation {
        name: Cause::HolderPreempted.name(),
        also: &["holder-not-run"],
        shown_as: const { &shown_as(Cause::HolderPreempted) },
        brief: "the guest's own scheduler ran others instead of the holder",
        means: "The holder wanted to run, its vCPU was on, and another task had it: more \
                runnable tasks than vCPUs, or a holder of low priority. The host has no part \
                in it.",
        recognised: "The kernel named the owner of the mutex; it was runnable and not \
                     running when the wait began, or for at least half of it (sure: 95 %).",
        remedies: &[
            "`sudo unspin run --actuator sched-ext` runs lock holders that have waiters next, \
             and lets them finish (handoff).",
            "Run fewer threads than vCPUs, or give threads that share a lock the same \
             priority and cgroup.",
        ],
    }
}

fn plain() -> Explanation {
    Explanation {
        name: Cause::Plain.name(),
        also: &["contention"],
        shown_as: const { &shown_as(Cause::Plain) },
        brief: "contention: the holders ran, but too many want the lock",
        means: "Too many threads want the same lock. Every holder makes progress, so neither a \
                scheduler nor a hypervisor can help; the same work would wait on a machine of \
                its own.",
        recognised: "None of the vCPUs that were waited for was off for half of the wait, and \
                     the guest's scheduler ran the holder.",
        remedies: &[
            "Look at \"where\" in the report: the function that wanted the lock says what is \
             shared (one directory, one mm, one pipe).",
            "Share less: more directories, processes instead of threads, fewer workers. Fewer \
             workers on fewer vCPUs are often faster; try `taskset`.",
        ],
    }
}

fn user_spin() -> Explanation {
    Explanation {
        name: "user-spin",
        also: &["user-space"],
        shown_as: &[],
        brief: "programs spin in user space, on locks or waits of their own",
        means: "A thread repeats PAUSE until another one has finished: spinlocks of \
                databases, OpenMP and MPI barriers, busy polling. Where the other one's vCPU \
                is off, that is wasted; where it polls on purpose, it is not. The kernel \
                cannot distinguish the two.",
        recognised: "A timer tick interrupts user code within 24 bytes of a PAUSE instruction; \
                     it stands for the time since the tick before. A sample, and a guess: \
                     loops without PAUSE are missed. Needs CONFIG_KALLSYMS_ALL.",
        remedies: &[
            "Let the runtime sleep instead: OMP_WAIT_POLICY=passive, mpi_yield_when_idle, a \
             lock that blocks after some spins.",
            FEWER,
            "`sudo unspin run` does not help: it acts on spinning in the kernel only.",
        ],
    }
}

fn steal() -> Explanation {
    Explanation {
        name: "steal",
        also: &["steal-time"],
        shown_as: &[],
        brief: "time off as the hypervisor counts it",
        means: "KVM and others tell the guest afterwards how long each vCPU was runnable and \
                not running. Confidential guests and many clouds get none, or 0. unspin does \
                not rely on it and shows it for comparison.",
        recognised: "Read from /proc/stat, which counts in steps of 10 ms. 0 means that there \
                     was none, or that nobody counts.",
        remedies: &[
            "If it is much more than what unspin found, intervals were too short for `--late`, \
             which is 200 us or more by default: measure with `--late 100`. If it is much less, \
             the hypervisor does not count all.",
        ],
    }
}

fn pause_storm() -> Explanation {
    Explanation {
        name: "pause-storm",
        also: &["ple", "storm"],
        shown_as: &[],
        brief: "a vCPU exits to the host again and again because it spins",
        means: "The host's pause-loop exiting catches a vCPU that repeats PAUSE, and KVM lets \
                another vCPU of the guest run instead. If the wrong one runs, the spinner \
                comes back and exits again: a storm. It is the host's view of holder-off and \
                waiter-off.",
        recognised: "`unspin trace FILE` finds runs of PAUSE exits of one vCPU in a host's \
                     trace of kvm_exit and kvm_entry, whatever the guest is.",
        remedies: &[
            "In the guest: find out what spins with `sudo unspin record`, and see holder-off.",
            "On the host: a larger kvm_intel.ple_window or kvm_amd.pause_filter_count makes exits \
             rarer, PV spinlocks make most of them needless.",
        ],
    }
}
