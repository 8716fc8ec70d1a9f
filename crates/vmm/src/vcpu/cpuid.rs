//! CPUID: the leaves that KVM supports, with the VM's topology of one package and a core for each
//! vCPU.

use kvm_bindings::{CpuId, KVM_CPUID_FLAG_SIGNIFCANT_INDEX, kvm_cpuid_entry2 as Entry};

/// Leaves with a topology in sub-leaves: x2APIC's leaf, and its successor.
const X2APIC: u32 = 0xb;
const TOPOLOGY_V2: u32 = 0x1f;
/// Bits 8 to 15 of a sub-leaf's ECX: the type of its level.
const LEVEL_THREAD: u32 = 1 << 8;
const LEVEL_CORE: u32 = 2 << 8;
/// Leaf 1, ECX: x2APIC, TSC deadline timer, hypervisor.
const HAS_X2APIC: u32 = 1 << 21;
const HAS_TSC_DEADLINE: u32 = 1 << 24;
const HAS_HYPERVISOR: u32 = 1 << 31;
/// Leaf 1, EDX: the number of logical processors is valid.
const HAS_HTT: u32 = 1 << 28;

/// Returns a vCPU's leaves, based on all leaves that KVM supports.
pub fn of(supported: &CpuId, id: u8, vcpus: u8, tsc_deadline: bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = supported.as_slice().to_vec();
    let max = entries.iter().find(|entry| entry.function == 0).map_or(0, |entry| entry.eax);
    entries.retain(|entry| ![X2APIC, TOPOLOGY_V2].contains(&entry.function));
    for leaf in [X2APIC, TOPOLOGY_V2].into_iter().filter(|leaf| *leaf <= max) {
        entries.extend(topology(leaf, id, vcpus));
    }
    for entry in &mut entries {
        place(entry, id, vcpus, tsc_deadline);
    }
    entries
}

/// Returns the number of APIC ID bits that distinguish cores.
fn core_bits(vcpus: u8) -> u32 {
    u8::BITS - (vcpus - 1).leading_zeros()
}

fn topology(leaf: u32, id: u8, vcpus: u8) -> [Entry; 3] {
    let level = |index, eax, ebx, kind| Entry {
        function: leaf,
        index,
        flags: KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
        eax,
        ebx,
        ecx: kind | index,
        edx: id.into(),
        ..Default::default()
    };
    [
        level(0, 0, 1, LEVEL_THREAD),
        level(1, core_bits(vcpus), vcpus.into(), LEVEL_CORE),
        level(2, 0, 0, 0),
    ]
}

/// Writes the topology into leaves that also describe other things.
fn place(entry: &mut Entry, id: u8, vcpus: u8, tsc_deadline: bool) {
    let (id, cores) = (u32::from(id), u32::from(vcpus) - 1);
    match entry.function {
        1 => {
            entry.ebx = entry.ebx & 0xffff | id << 24 | u32::from(vcpus) << 16;
            entry.ecx |= HAS_X2APIC | HAS_HYPERVISOR;
            if tsc_deadline {
                entry.ecx |= HAS_TSC_DEADLINE;
            }
            entry.edx = if vcpus > 1 { entry.edx | HAS_HTT } else { entry.edx & !HAS_HTT };
        }
        // Intel's caches. The caches of levels 1 and 2 belong to one core.
        4 if entry.eax & 0x1f != 0 => {
            let shared = if entry.eax >> 5 & 7 < 3 { 0 } else { cores };
            entry.eax = entry.eax & 0x3fff | shared << 14 | cores.min(63) << 26;
        }
        // AMD's number of cores, and of APIC ID bits.
        0x8000_0008 => entry.ecx = entry.ecx & !0xf0ff | cores | core_bits(vcpus) << 12,
        // AMD's caches.
        0x8000_001d if entry.eax & 0x1f != 0 => {
            let shared = if entry.eax >> 5 & 7 < 3 { 0 } else { cores };
            entry.eax = entry.eax & 0x3fff | shared << 14;
        }
        // AMD's APIC ID, core and node.
        0x8000_001e => (entry.eax, entry.ebx, entry.ecx) = (id, id & 0xff, 0),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_vcpu_is_a_core_of_one_package() {
        let leaf = |function, eax| Entry { function, eax, ..Default::default() };
        let supported = CpuId::from_entries(&[
            leaf(0, 0xd),
            leaf(1, 0),
            leaf(X2APIC, 7),
            leaf(4, 1 << 5 | 1),
            leaf(4, 3 << 5 | 1),
            leaf(0x8000_0008, 0),
        ]);
        let entries = of(&supported.unwrap(), 3, 5, true);
        let find = |function| entries.iter().filter(move |entry| entry.function == function);
        let one = find(1).next().unwrap();
        assert_eq!((one.ebx >> 24, one.ebx >> 16 & 0xff), (3, 5));
        assert_eq!(one.ecx, HAS_X2APIC | HAS_TSC_DEADLINE | HAS_HYPERVISOR);
        let levels: Vec<_> = find(X2APIC).map(|it| (it.eax, it.ebx, it.ecx, it.edx)).collect();
        assert_eq!(levels, [(0, 1, 0x100, 3), (3, 5, 0x201, 3), (0, 0, 2, 3)]);
        let shared: Vec<_> = find(4).map(|it| it.eax >> 14 & 0xfff).collect();
        assert_eq!(shared, [0, 4]);
        assert_eq!(find(0x8000_0008).next().unwrap().ecx, 0x3004);
        assert_eq!(find(TOPOLOGY_V2).count(), 0);
        assert_eq!([1, 2, 3, 4, 5, 254].map(core_bits), [0, 1, 2, 2, 3, 8]);
    }
}
