//! Turns the command line's devices into functions on the PCI bus.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use kvm_ioctls::{IoEventAddress, NoDatamatch, VmFd};
use vmm_sys_util::eventfd::EventFd;

use crate::access::DeviceMemory;
use crate::access::key::Key;
use crate::access::revoker::Revoker;
use crate::config::{Config, Disk, Net};
use crate::error::{Step, VmmError};
use crate::machine::{End, PanicEnds};
use crate::pci::host::bar;
use crate::pci::msix::{Line, Msix};
use crate::pci::routes::{Message, Routes};
use crate::pci::virtio::{Function, NOTIFY, NOTIFY_BYTES, Part};
use crate::sandbox::{Kind, Sandbox};
use crate::virtio::block::{Block, SECTOR_BYTES};
use crate::virtio::console::Console;
use crate::virtio::tap::{Link, Tap, mac};
use crate::virtio::{Description, Worker, net, thread};

/// A device before it has threads: its workers, each with its queues.
struct Model {
    description: Description,
    workers: Vec<(Box<dyn Worker>, Vec<usize>)>,
}

/// The parts of the VM that devices are connected to.
pub struct Setting<'a> {
    /// The VM.
    pub vm: &'a VmFd,
    /// The VM's interrupts.
    pub routes: &'a Arc<Routes>,
    /// The VM's memory.
    pub memory: &'a DeviceMemory,
    /// Whether KVM raises the event of a queue's notification.
    pub ioeventfd: bool,
    /// The key that the devices' threads are denied.
    pub key: Option<Key>,
    /// System call filters for the devices' threads.
    pub sandbox: &'a Sandbox,
    /// The VM's end, which a panicking thread sets.
    pub end: &'a Arc<End>,
}

/// An interrupt of KVM.
struct KvmLine {
    routes: Arc<Routes>,
    number: u32,
    event: EventFd,
}

impl Line for KvmLine {
    fn set(&self, message: Message) {
        self.routes.set(self.number, message);
    }

    fn raise(&self) {
        // The write fails only if the counter is full, and then the interrupt is raised already.
        let _ = self.event.write(1);
    }
}

impl Setting<'_> {
    /// Creates all devices: the console first, then disks and network interfaces.
    pub fn devices(&self, config: &Config) -> Result<Vec<Function>, VmmError> {
        let mut models = Vec::new();
        if let Some(path) = &config.console {
            models.push(console(path)?);
        }
        for (index, disk) in config.disks.iter().enumerate() {
            models.push(block(index, disk)?);
        }
        for net in &config.nets {
            models.push(interface(net)?);
        }
        let models = models.into_iter().enumerate();
        models.map(|(index, model)| self.function(index, model)).collect()
    }

    /// Starts the source of revocations, if the rate is not 0 and access is restricted.
    pub fn revoker(&self, per_s: u32) -> Result<Option<Revoker>, VmmError> {
        let Some(table) = self.memory.table().filter(|_| per_s > 0) else { return Ok(None) };
        let enter = self.enter(Kind::Revoker);
        let revoker = Revoker::start(Arc::clone(table), per_s, enter);
        revoker.step("start the source of revocations").map(Some)
    }

    fn function(&self, index: usize, model: Model) -> Result<Function, VmmError> {
        let Model { description, workers } = model;
        let bar = bar(index);
        let kicks = (0..description.queues).map(|queue| self.kick(bar, queue));
        let kicks = kicks.collect::<Result<Vec<_>, _>>()?;
        // One line for each queue, and one by which the device reports that it needs a reset.
        let lines = (0..=description.queues).map(|_| self.line());
        let msix = Arc::new(Msix::new(lines.collect::<Result<_, _>>()?));
        let mut parts = Vec::new();
        for (worker, queues) in workers {
            let own = queues.iter().map(|queue| kicks[*queue].try_clone());
            let own = own.collect::<io::Result<_>>().step("copy an eventfd")?;
            let kind = worker.kind();
            let handle =
                thread::spawn(worker, own, self.enter(kind)).step("start a device's thread")?;
            parts.push(Part { handle, queues });
        }
        Ok(Function::new(bar, description, parts, kicks, msix, self.memory.clone()))
    }

    /// Returns the first call of a thread that is not a vCPU.
    pub fn enter(&self, kind: Kind) -> impl FnOnce() -> io::Result<PanicEnds> + use<> {
        let (sandbox, end, key) = (self.sandbox.clone(), Arc::clone(self.end), self.key);
        move || {
            let guard = PanicEnds(end);
            key.iter().for_each(|key| key.deny());
            sandbox.enter(kind).map_err(io::Error::other).map(|()| guard)
        }
    }

    /// Returns the event that a notification of a queue raises.
    fn kick(&self, bar: u32, queue: u16) -> Result<EventFd, VmmError> {
        let event = EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?;
        if !self.ioeventfd {
            return Ok(event);
        }
        let address = bar + NOTIFY + u32::from(queue) * NOTIFY_BYTES;
        let address = IoEventAddress::Mmio(address.into());
        self.vm.register_ioevent(&event, &address, NoDatamatch).step("give an eventfd to KVM")?;
        Ok(event)
    }

    fn line(&self) -> Result<Box<dyn Line>, VmmError> {
        let (number, event) = self.routes.add()?;
        Ok(Box::new(KvmLine { routes: Arc::clone(self.routes), number, event }))
    }
}

/// Returns options with which a FIFO without another end, or output without a reader, causes an
/// error instead of a wait.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NONBLOCK);
    options
}

fn console(path: &Path) -> Result<Model, VmmError> {
    let file = options().write(true).create(true).truncate(true).open(path);
    let file = file.map_err(|source| file_error("create", path, source))?;
    let workers: Vec<(Box<dyn Worker>, _)> = vec![(Box::new(Console::new(file)), vec![0, 1])];
    Ok(Model { description: Console::description(), workers })
}

fn block(index: usize, disk: &Disk) -> Result<Model, VmmError> {
    let path = &disk.path;
    let error = |what| move |source| file_error(what, path, source);
    let mut file = options().read(true).write(!disk.read_only).open(path).map_err(error("open"))?;
    let lock = if disk.read_only { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: the file is open.
    if unsafe { libc::flock(file.as_raw_fd(), lock | libc::LOCK_NB) } != 0 {
        return Err(error("lock")(io::Error::last_os_error()));
    }
    // A block device has no size in its metadata.
    let bytes = file.seek(SeekFrom::End(0)).map_err(error("measure"))?;
    if bytes == 0 || bytes % SECTOR_BYTES != 0 {
        return Err(VmmError::DiskSize { path: path.clone(), bytes });
    }
    let block = Block::new(file, bytes, disk.read_only, index);
    let description = block.description();
    Ok(Model { description, workers: vec![(Box::new(block), vec![0])] })
}

fn interface(config: &Net) -> Result<Model, VmmError> {
    let pairs = usize::from(config.queue_pairs);
    let open = |_| Tap::open(&config.tap, pairs > 1).map(|tap| Box::new(tap) as Box<dyn Link>);
    let links = (0..pairs).map(open).collect::<io::Result<Vec<_>>>();
    let error =
        |source| VmmError::Tap { name: config.tap.clone(), pairs: config.queue_pairs, source };
    let mac = config.mac.unwrap_or_else(|| mac(&config.tap));
    let (description, workers) = net::pairs(links.map_err(error)?, mac);
    let workers = workers.into_iter().enumerate();
    let workers = workers.map(|(index, worker)| {
        let worker: Box<dyn Worker> = Box::new(worker);
        (worker, net::queues(index, pairs))
    });
    Ok(Model { description, workers: workers.collect() })
}

fn file_error(what: &'static str, path: &Path, source: io::Error) -> VmmError {
    VmmError::File { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::vm::stats::Stats;

    #[test]
    fn a_fifo_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let (done, refused) = channel();
        std::thread::spawn(move || {
            done.send(console(&path).is_err()).unwrap();
            done.send(Stats::create(&path).is_err()).unwrap();
            for read_only in [false, true] {
                done.send(block(0, &Disk { path: path.clone(), read_only }).is_err()).unwrap();
            }
        });
        for _ in 0..4 {
            assert_eq!(refused.recv_timeout(Duration::from_secs(10)), Ok(true));
        }
    }
}
