//! Plots of a session.

use unspin_model::Session;
use unspin_model::episode::Spin;

use crate::format::{count as count_text, number};
use crate::svg::axis;
use crate::svg::canvas::{Anchor, Canvas};
use crate::svg::scale::Scale;

/// Number of slices of time in a lane.
const SLICES: usize = 300;
/// Maximum number of vCPUs with a lane: those that were off most.
pub const LANES: usize = 32;

const WIDTH: f64 = 880.0;
const PLOT_X: (f64, f64) = (76.0, 862.0);
const LANE_HEIGHT: f64 = 24.0;
const LANE_GAP: f64 = 5.0;
const BARS_HEIGHT: f64 = 150.0;
const TOP: f64 = 8.0;
const AXIS_HEIGHT: f64 = 28.0;

/// Plots how much of each slice of time each vCPU was off, and spun.
pub fn lanes(session: &Session) -> String {
    let is_online = |vcpu: &u16| session.offline.binary_search(vcpu).is_err();
    let mut vcpus: Vec<u16> = (0..session.vcpus).filter(is_online).collect();
    if vcpus.len() > LANES {
        let mut off_ns = vec![0_u64; usize::from(session.vcpus)];
        for off in &session.offs {
            if let Some(sum) = off_ns.get_mut(usize::from(off.vcpu)) {
                *sum = sum.saturating_add(off.end_ns - off.start_ns);
            }
        }
        vcpus.sort_by_key(|vcpu| std::cmp::Reverse(off_ns[usize::from(*vcpu)]));
        vcpus.truncate(LANES);
        vcpus.sort_unstable();
    }
    let bottom = TOP + vcpus.len() as f64 * (LANE_HEIGHT + LANE_GAP);
    let label = "Share of time that each vCPU was off, and spun";
    let mut canvas = Canvas::new("", WIDTH, bottom + AXIS_HEIGHT, label);
    let span_ns = session.end_ns.saturating_sub(session.start_ns);
    // The last tick stays within the plot, and the lanes end where the session ends.
    let scale = Scale { values: (0.0, span_ns as f64 / 1e9), ..Scale::linear(1.0, PLOT_X) };
    axis::draw(&mut canvas, &scale, (TOP, bottom), " s");
    for (row, vcpu) in (0_u32..).zip(&vcpus) {
        let floor = TOP + f64::from(row + 1) * (LANE_HEIGHT + LANE_GAP) - LANE_GAP;
        canvas.text("place", (0.0, floor - 7.0), Anchor::Start, &format!("vCPU {vcpu}"));
        let size = (PLOT_X.1 - PLOT_X.0, LANE_HEIGHT);
        canvas.rect("lane", (PLOT_X.0, floor - LANE_HEIGHT), size, 0.0, "");
        let offs = session.offs.iter().filter(|off| off.vcpu == *vcpu);
        let off = shares(session, offs.map(|off| (off.start_ns, off.end_ns, 1.0)));
        let spins = session.spins.iter().filter(|spin| spin.vcpu == *vcpu && !spin.asleep);
        let spun = shares(session, spins.map(|spin| (spin.begin_ns, spin.end_ns, awake(spin))));
        let both: Vec<f64> = off.iter().zip(&spun).map(|(a, b)| (a + b).min(1.0)).collect();
        canvas.shape("spun", &steps(&both, floor), "");
        canvas.shape("off", &steps(&off, floor), "");
    }
    canvas.finish()
}

/// Returns the share of a spin for which its vCPU was not halted. The recording does not say when
/// it was halted.
fn awake(spin: &Spin) -> f64 {
    let whole_ns = spin.end_ns.saturating_sub(spin.begin_ns);
    whole_ns.saturating_sub(spin.halted_ns) as f64 / whole_ns.max(1) as f64
}

/// Returns the share of each slice that periods of time cover, each with its weight.
fn shares(session: &Session, stretches: impl Iterator<Item = (u64, u64, f64)>) -> Vec<f64> {
    let mut shares = vec![0.0; SLICES];
    let slice_ns = session.end_ns.saturating_sub(session.start_ns) as f64 / SLICES as f64;
    if slice_ns <= 0.0 {
        return shares;
    }
    let place = |t_ns: u64| {
        (t_ns.saturating_sub(session.start_ns) as f64 / slice_ns).clamp(0.0, SLICES as f64)
    };
    for (start_ns, end_ns, weight) in stretches {
        let (from, to) = (place(start_ns), place(end_ns));
        let last = (to.ceil() as usize).min(SLICES);
        for (slice, share) in shares.iter_mut().enumerate().take(last).skip(from as usize) {
            *share += weight * (to.min(slice as f64 + 1.0) - from.max(slice as f64)).max(0.0);
        }
    }
    shares.iter().map(|share| share.min(1.0)).collect()
}

/// Returns the outline of a lane's bars, from the bottom up.
fn steps(shares: &[f64], floor: f64) -> Vec<(f64, f64)> {
    let width = (PLOT_X.1 - PLOT_X.0) / SLICES as f64;
    let mut points = vec![(PLOT_X.0, floor)];
    let mut height = 0.0;
    for (slice, share) in shares.iter().enumerate() {
        if (share - height).abs() > 1e-9 {
            let x = PLOT_X.0 + width * slice as f64;
            points.extend([height, *share].map(|height| (x, floor - LANE_HEIGHT * height)));
            height = *share;
        }
    }
    points.extend([(PLOT_X.1, floor - LANE_HEIGHT * height), (PLOT_X.1, floor)]);
    points
}

/// Plots the lengths of off intervals: a bar for each class of lengths. Returns `None` if there
/// were none.
pub fn lengths(session: &Session) -> Option<String> {
    const PER_DECADE: f64 = 6.0;
    let ms: Vec<f64> = session
        .offs
        .iter()
        .map(|off| ((off.end_ns - off.start_ns) as f64 / 1e6).max(1e-3))
        .collect();
    let class = |ms: f64| (ms.log10() * PER_DECADE).floor() as i32;
    let first = ms.iter().map(|ms| class(*ms)).min()?;
    let last = ms.iter().map(|ms| class(*ms)).max()?;
    let mut counts = vec![0_u64; (last - first + 1) as usize];
    for ms in &ms {
        counts[(class(*ms) - first) as usize] += 1;
    }
    let bound = |class: i32| 10_f64.powf(f64::from(class) / PER_DECADE);
    let floor = TOP + BARS_HEIGHT;
    let label = "How long off intervals were";
    let mut canvas = Canvas::new("", WIDTH, floor + AXIS_HEIGHT, label);
    let scale = Scale::log(bound(first), bound(last + 1), PLOT_X);
    axis::draw(&mut canvas, &scale, (TOP, floor), " ms");
    let most = *counts.iter().max()? as f64;
    canvas.text("tick", (PLOT_X.0 - 10.0, TOP + 10.0), Anchor::End, &count_text(most as u64));
    for (class, count) in (first..).zip(&counts).filter(|(_, count)| **count > 0) {
        let (from, to) = (scale.at(bound(class)), scale.at(bound(class + 1)));
        let height = BARS_HEIGHT * *count as f64 / most;
        let tip = format!("{} to {} ms: {count}", number(bound(class)), number(bound(class + 1)));
        let size = (to - from - 2.0, height);
        canvas.rect("off", (from + 1.0, floor - height), size, 1.0, &tip);
    }
    Some(canvas.finish())
}

#[cfg(test)]
mod tests {
    use unspin_model::episode::Wait;

    use super::*;

    /// The text and the verdict do not count the halted time, either.
    #[test]
    fn a_halted_waiter_spins_for_the_rest_only() {
        let spin = Spin {
            wait: Wait::Spinlock,
            lock: 1,
            asleep: false,
            vcpu: 0,
            tid: 7,
            begin_ns: 100,
            end_ns: 200,
            halted_ns: 75,
            owner: None,
            before: None,
            site: String::new(),
        };
        let session = Session { end_ns: SLICES as u64, ..Session::default() };
        let drawn = shares(&session, [(spin.begin_ns, spin.end_ns, awake(&spin))].into_iter());
        assert_eq!([99, 100, 199, 200].map(|slice| drawn[slice]), [0.0, 0.25, 0.25, 0.0]);
        assert_eq!(awake(&Spin { halted_ns: 0, ..spin }), 1.0);
    }
}
