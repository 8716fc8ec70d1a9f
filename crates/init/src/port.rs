//! The guest's virtio-serial ports: the control channel, and the output of an errand.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;

use unspin_wire::PORT_NAME;

const APPEARS_WITHIN: Duration = Duration::from_secs(20);

/// Opens the virtio-serial port for reading and for writing.
pub fn open() -> anyhow::Result<(File, File)> {
    let file = OpenOptions::new().read(true).write(true).open(wait_for(PORT_NAME)?)?;
    Ok((file.try_clone()?, file))
}

/// Opens a port for writing only.
pub fn open_output(name: &str) -> anyhow::Result<File> {
    Ok(OpenOptions::new().write(true).open(wait_for(name)?)?)
}

fn wait_for(port: &str) -> anyhow::Result<PathBuf> {
    let started = Instant::now();
    loop {
        if let Some(device) = find(port) {
            return Ok(device);
        }
        if started.elapsed() > APPEARS_WITHIN {
            bail!("no virtio-serial port named {port}: does the kernel have virtio_console?");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn find(port: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?;
    entries.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        let device = PathBuf::from("/dev").join(entry.file_name());
        (name.trim() == port && device.exists()).then_some(device)
    })
}
