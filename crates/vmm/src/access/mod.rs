//! Page access: a device's thread reaches a page of the guest only after the guest named it.
//!
//! Guest memory is mapped twice. The loader and the vCPUs have the first mapping, whose protection
//! key is denied to all other threads. Threads of devices have the second one. It begins
//! inaccessible, and a *grant* opens pages of it for as long as a descriptor is served, or longer,
//! as the [`Policy`] says. A *revocation* closes a page after the I/O in flight on it.
//!
//! A grant is mprotect, a real call into the kernel: a hypervisor for confidential guests has a
//! call of its own, which KVM lacks. The device model that asks is the one that is kept out: this
//! stops its stray accesses, and not foreign code in its thread.

pub mod counters;
pub mod gate;
pub mod key;
pub mod revoker;
pub mod table;
pub mod window;
pub mod word;

use std::ops::Range;
use std::sync::Arc;

use crate::memory::Memory;
use table::Table;
use window::Window;

/// How long a grant lasts, and how many pages one call grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Policy {
    /// No second mapping: threads of devices reach all of the guest's memory.
    #[default]
    Off,
    /// A call for each descriptor before its use, and one after it.
    Request,
    /// Pages stay granted until they are revoked; a call for each descriptor that has others.
    Cache,
    /// The same, with one call for all pages of a chain that adjoin each other.
    Batch,
    /// Like [`Policy::Batch`], after a grant of these guest-physical addresses, or of all memory,
    /// at the start.
    Pregrant(Option<Range<u64>>),
}

impl Policy {
    /// The name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::Request => "request",
            Policy::Cache => "cache",
            Policy::Batch => "batch",
            Policy::Pregrant(_) => "pregrant",
        }
    }

    /// Whether the pages of a chain are asked for together.
    pub fn is_by_chain(&self) -> bool {
        matches!(self, Policy::Batch | Policy::Pregrant(_))
    }

    /// Whether pages stay granted after their use.
    pub fn keeps(&self) -> bool {
        !matches!(self, Policy::Off | Policy::Request)
    }
}

/// Guest memory as threads of devices have it.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    memory: Memory,
    table: Option<Arc<Table>>,
}

impl From<Memory> for DeviceMemory {
    /// Memory without restrictions.
    fn from(memory: Memory) -> DeviceMemory {
        DeviceMemory { memory, table: None }
    }
}

impl DeviceMemory {
    /// A mapping whose pages the table opens and closes.
    pub fn restricted(memory: Memory, table: Arc<Table>) -> DeviceMemory {
        DeviceMemory { memory, table: Some(table) }
    }

    /// Where there are restrictions: the pages' states.
    pub fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    /// The mapping itself, to judge addresses by. An access to it may be a fault.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Access for one thread, until it is dropped.
    pub fn window(&self) -> Window {
        Window::new(self.memory.clone(), self.table.clone())
    }
}
