//! A guest without a control channel. Its job comes with its initramfs, and its replies go out on a
//! port to which nobody writes. In virtual time, any other input would arrive at an instant that
//! depends on the machine.

use std::fs::{self, File};
use std::io::Write;

use anyhow::{Context, bail};
use unspin_wire::guest::ERRAND_FILE;
use unspin_wire::{Envelope, Errand, Mark, OUT_PORT_NAME, PROTOCOL, Reply};

use crate::{facts, job, mark, port};

/// Returns the guest's errand, if it has one.
pub fn errand() -> anyhow::Result<Option<Errand>> {
    let text = match fs::read_to_string(ERRAND_FILE) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        text => text.context(ERRAND_FILE)?,
    };
    let errand: Errand = serde_json::from_str(&text).context(ERRAND_FILE)?;
    if errand.protocol != PROTOCOL {
        bail!("the lab speaks protocol {}, this guest {PROTOCOL}", errand.protocol);
    }
    Ok(Some(errand))
}

/// Says hello, runs the job and writes its result.
pub fn run(errand: &Errand) -> anyhow::Result<()> {
    let mut out = port::open_output(OUT_PORT_NAME)?;
    reply(&mut out, 0, Reply::Hello(facts::hello()))?;
    mark::announce_preempt_count()?;
    let result = job::run_job(&errand.job);
    reply(&mut out, 1, Reply::Ran(result))?;
    mark::mark(Mark::Done);
    Ok(())
}

fn reply(out: &mut File, id: u64, body: Reply) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(&Envelope { id, body })?;
    line.push(b'\n');
    out.write_all(&line).with_context(|| format!("reply {id}"))
}
