//! `policy/host/neighbour.h`: models the guests' neighbours.

/// A neighbour's behaviour, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// It always wants to run.
    Greedy,
    /// It wants the first amount of CPU time, then sleeps for the second.
    Periodic(u64, u64),
    /// It wants to run for the first span of wall time, then not for the second.
    Burst(u64, u64),
    /// It wants to run from the first time of each pair until before the second.
    At(Vec<(u64, u64)>),
}

/// A neighbour's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Whether the neighbour wants to run.
    pub runs: bool,
    /// When that changes if the neighbour runs from now on; `None`: never.
    pub if_on: Option<u64>,
    /// When that changes if the neighbour does not run; `None`: never.
    pub if_off: Option<u64>,
}

/// A neighbour and its past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    kind: Kind,
    start_ns: u64,
    past: [u64; 2],
}

// SAFETY: for the call below: the function accesses `count` pairs of times, at most 64, and the
// arrays that it gets by reference.
unsafe extern "C" {
    fn host_neighbour_ask(
        kind: u32,
        on_off_start: *const [u64; 3],
        times: *const u64,
        count: u32,
        past: *mut [u64; 2],
        now: u64,
        ran_ns: u64,
        wish: *mut [u64; 3],
    );
}

impl Neighbour {
    /// Returns a neighbour that starts at a time (only PERIODIC and BURST use it).
    pub fn new(kind: Kind, start_ns: u64) -> Neighbour {
        Neighbour { kind, start_ns, past: [0; 2] }
    }

    /// Returns whether the neighbour wants to run now, after `ran_ns` of CPU time.
    pub fn next(&mut self, now: u64, ran_ns: u64) -> Wish {
        let (kind, on_ns, off_ns, times) = match &self.kind {
            Kind::Greedy => (0, 0, 0, Vec::new()),
            Kind::Periodic(on, off) => (1, *on, *off, Vec::new()),
            Kind::Burst(on, off) => (2, *on, *off, Vec::new()),
            Kind::At(at) => (3, 0, 0, at.iter().flat_map(|(from, to)| [*from, *to]).collect()),
        };
        assert!(times.len() <= 128, "a neighbour has at most 64 times");
        let spans = [on_ns, off_ns, self.start_ns];
        let (count, mut wish) = ((times.len() / 2) as u32, [0; 3]);
        let (times, past) = (times.as_ptr(), &mut self.past);
        // SAFETY: see above.
        unsafe { host_neighbour_ask(kind, &spans, times, count, past, now, ran_ns, &mut wish) };
        let time = |at: u64| (at != u64::MAX).then_some(at);
        Wish { runs: wish[0] != 0, if_on: time(wish[1]), if_off: time(wish[2]) }
    }
}
