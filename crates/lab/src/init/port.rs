//! The guest's end of the control channel.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::wire::PORT_NAME;

const APPEARS_WITHIN: Duration = Duration::from_secs(20);

/// Opens the virtio-serial port for reading and for writing.
pub fn open() -> anyhow::Result<(File, File)> {
    let started = Instant::now();
    loop {
        if let Some(device) = find() {
            let file = OpenOptions::new().read(true).write(true).open(device)?;
            return Ok((file.try_clone()?, file));
        }
        if started.elapsed() > APPEARS_WITHIN {
            bail!("no virtio-serial port named {PORT_NAME}: does the kernel have virtio_console?");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn find() -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?;
    entries.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        let device = PathBuf::from("/dev").join(entry.file_name());
        (name.trim() == PORT_NAME && device.exists()).then_some(device)
    })
}
