//! Two CPUs that write the same words.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::peer::{Busy, beside};
use crate::sample::Samples;

/// The word's value that ends the peer of a ping-pong.
const STOP: u32 = u32::MAX;

/// A word on cache lines of its own; two, because CPUs prefetch the neighbour.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// One move of a modified cache line to another CPU: half of a ping-pong. Odd values are the
/// peer's to write, even ones the measuring thread's.
pub fn move_of(cpu: usize) -> io::Result<Samples> {
    let word = Line(AtomicU32::new(0));
    let word = &word.0;
    let answer = || {
        answer_odd(word);
        Ok(())
    };
    let measure = || {
        let mut last = 0;
        let samples = Samples::of_batches(100, 50, || {
            word.store(last + 1, Ordering::Release);
            last += 2;
            while word.load(Ordering::Acquire) != last {}
            Ok(())
        });
        word.store(STOP, Ordering::Release);
        samples
    };
    Ok(beside(cpu, answer, measure)?.0.divided_by(2.0))
}

/// Answers odd values with the next one until [`STOP`]. It never pauses: a PAUSE would delay
/// it by more than the move.
fn answer_odd(word: &AtomicU32) {
    loop {
        match word.load(Ordering::Acquire) {
            STOP => return,
            value if value % 2 == 1 => word.store(value + 1, Ordering::Release),
            _ => {}
        }
    }
}

/// A ticket lock from its holder to the one that waits for it. Both want it all the time, so
/// each gets it every second time.
pub fn handover(cpu: usize) -> io::Result<Samples> {
    let (lock, busy) = (Ticket::default(), Line(Busy::default()));
    let contend = || {
        busy.0.run(|| lock.pass());
        Ok(())
    };
    let measure = || {
        busy.0.await_start();
        let samples = Samples::of_batches(100, 50, || {
            lock.pass();
            Ok(())
        });
        busy.0.stop();
        samples
    };
    Ok(beside(cpu, contend, measure)?.0.divided_by(2.0))
}

/// A ticket lock, both words on one line as in the kernel's of 2.6.25 to 4.1.
#[derive(Default)]
struct Ticket(Line<(AtomicU32, AtomicU32)>);

impl Ticket {
    /// Takes it, and lets it go.
    fn pass(&self) {
        let Line((next, owner)) = &self.0;
        let ticket = next.fetch_add(1, Ordering::Relaxed);
        while owner.load(Ordering::Acquire) != ticket {
            spin_loop();
        }
        owner.store(ticket.wrapping_add(1), Ordering::Release);
    }
}
