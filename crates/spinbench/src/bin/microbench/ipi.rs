//! Calls that another CPU must acknowledge while it runs a thread of this process. membarrier(2)
//! sends it an IPI and waits until it has executed a barrier.

use std::io;

use crate::os::{now_ns, spin_until};
use crate::peer::{Busy, beside};
use crate::sample::Samples;

/// Commands of include/uapi/linux/membarrier.h.
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

/// The most time between two clock reads without an interruption, in nanoseconds.
const UNINTERRUPTED_NS: u64 = 150;
const CALLS: usize = 400;
/// Time from one call to the next, in nanoseconds.
const GAP_NS: u64 = 10_000;

/// Calls that interrupted the thread on the other CPU. The kernel sends no IPI if that thread does
/// not run.
pub struct Calls {
    /// Duration of the whole call, including kernel entry and return.
    pub round_trip: Samples,
    /// Time from the call to the interruption of the thread on the called CPU.
    pub delivery: Samples,
    /// Time from the call until that thread runs again.
    pub acknowledgement: Samples,
}

/// The most by which the clocks of two CPUs differ. In virtual time, they differ by up to a
/// quantum.
const SKEW_NS: u64 = 2_000;

/// Start and end of a time span, in nanoseconds.
type Span = (u64, u64);

/// How often to repeat all calls if other programs keep the thread off the called CPU.
const TRIES: usize = 5;

/// Calls a CPU now and then, and checks when the call interrupted it. Fails with `ResourceBusy` if
/// no call visibly interrupted it.
pub fn calls(cpu: usize) -> io::Result<Calls> {
    membarrier(REGISTER_PRIVATE_EXPEDITED)?;
    for _ in 1..TRIES {
        match calls_once(cpu) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            done => return done,
        }
    }
    calls_once(cpu)
}

fn calls_once(cpu: usize) -> io::Result<Calls> {
    let busy = Busy::default();
    let measure = || {
        busy.await_start();
        let sent = (0..CALLS).map(|_| call()).collect::<io::Result<Vec<Span>>>();
        busy.stop();
        sent
    };
    let (sent, interrupted) = beside(cpu, || Ok(interruptions(&busy)), measure)?;
    let pairs: Vec<(&Span, &Span)> =
        sent.iter().filter_map(|call| Some((call, during(call, &interrupted)?))).collect();
    let until = |end: fn(&Span, &Span) -> u64| -> io::Result<Samples> {
        let times = pairs.iter().map(|(call, gap)| end(call, gap) as f64 - call.0 as f64);
        times.collect::<Vec<_>>().try_into()
    };
    Ok(Calls {
        round_trip: until(|call, _| call.1)?,
        delivery: until(|_, gap| gap.0)?,
        acknowledgement: until(|_, gap| gap.1)?,
    })
}

fn call() -> io::Result<Span> {
    spin_until(now_ns() + GAP_NS);
    let start = now_ns();
    membarrier(PRIVATE_EXPEDITED)?;
    Ok((start, now_ns()))
}

/// Returns the first interruption that began during a call, as far as the two clocks can say.
fn during<'a>(call: &Span, interrupted: &'a [Span]) -> Option<&'a Span> {
    let first = interrupted.partition_point(|gap| gap.0 + SKEW_NS < call.0);
    interrupted.get(first).filter(|gap| gap.0 < call.1)
}

/// Reads the clock all the time, and returns the gaps between reads.
fn interruptions(busy: &Busy) -> Vec<Span> {
    let mut found = Vec::with_capacity(4 * CALLS);
    let mut last = now_ns();
    busy.run(|| {
        let now = now_ns();
        if now - last > UNINTERRUPTED_NS && found.len() < found.capacity() {
            found.push((last, now));
        }
        last = now;
    });
    found
}

fn membarrier(command: i32) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_belongs_to_the_call_that_it_began_in() {
        let gaps = [(10_000, 10_020), (19_000, 20_500), (90_000, 95_000)];
        assert_eq!(during(&(19_500, 21_000), &gaps), Some(&gaps[1]));
        assert_eq!(during(&(12_021, 16_999), &gaps), None);
        assert_eq!(during(&(92_001, 95_000), &gaps), None);
    }
}
