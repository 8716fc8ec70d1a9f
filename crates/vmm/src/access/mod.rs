//! Page access: a device's thread can reach a page of the guest only after the guest named it.
//!
//! Guest memory is mapped twice. The loader and the vCPUs use the first mapping, whose protection
//! key is denied to all other threads. The devices' threads use the second one, which begins
//! inaccessible. A *grant* opens pages of it while a descriptor is served, or longer, as the
//! [`Policy`] says. A *revocation* closes a page after the I/O in flight on it. A *conversion* by
//! the guest does so, too, and a page that the guest made private is not granted.
//!
//! A grant is mprotect, a real call into the kernel. A hypervisor for confidential guests has a
//! call of its own for this, which KVM lacks. The restricted device model asks for its own grants:
//! this stops its stray accesses, but not foreign code in its thread.

pub mod conversions;
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
    /// No second mapping: the devices' threads can reach all of the guest's memory.
    #[default]
    Off,
    /// One call for each descriptor before its use, and one call after it.
    Request,
    /// Pages stay granted until they are revoked. Each descriptor with pages that are not open
    /// takes a call.
    Cache,
    /// Like [`Policy::Cache`], with one call for all adjoining pages of a chain.
    Batch,
    /// Like [`Policy::Batch`], after a grant at the start. The grant covers these guest-physical
    /// addresses, or all memory if there are none.
    Pregrant(Option<Range<u64>>),
}

impl Policy {
    /// Returns the policy's name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::Off => "off",
            Policy::Request => "request",
            Policy::Cache => "cache",
            Policy::Batch => "batch",
            Policy::Pregrant(_) => "pregrant",
        }
    }

    /// Returns whether a device asks for all pages of a chain together.
    pub fn is_by_chain(&self) -> bool {
        matches!(self, Policy::Batch | Policy::Pregrant(_))
    }

    /// Returns whether pages stay granted after their use.
    pub fn keeps(&self) -> bool {
        !matches!(self, Policy::Off | Policy::Request)
    }
}

/// Guest memory as the devices' threads reach it.
#[derive(Debug, Clone)]
pub struct DeviceMemory {
    memory: Memory,
    table: Option<Arc<Table>>,
}

impl From<Memory> for DeviceMemory {
    /// Wraps memory without restrictions.
    fn from(memory: Memory) -> DeviceMemory {
        DeviceMemory { memory, table: None }
    }
}

impl DeviceMemory {
    /// Wraps a mapping whose pages `table` opens and closes.
    pub fn restricted(memory: Memory, table: Arc<Table>) -> DeviceMemory {
        DeviceMemory { memory, table: Some(table) }
    }

    /// Returns the table of the pages' states, or `None` if access is unrestricted.
    pub fn table(&self) -> Option<&Arc<Table>> {
        self.table.as_ref()
    }

    /// Returns the mapping itself, to check addresses against. An access to it may fault.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns a window, through which one thread has access until the window is dropped.
    pub fn window(&self) -> Window {
        Window::new(self.memory.clone(), self.table.clone())
    }
}
