//! Two CPUs that write the same words.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::peer::{Busy, beside};
use crate::sample::Samples;

/// The word's value that ends the peer of a ping-pong.
const STOP: u32 = u32::MAX;

/// A word on cache lines of its own; two lines, because CPUs prefetch the neighbour.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// Measures one move of a modified cache line to another CPU, which is half of a ping-pong. The
/// measuring thread writes the odd values, and the peer answers with even ones.
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

/// Answers odd values with the next one until [`STOP`]. The loop never pauses: a PAUSE would delay
/// the answer by more than the move.
fn answer_odd(word: &AtomicU32) {
    loop {
        match word.load(Ordering::Acquire) {
            STOP => return,
            value if value % 2 == 1 => word.store(value + 1, Ordering::Release),
            _ => {}
        }
    }
}

/// Measures how a ticket lock passes from its holder to the waiting thread. Both threads want it
/// all the time, so they alternate.
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

/// A ticket lock with both words on one line, as in the kernel's lock of 2.6.25 to 4.1.
#[derive(Default)]
struct Ticket(Line<(AtomicU32, AtomicU32)>);

impl Ticket {
    /// Takes the lock and releases it.
    fn pass(&self) {
        let Line((next, owner)) = &self.0;
        let ticket = next.fetch_add(1, Ordering::Relaxed);
        while owner.load(Ordering::Acquire) != ticket {
            spin_loop();
        }
        owner.store(ticket.wrapping_add(1), Ordering::Release);
    }
}
