//! Round trips through two pipes.

use std::fs::File;
use std::io::{self, Read, Write};

use crate::os::pipe;
use crate::peer::beside;
use crate::sample::Samples;

/// Measures how long a byte takes to a thread on `cpu` and back. On the measuring thread's own CPU,
/// this takes two context switches; on another CPU, two wake-ups of an idle CPU.
pub fn round_trip(cpu: usize) -> io::Result<Samples> {
    let (mut from_main, mut to_peer) = pipe()?;
    let (mut from_peer, mut to_main) = pipe()?;
    let echo = move || -> io::Result<()> {
        while pass_on(&mut from_main, &mut to_main)? {}
        Ok(())
    };
    // The closure owns `to_peer`, so the peer reads the end of the pipe when the measurement ends.
    let measure = move || {
        Samples::of_batches(100, 20, || {
            to_peer.write_all(&[1])?;
            from_peer.read_exact(&mut [0])
        })
    };
    Ok(beside(cpu, echo, measure)?.0)
}

/// Passes a byte on. Returns false at the end of the pipe.
fn pass_on(from: &mut File, to: &mut File) -> io::Result<bool> {
    let mut byte = [0];
    let read = from.read(&mut byte)?;
    to.write_all(&byte[..read])?;
    Ok(read > 0)
}
