//! QEMU's monitor.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use qapi::{Qmp, qmp};

/// Returns the host thread ID of each vCPU, in order of index.
pub fn vcpu_threads(socket: &Path) -> anyhow::Result<Vec<i32>> {
    let stream = UnixStream::connect(socket).context("connect")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut monitor = Qmp::from_stream(&stream);
    monitor.handshake().context("handshake")?;
    let cpus = monitor.execute(&qmp::query_cpus_fast {}).context("query-cpus-fast")?;
    let threads = cpus.into_iter().map(|cpu| match cpu {
        qmp::CpuInfoFast::x86_64(base) => Ok((base.cpu_index, base.thread_id as i32)),
        other => bail!("a vCPU of another architecture: {:?}", other.target()),
    });
    let mut threads = threads.collect::<anyhow::Result<Vec<_>>>()?;
    threads.sort_unstable();
    Ok(threads.into_iter().map(|(_, thread)| thread).collect())
}
