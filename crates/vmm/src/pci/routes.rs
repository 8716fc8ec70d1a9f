//! The routes by which KVM delivers the interrupts that eventfds raise.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use kvm_bindings::{
    KVM_IRQ_ROUTING_IRQCHIP, KVM_IRQ_ROUTING_MSI, KVM_IRQCHIP_IOAPIC, KVM_IRQCHIP_PIC_MASTER,
    KVM_IRQCHIP_PIC_SLAVE, KvmIrqRouting, kvm_irq_routing_entry, kvm_irq_routing_irqchip,
    kvm_irq_routing_msi,
};
use kvm_ioctls::VmFd;
use vmm_sys_util::eventfd::EventFd;

use crate::error::{Step, VmmError};
use crate::machine::lock;

/// The inputs of the I/O APIC. The two 8259s have the first 16, too.
const IO_APIC_PINS: u32 = 24;
const PIC_PINS: u32 = 8;

/// A message-signalled interrupt: a write of data to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Message {
    /// The address that the message is written to.
    pub address: u64,
    /// The data that is written.
    pub data: u32,
}

/// The VM's interrupt routes.
#[derive(Debug)]
pub struct Routes {
    vm: Arc<VmFd>,
    messages: Mutex<BTreeMap<u32, Message>>,
}

impl Routes {
    /// Installs the PC's routes: numbers 0 to 23 are those of ISA and of the I/O APIC.
    pub fn new(vm: Arc<VmFd>) -> Result<Routes, VmmError> {
        let routes = Routes { vm, messages: Mutex::new(BTreeMap::new()) };
        routes.apply(&BTreeMap::new()).step("route interrupts")?;
        Ok(routes)
    }

    /// Adds an interrupt that an event raises. [`Routes::set`] sets its route later.
    pub fn add(&self) -> Result<(u32, EventFd), VmmError> {
        let event = EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?;
        let mut messages = lock(&self.messages);
        let number = IO_APIC_PINS + messages.len() as u32;
        messages.insert(number, Message::default());
        self.vm.register_irqfd(&event, number).step("give an eventfd to KVM")?;
        Ok((number, event))
    }

    /// Returns an event that raises an edge-triggered interrupt of the I/O APIC.
    pub fn pin(&self, pin: u32) -> Result<EventFd, VmmError> {
        let event = EventFd::new(libc::EFD_NONBLOCK).step("make an eventfd")?;
        self.vm.register_irqfd(&event, pin).step("give an eventfd to KVM")?;
        Ok(event)
    }

    /// Changes the message of an interrupt. If KVM refuses the message, the old one stays.
    pub fn set(&self, number: u32, message: Message) {
        let mut messages = lock(&self.messages);
        let before = messages.insert(number, message);
        if let (Err(_), Some(before)) = (self.apply(&messages), before) {
            messages.insert(number, before);
        }
    }

    fn apply(&self, messages: &BTreeMap<u32, Message>) -> io::Result<()> {
        let mut entries = pc();
        // An interrupt whose message has address 0 has no route yet.
        let set = messages.iter().filter(|(_, message)| message.address != 0);
        entries.extend(set.map(|(number, message)| of_message(*number, *message)));
        let list = KvmIrqRouting::from_entries(&entries);
        let list = list.map_err(|error| io::Error::other(format!("{error:?}")))?;
        self.vm.set_gsi_routing(&list).map_err(|e| io::Error::from_raw_os_error(e.errno()))
    }
}

/// Returns the routes of a PC's chips. The timer is ISA's interrupt 0 and input 2 of the I/O APIC.
fn pc() -> Vec<kvm_irq_routing_entry> {
    let mut entries = Vec::new();
    for number in 0..IO_APIC_PINS {
        if number < 2 * PIC_PINS {
            let slave = number >= PIC_PINS;
            let chip = if slave { KVM_IRQCHIP_PIC_SLAVE } else { KVM_IRQCHIP_PIC_MASTER };
            entries.push(of_pin(number, chip, number % PIC_PINS));
        }
        match number {
            0 => entries.push(of_pin(0, KVM_IRQCHIP_IOAPIC, 2)),
            2 => {}
            _ => entries.push(of_pin(number, KVM_IRQCHIP_IOAPIC, number)),
        }
    }
    entries
}

fn of_pin(number: u32, irqchip: u32, pin: u32) -> kvm_irq_routing_entry {
    let mut entry =
        kvm_irq_routing_entry { gsi: number, type_: KVM_IRQ_ROUTING_IRQCHIP, ..Default::default() };
    entry.u.irqchip = kvm_irq_routing_irqchip { irqchip, pin };
    entry
}

fn of_message(number: u32, message: Message) -> kvm_irq_routing_entry {
    let mut entry =
        kvm_irq_routing_entry { gsi: number, type_: KVM_IRQ_ROUTING_MSI, ..Default::default() };
    entry.u.msi = kvm_irq_routing_msi {
        address_lo: message.address as u32,
        address_hi: (message.address >> 32) as u32,
        data: message.data,
        ..Default::default()
    };
    entry
}
