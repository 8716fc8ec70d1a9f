//! Turns the files that a run left into its result.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};
use unspin_model::class::chain;
use unspin_model::{FailureKind, TruthSummary};
use unspin_trace::TraceError;
use unspin_trace::check::{self, Rules};
use unspin_trace::virtual_time::{
    self, Clock, Exits, Mark, Record, Truth, reason_name, verdict_name,
};
use unspin_wire::{
    Booted, Failure, Fairness, JobResult, Marked, PauseExits, RunOutput, RunSpec, TruthMode,
    VirtualHost, VmSpec,
};

use super::args::{RECORD_FILE, RESULTS_FILE};
use super::{Ended, Replies, UNTIL_STATUS, bad_reply, explain, unreadable};

/// Bytes of a file that are hashed at a time.
const CHUNK_BYTES: usize = 1 << 16;

/// Returns the result of a run whose QEMU exited: the job's result, or "did not finish" if virtual
/// time ran out during the job. If it ran out before the job began, the run failed.
pub fn judge(
    ended: &Ended,
    (vm, host): (&VmSpec, &VirtualHost),
    run: &RunSpec,
    folder: &Path,
) -> Result<RunOutput, Failure> {
    let timed_out = ended.status.code() == Some(UNTIL_STATUS);
    let Replies { hello, job } = &ended.replies;
    let hello = match (hello, job) {
        (Some(hello), Some(_)) => hello,
        (Some(hello), None) if timed_out => hello,
        (None, Some(_)) => return Err(bad_reply("a result without a hello")),
        (_, None) => {
            // A guest may fail in any way if its host breaks its own rules.
            let broken = read(folder).ok().and_then(|record| check(&record, host, vm.pinned).err());
            return Err(broken.unwrap_or_else(|| explain(no_result(ended, timed_out), folder)));
        }
    };
    // A QEMU that was killed did not finish its record. Its host broke no rule.
    let record = read(folder).map_err(|broken| match ended.status.code() {
        Some(_) => broken,
        None => explain(no_result(ended, false), folder),
    })?;
    check(&record, host, vm.pinned)?;
    if let Some(why) = hello.unfit(vm.vcpus) {
        return Err(explain(Failure::new(FailureKind::BootTimeout, why), folder));
    }
    if job.is_none() && record.mark_ns(Mark::Begin).is_none() {
        let why = "the job did not begin within the virtual time limit: the guest hung before it";
        return Err(explain(Failure::new(FailureKind::GuestHang, why), folder));
    }
    let mut output = RunOutput {
        booted: Some(booted(ended, &record)),
        neighbours: host.neighbours.iter().map(|_| None).collect(),
        kvm: counters(&record),
        digest: Some(digest(folder).map_err(|e| unreadable(folder, &e))?),
        job: job.clone(),
        ..RunOutput::default()
    };
    let truth = output.job.as_ref().and_then(|job| truth(&record, job));
    if let Some(truth) = truth.filter(|_| run.truth != TruthMode::Off) {
        output.neighbours_on_s = per_vm(host, &truth.neighbours_on_s);
        let injected = run.injection.is_some().then(|| record.injected());
        output.truth = Some(TruthSummary { injected, ..truth.summary });
        output.recording = (run.truth == TruthMode::Events).then_some(truth.recording);
    }
    Ok(output)
}

fn read(folder: &Path) -> Result<Record, Failure> {
    virtual_time::read(&folder.join(RECORD_FILE)).map_err(|error| {
        let kind = match &error {
            TraceError::Open { .. } => FailureKind::QemuDied,
            _ => FailureKind::InvariantBroken,
        };
        Failure::new(kind, chain(&error).to_string())
    })
}

/// Checks the record against the invariants.
fn check(record: &Record, host: &VirtualHost, pinned: bool) -> Result<(), Failure> {
    check::check(record, &rules(host, pinned, record))
        .map_err(|violation| Failure::new(FailureKind::InvariantBroken, violation.to_string()))
}

fn no_result(ended: &Ended, timed_out: bool) -> Failure {
    let (kind, detail) = match (timed_out, ended.status.code()) {
        (true, _) => (FailureKind::BootTimeout, "no hello within the virtual time limit".into()),
        (false, Some(0)) => {
            (FailureKind::NoResult, "the guest powered off without a result".to_owned())
        }
        (false, _) => (FailureKind::QemuDied, format!("QEMU: {}", ended.status)),
    };
    Failure::new(kind, detail)
}

/// Returns the SHA-256 of the guest's replies and the host's record.
fn digest(folder: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    for file in [RESULTS_FILE, RECORD_FILE] {
        let mut file = File::open(folder.join(file))?;
        hash.update(file.metadata()?.len().to_le_bytes());
        while let n @ 1.. = file.read(&mut chunk)? {
            hash.update(&chunk[..n]);
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the parameters of the invariants. Entities are numbered from the guest's vCPUs on,
/// followed by the vCPUs of each neighbour.
fn rules(host: &VirtualHost, pinned: bool, record: &Record) -> Rules {
    let guest = std::iter::repeat_n(0, record.vcpus as usize);
    let neighbours = host.neighbours.iter().zip(1..);
    let neighbours =
        neighbours.flat_map(|(neighbour, vm)| std::iter::repeat_n(vm, neighbour.vcpus as usize));
    Rules {
        quantum_ns: host.quantum_ns,
        per_vm: host.fairness == Fairness::PerVm,
        yields: host.help.pause_exits != PauseExits::Off
            || host.help.steal_time
            || host.help.pv_unhalt,
        vm_of: guest.chain(neighbours).collect(),
        held_to: if pinned { held_to(record) } else { Vec::new() },
        weights: host.cpu.weight.map(|weight| f64::from(weight) / 100.0).into_iter().collect(),
        quota_ns: host.cpu.max.map(|max| (max.quota_us * 1_000, max.period_us * 1_000)),
    }
}

/// Returns the pCPU of each pinned vCPU. If vCPUs outnumber pCPUs, consecutive vCPUs share one.
fn held_to(record: &Record) -> Vec<u8> {
    let pcpus = record.pcpus.min(record.vcpus);
    (0..record.vcpus).map(|vcpu| (vcpu * pcpus / record.vcpus) as u8).collect()
}

/// Describes the boot. It lasts until the job begins, in virtual time.
fn booted(ended: &Ended, record: &Record) -> Booted {
    let begin_ns = record.mark_ns(Mark::Begin).unwrap_or(0);
    let hellos = ended.replies.hello.iter().cloned().collect();
    Booted { hellos, boot_s: begin_ns as f64 / 1e9 }
}

/// Returns the number of exits between the job's marks, and the virtual time charged for them.
fn counters(record: &Record) -> BTreeMap<String, u64> {
    let exits = record.job_exits.iter().flat_map(|(reason, Exits { count, price_ns })| {
        let name = reason_name(*reason);
        [(format!("exit:{name}"), *count), (format!("exit-ns:{name}"), *price_ns)]
    });
    let loops = record.job_pause_loops.iter().map(|(verdict, n)| ("pause-loop", verdict, n));
    let yields = record.job_yields.iter().map(|(verdict, n)| ("yield", verdict, n));
    let [preemptions, critical] = record.job_preemptions;
    let others = [
        ("storm-exits", record.job_storm_exits),
        ("preemptions", preemptions),
        ("critical-preemptions", critical),
    ];
    let others = others.map(|(name, n)| (name.to_owned(), n));
    let ended = loops.chain(yields);
    let ended = ended.map(|(what, verdict, n)| (format!("{what}:{}", verdict_name(*verdict)), *n));
    exits.chain(ended).chain(others).chain(answers(record)).collect()
}

/// Returns how many pause loops were reflected to the guest, and what the guest answered.
/// `holder:A:B` counts how often vCPU A, the first waiter at a spinlock, named B as its owner.
fn answers(record: &Record) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut add = |name: String, n| *counts.entry(name).or_insert(0) += n;
    if record.job_reflections > 0 {
        add("reflections".into(), record.job_reflections);
    }
    for ((vcpu, answer), n) in record.job_answers.iter().filter(|(_, n)| **n > 0) {
        add(format!("answer:{}:{}", answer.wait_name(), answer.outcome_name()), *n);
        if answer.owner.or(answer.before).is_some() {
            add("answers-named".into(), *n);
        }
        if answer.is_at_a_spinlock() {
            let owner = answer.owner.map_or("nobody".into(), |owner| owner.to_string());
            add(format!("holder:{vcpu}:{owner}"), *n);
        }
    }
    counts
}

/// Returns the ground truth of the job's window, or `None` if the window is unknown because the
/// host recorded no marks.
fn truth(record: &Record, job: &JobResult) -> Option<Truth> {
    let [begin, end] = job.marks.as_slice() else { return None };
    let window = (record.mark_ns(Mark::Begin)?, record.mark_ns(Mark::End)?);
    let ((begin, begin_error_ns), (end, end_error_ns)) = (instant(begin), instant(end));
    let error_ns = begin_error_ns.max(end_error_ns);
    let mut truth = record.truth("subject", window, &Clock { begin, end, error_ns });
    truth.summary.alignment_error_us = Some(error_ns as f64 / 1e3);
    Some(truth)
}

/// Returns the virtual time and the guest's clock at one instant, and their maximal error in
/// nanoseconds. The guest's time stamp counter counts virtual nanoseconds unless the guest has set
/// it. If it does, the error is small: the counter was read much closer to the clock than the mark
/// was.
fn instant(mark: &Marked) -> ((u64, u64), u64) {
    let around_ns = mark.after_ns.saturating_sub(mark.before.mono_ns);
    let counts_virtual_ns =
        (mark.before.tsc..=mark.before.tsc + around_ns).contains(&mark.virtual_ns);
    if counts_virtual_ns {
        return ((mark.before.tsc, mark.before.mono_ns), mark.before.error_ns);
    }
    let middle_ns = mark.before.mono_ns.midpoint(mark.after_ns);
    ((mark.virtual_ns, middle_ns), around_ns.div_ceil(2))
}

/// Sums the seconds of vCPUs for each neighbour.
fn per_vm(host: &VirtualHost, by_vcpu_s: &[f64]) -> Vec<f64> {
    let mut rest = by_vcpu_s.iter();
    let sum = |vcpus: u32| rest.by_ref().take(vcpus as usize).sum();
    host.neighbours.iter().map(|neighbour| neighbour.vcpus).map(sum).collect()
}
