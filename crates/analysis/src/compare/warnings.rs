//! Differences that make two experiments less comparable.

use unspin_model::Label;
use unspin_model::summary::Summary;

/// Returns one sentence for each difference that could explain a difference in speed.
pub fn of_summaries(a: &Summary, b: &Summary) -> Vec<String> {
    let (ma, mb) = (&a.machine, &b.machine);
    let kernel = |summary| only_kernel(summary).unwrap_or("several").to_owned();
    let texts = [
        ("CPU models", ma.cpu.clone(), mb.cpu.clone()),
        ("numbers of CPUs", ma.cpus.to_string(), mb.cpus.to_string()),
        ("host kernels", ma.kernel.clone(), mb.kernel.clone()),
        ("distributions", ma.distribution.clone(), mb.distribution.clone()),
        ("QEMU versions", ma.qemu.clone(), mb.qemu.clone()),
        ("unspin versions", ma.unspin.clone(), mb.unspin.clone()),
        ("commits", ma.commit.clone(), mb.commit.clone()),
        ("experiments", a.experiment.name.clone(), b.experiment.name.clone()),
        ("kernels", kernel(a), kernel(b)),
        ("labels", labels(a), labels(b)),
    ];
    let mut out: Vec<_> = texts
        .into_iter()
        .filter(|(_, of_a, of_b)| of_a != of_b)
        .map(|(what, of_a, of_b)| format!("Different {what}: {of_a} in A, {of_b} in B."))
        .collect();
    out.extend([("A", a), ("B", b)].into_iter().filter_map(|(name, summary)| {
        let missing = summary.planned.saturating_sub(summary.done);
        (missing > 0).then(|| format!("{name} lacks {missing} of its {} runs.", summary.planned))
    }));
    out
}

/// Returns the experiment's name of the kernel if all cells have the same one.
pub fn only_kernel(summary: &Summary) -> Option<&str> {
    let mut kernels = summary.cells.iter().map(|cell| cell.cell.kernel.as_str());
    let first = kernels.next()?;
    kernels.all(|kernel| kernel == first).then_some(first)
}

/// Returns the labels without the host, which has its own warnings.
fn labels(summary: &Summary) -> String {
    let mut texts: Vec<_> = summary.labels.iter().map(Label::to_string).collect();
    texts.sort();
    texts.dedup();
    texts.join("; ")
}
