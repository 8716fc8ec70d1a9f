//! A guest's session as lanes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;

use unspin_model::Session;
use unspin_model::episode::{Cause, Episode};

use super::emit::Emitter;
use crate::TraceError;
use crate::episodes::explain;

/// The only process of the trace.
const GUEST: i32 = 1;

/// Kind of a slice. A vCPU's lanes have this order, and so have slices that begin together: an
/// arrow leads from the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Off,
    Spin,
    Wait,
    Held,
}

struct Slice {
    vcpu: u16,
    kind: Kind,
    start_ns: u64,
    end_ns: u64,
    name: String,
    cause: Option<Cause>,
    flow: Option<u64>,
}

/// Writes a guest's session with the causes of its spins.
///
/// # Errors
/// Returns [`TraceError::Write`] if `out` fails.
pub fn write_session(out: impl Write, session: &Session) -> Result<(), TraceError> {
    let mut slices = off_slices(session);
    let episodes = explain(session.spins.clone(), &session.offs);
    for (flow, episode) in (1..).zip(&episodes) {
        slices.extend(slices_of(episode, flow));
    }
    slices.sort_by_key(|slice| (slice.start_ns, slice.kind));
    let mut emit = Emitter::new(out);
    emit.clock(session.start_ns)?;
    let about = format!("what the guest found by itself; {} findings lost", session.lost);
    emit.process(GUEST, "guest", about)?;
    let places = places(&slices);
    let tracks = lanes(&mut emit, session.vcpus, &slices, &places)?;
    // Slices that end make room before others begin.
    let mut steps: Vec<(u64, bool, usize)> = Vec::new();
    for (index, slice) in slices.iter().enumerate() {
        steps.extend([(slice.end_ns, false, index), (slice.start_ns, true, index)]);
    }
    steps.sort();
    for (t_ns, begins, index) in steps {
        let slice = &slices[index];
        let track = tracks[&(slice.vcpu, slice.kind, places[index])];
        if begins {
            let kind = match slice.kind {
                Kind::Off => "off",
                Kind::Spin => "spin",
                Kind::Wait => "wait",
                Kind::Held => "held",
            };
            let categories: Vec<&str> =
                [kind].into_iter().chain(slice.cause.map(Cause::name)).collect();
            emit.begin(track, t_ns, &categories, slice.name.clone(), slice.flow)?;
        } else {
            emit.end(track, t_ns)?;
        }
    }
    emit.finish()
}

fn off_slices(session: &Session) -> Vec<Slice> {
    let slice = |off: &unspin_model::session::FoundOff| Slice {
        vcpu: off.vcpu,
        kind: Kind::Off,
        start_ns: off.start_ns,
        end_ns: longer_than_nothing(off.start_ns, off.end_ns),
        name: if off.was_idle { "off when it was woken" } else { "off" }.to_owned(),
        cause: None,
        flow: None,
    };
    session.offs.iter().map(slice).collect()
}

/// Returns the end of a slice, at least a nanosecond after its begin. A forged session can begin a
/// slice at the last possible instant, which is then also its end.
fn longer_than_nothing(start_ns: u64, end_ns: u64) -> u64 {
    end_ns.max(start_ns.saturating_add(1))
}

/// Returns the slice of a spin, and the slice of its wait on the vCPU that it waits for.
fn slices_of(episode: &Episode, flow: u64) -> Vec<Slice> {
    let spin = &episode.spin;
    let wait = spin.wait.name();
    let site = if spin.site.is_empty() { "?" } else { &spin.site };
    let waits_for = episode.waits_for.filter(|vcpu| *vcpu != spin.vcpu);
    let end_ns = longer_than_nothing(spin.begin_ns, spin.end_ns);
    let spins = Slice {
        vcpu: spin.vcpu,
        kind: if spin.asleep { Kind::Wait } else { Kind::Spin },
        start_ns: spin.begin_ns,
        end_ns,
        name: format!("{wait} in {site}: {}", episode.cause.name()),
        cause: Some(episode.cause),
        flow: waits_for.map(|_| flow),
    };
    let taken_ns = spin.before.map_or(0, |taken| taken.t_ns);
    let held = waits_for.map(|vcpu| Slice {
        vcpu,
        kind: Kind::Held,
        start_ns: spin.begin_ns.max(taken_ns.min(end_ns - 1)),
        end_ns,
        name: format!("{wait} that vCPU {} waits for in {site}", spin.vcpu),
        cause: Some(episode.cause),
        flow: Some(flow),
    });
    [spins].into_iter().chain(held).collect()
}

/// Returns the lane of each slice. Slices of one kind that overlap on a vCPU go on adjacent lanes.
/// `slices` must be sorted by their start.
fn places(slices: &[Slice]) -> Vec<usize> {
    let mut used: BTreeMap<(u16, Kind), Lanes> = BTreeMap::new();
    let place = |slice: &Slice| used.entry((slice.vcpu, slice.kind)).or_default().place(slice);
    slices.iter().map(place).collect()
}

/// The lanes of one kind on a vCPU.
#[derive(Default)]
struct Lanes {
    /// End and number of each lane with a slice; the slice that ends first is on top.
    taken: BinaryHeap<Reverse<(u64, usize)>>,
    /// Numbers of the free lanes, the lowest on top.
    free: BinaryHeap<Reverse<usize>>,
}

impl Lanes {
    /// Returns the first lane that has room, or else a new one.
    fn place(&mut self, slice: &Slice) -> usize {
        while let Some(Reverse((end_ns, lane))) = self.taken.peek().copied() {
            if end_ns > slice.start_ns {
                break;
            }
            self.taken.pop();
            self.free.push(Reverse(lane));
        }
        let lane = self.free.pop().map_or(self.taken.len(), |Reverse(lane)| lane);
        self.taken.push(Reverse((slice.end_ns, lane)));
        lane
    }
}

type Tracks = BTreeMap<(u16, Kind, usize), u64>;

/// Writes a lane of off intervals for each vCPU, and as many other lanes as it needs.
fn lanes<W: Write>(
    emit: &mut Emitter<W>,
    vcpus: u16,
    slices: &[Slice],
    places: &[usize],
) -> Result<Tracks, TraceError> {
    let used = slices.iter().zip(places).map(|(slice, lane)| (slice.vcpu, slice.kind, *lane));
    let all = (0..vcpus).map(|vcpu| (vcpu, Kind::Off, 0)).chain(used);
    let mut tracks: Tracks = all.map(|key| (key, 0)).collect();
    for (rank, ((vcpu, kind, _), track)) in (0..).zip(&mut tracks) {
        let name = match kind {
            Kind::Off => format!("vCPU {vcpu}"),
            Kind::Spin => format!("vCPU {vcpu} spins"),
            Kind::Wait => format!("vCPU {vcpu}: threads asleep"),
            Kind::Held => format!("vCPU {vcpu} is waited for"),
        };
        *track = emit.lane(GUEST, rank, name)?;
    }
    Ok(tracks)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn slice(vcpu: u16, start_ns: u64, end_ns: u64) -> Slice {
        let kind = Kind::Wait;
        Slice { vcpu, kind, start_ns, end_ns, name: String::new(), cause: None, flow: None }
    }

    #[test]
    fn a_slice_goes_on_the_first_lane_that_has_room() {
        let mut slices: Vec<Slice> = (0..400)
            .map(|n: u64| (n * 7_919 % 211, 1 + n * n * 31 % 47, n % 3))
            .map(|(start_ns, len_ns, vcpu)| slice(vcpu as u16, start_ns, start_ns + len_ns))
            .collect();
        slices.sort_by_key(|slice| slice.start_ns);
        let mut ends_ns = [[0; 400]; 3];
        for (slice, place) in slices.iter().zip(places(&slices)) {
            let ends_ns = &mut ends_ns[usize::from(slice.vcpu)];
            let first = ends_ns.iter().position(|end_ns| *end_ns <= slice.start_ns);
            assert_eq!(Some(place), first);
            ends_ns[place] = slice.end_ns;
        }
    }

    /// A search of all lanes for each slice would take a minute here.
    #[test]
    fn many_slices_at_once_have_a_lane_each() {
        let slices: Vec<Slice> = (0..100_000).map(|n| slice(0, n, 1_000_000 - n)).collect();
        assert_eq!(places(&slices).last(), Some(&99_999));
    }

    #[test]
    fn what_begins_at_the_last_instant_ends_there() {
        assert_eq!((longer_than_nothing(5, 5), longer_than_nothing(5, 9)), (6, 9));
        assert_eq!(longer_than_nothing(u64::MAX, u64::MAX), u64::MAX);
    }
}
