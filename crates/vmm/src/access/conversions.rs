//! Conversions of pages, as the guest reports them by KVM_HC_MAP_GPA_RANGE.
//!
//! KVM passes such a report on to this program. A conversion to private revokes the devices' access
//! and waits for their I/O before the guest continues. A page that the guest made private is
//! refused to devices until the guest shares it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use kvm_bindings::{KVM_MSR_EXIT_REASON_FILTER, kvm_cpuid_entry2, kvm_enable_cap};
use kvm_ioctls::{Cap, MsrFilterDefaultAction, MsrFilterRange, MsrFilterRangeFlags, VmFd};
use unspin_cvm::PAGE_BYTES;

use super::counters::add;
use super::table::Table;
use crate::error::{Step, VmmError};

/// The hypercall's number (linux/kvm_para.h), and the bits of its third argument: the guest's
/// preferred size of pages, and whether the pages become private.
const MAP_GPA_RANGE: u64 = 12;
const PAGE_SIZE: u64 = 0xf;
const PRIVATE: u64 = 1 << 4;
/// The MSR by which a guest says whether it may be migrated, and its only bit.
const MIGRATION_CONTROL: u32 = 0x4b56_4d08;
const MIGRATION_READY: u64 = 1;
/// The leaf of KVM's features, and those that offer the hypercall and the MSR.
const FEATURES: u32 = 0x4000_0001;
const HAS_MAP_GPA_RANGE: u32 = 1 << 16;
const HAS_MIGRATION_CONTROL: u32 = 1 << 17;

/// What the hypercall returns: success, or one of KVM's errors.
const DONE: u64 = 0;
const NO_SUCH_CALL: u64 = (-1000_i64) as u64;
const INVALID: u64 = (-(libc::EINVAL as i64)) as u64;

/// The conversions of a guest.
#[derive(Debug)]
pub struct Conversions {
    table: Arc<Table>,
    /// Whether pages are private until the guest shares them, as in a confidential guest.
    begins_private: bool,
    /// Done once the guest has reported a conversion.
    known: Once,
    migration: AtomicU64,
}

impl Conversions {
    /// Returns the conversions of a guest with these pages. With `begins_private`, the first report
    /// makes all pages private, because it is the first sign that the guest reports at all.
    pub fn new(table: Arc<Table>, begins_private: bool) -> Conversions {
        // The guest of memory that it need not share can be migrated at any time.
        let migration = if begins_private { 0 } else { MIGRATION_READY };
        let (known, migration) = (Once::new(), migration.into());
        Conversions { table, begins_private, known, migration }
    }

    /// Makes KVM pass reports on, and returns whether it can. Call this before there are vCPUs.
    pub fn ask_for(vm: &VmFd) -> Result<bool, VmmError> {
        let needed = [Cap::ExitHypercall, Cap::X86UserSpaceMsr, Cap::X86MsrFilter];
        let able = needed.into_iter().all(|cap| vm.check_extension(cap))
            && vm.check_extension_int(Cap::ExitHypercall) & 1 << MAP_GPA_RANGE != 0;
        if able {
            enable(vm, Cap::ExitHypercall, 1 << MAP_GPA_RANGE)?;
            enable(vm, Cap::X86UserSpaceMsr, KVM_MSR_EXIT_REASON_FILTER.into())?;
            // KVM does not know the MSR. It reads the bitmap in units of eight bytes.
            let range = MsrFilterRange {
                flags: MsrFilterRangeFlags::READ | MsrFilterRangeFlags::WRITE,
                base: MIGRATION_CONTROL,
                msr_count: 1,
                bitmap: &[0; 8],
            };
            let filtered = vm.set_msr_filter(MsrFilterDefaultAction::ALLOW, &[range]);
            filtered.step("filter an MSR")?;
        }
        Ok(able)
    }

    /// Offers the hypercall and the MSR to a vCPU.
    pub fn offer(entries: &mut [kvm_cpuid_entry2]) {
        for entry in entries.iter_mut().filter(|entry| entry.function == FEATURES) {
            entry.eax |= HAS_MAP_GPA_RANGE | HAS_MIGRATION_CONTROL;
        }
    }

    /// Executes a hypercall, and returns what the guest gets.
    pub fn call(&self, number: u64, args: &[u64; 6]) -> u64 {
        if number != MAP_GPA_RANGE {
            return NO_SUCH_CALL;
        }
        let [gpa, pages, attributes, ..] = *args;
        let counters = &self.table.counters;
        let Some(range) = self.range(gpa, pages, attributes) else {
            add(&counters.reports_refused, 1);
            return INVALID;
        };
        let all = 0..self.table.pages();
        self.known.call_once(|| {
            if self.begins_private {
                self.table.make_private(all);
            }
        });
        if attributes & PRIVATE != 0 {
            self.table.make_private(range);
            add(&counters.to_private, 1);
            add(&counters.pages_to_private, pages);
        } else {
            self.table.make_shared(range);
            add(&counters.to_shared, 1);
            add(&counters.pages_to_shared, pages);
        }
        DONE
    }

    /// Returns the pages of a report, if all of them are memory and the report has no unknown bit.
    fn range(&self, gpa: u64, pages: u64, attributes: u64) -> Option<Range<u32>> {
        let bytes = pages.checked_mul(PAGE_BYTES)?;
        let known = attributes & !(PAGE_SIZE | PRIVATE) == 0;
        (known && gpa % PAGE_BYTES == 0).then(|| self.table.locate(gpa, bytes))?
    }

    /// Reads the MSR. Returns `None` if it is another one, so that the guest gets #GP.
    pub fn read_msr(&self, index: u32) -> Option<u64> {
        (index == MIGRATION_CONTROL).then(|| self.migration.load(Ordering::Relaxed))
    }

    /// Writes the MSR, which has no effect, because this program cannot migrate guests. Returns
    /// `false` if the guest gets #GP.
    pub fn write_msr(&self, index: u32, value: u64) -> bool {
        let valid = index == MIGRATION_CONTROL && value & !MIGRATION_READY == 0;
        if valid {
            self.migration.store(value, Ordering::Relaxed);
        }
        valid
    }
}

fn enable(vm: &VmFd, cap: Cap, what: u64) -> Result<(), VmmError> {
    let cap = kvm_enable_cap { cap: cap as u32, args: [what, 0, 0, 0], ..Default::default() };
    vm.enable_cap(&cap).step("get reports of conversions from KVM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_offered_the_hypercall_and_the_msr() {
        let leaf = |function| kvm_cpuid_entry2 { function, eax: 1, ..Default::default() };
        let mut entries = [leaf(1), leaf(FEATURES)];
        Conversions::offer(&mut entries);
        assert_eq!((entries[0].eax, entries[1].eax), (1, 0x3_0001));
    }
}
