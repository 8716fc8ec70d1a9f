//! The rules, one for each type of header.

use igvm_defs::{
    IGVM_VHS_PAGE_DATA, IGVM_VHS_PAGE_TABLE_RELOCATION, IGVM_VHS_PARAMETER_AREA,
    IGVM_VHS_PARAMETER_INSERT, IGVM_VHS_RELOCATABLE_REGION, IGVM_VHS_SUPPORTED_PLATFORM,
    IGVM_VHS_VP_CONTEXT, IgvmPlatformType, IgvmVariableHeaderType as Type, VbsVpContextHeader,
    VbsVpContextRegister,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::{DATA_BYTES_MAX, Header};
use crate::PAGE_BYTES;
use crate::image::ReadError;

/// The most relocatable regions. The comparison of each with each would take too long.
const REGIONS_MAX: usize = 4096;

/// A judge of headers, one by one.
pub struct Guard<'a> {
    file: &'a [u8],
    data_start: usize,
    data_bytes: u64,
    regions: usize,
    /// Compatibility masks of VBS platforms.
    vsm_masks: Vec<u32>,
}

impl<'a> Guard<'a> {
    /// Returns a guard that has not seen any header.
    pub fn new(file: &'a [u8], data_start: usize) -> Guard<'a> {
        Guard { file, data_start, data_bytes: 0, regions: 0, vsm_masks: vec![] }
    }

    /// Judges the next header.
    pub fn judge(&mut self, header: &Header) -> Result<(), ReadError> {
        match Type(header.kind) {
            Type::IGVM_VHT_SUPPORTED_PLATFORM => self.platform(header),
            Type::IGVM_VHT_PAGE_DATA => self.page_data(header),
            Type::IGVM_VHT_PARAMETER_AREA => self.parameter_area(header),
            Type::IGVM_VHT_PARAMETER_INSERT => self.parameter_insert(header),
            Type::IGVM_VHT_VP_CONTEXT => self.vp_context(header),
            Type::IGVM_VHT_RELOCATABLE_REGION => self.relocatable_region(header),
            Type::IGVM_VHT_PAGE_TABLE_RELOCATION_REGION => self.page_table_region(header),
            kind if is_known(kind) => Ok(()),
            _ => Err(header.wrong("unspin does not know this type")),
        }
    }

    /// Returns the structure in a header, which must have its exact size.
    fn body<T: FromBytes + KnownLayout + Immutable>(
        &self,
        header: &Header,
    ) -> Result<T, ReadError> {
        let body = &self.file[header.offset + 8..header.offset + header.bytes];
        let (value, rest) =
            T::read_from_prefix(body).map_err(|_| header.wrong("is too short for its type"))?;
        if rest.len() >= 8 {
            return Err(header.wrong("is too long for its type"));
        }
        Ok(value)
    }

    /// Counts the bytes that the igvm crate will copy.
    fn count(&mut self, header: &Header, bytes: u64) -> Result<(), ReadError> {
        self.data_bytes = self.data_bytes.saturating_add(bytes);
        if self.data_bytes > DATA_BYTES_MAX {
            return Err(header.wrong("with it, the file has more than 1 GiB of data"));
        }
        Ok(())
    }

    /// Returns `bytes` bytes of the file's data from `offset` on.
    fn data(&self, header: &Header, offset: u32, bytes: u64) -> Result<&[u8], ReadError> {
        let start = offset as usize;
        let end = usize::try_from(bytes).ok().and_then(|bytes| start.checked_add(bytes));
        let found = end.and_then(|end| self.file.get(start..end));
        found.filter(|_| start >= self.data_start).ok_or_else(|| {
            header.wrong(format!("its {bytes} bytes at {offset:#x} are not in the file's data"))
        })
    }

    fn page_data(&mut self, header: &Header) -> Result<(), ReadError> {
        let page: IGVM_VHS_PAGE_DATA = self.body(header)?;
        self.count(header, PAGE_BYTES)?;
        if page.file_offset != 0 {
            self.data(header, page.file_offset, PAGE_BYTES)?;
        }
        Ok(())
    }

    fn parameter_area(&mut self, header: &Header) -> Result<(), ReadError> {
        let area: IGVM_VHS_PARAMETER_AREA = self.body(header)?;
        self.count(header, area.number_of_bytes)?;
        if area.file_offset != 0 {
            self.data(header, area.file_offset, area.number_of_bytes)?;
        }
        Ok(())
    }

    fn parameter_insert(&self, header: &Header) -> Result<(), ReadError> {
        let insert: IGVM_VHS_PARAMETER_INSERT = self.body(header)?;
        match insert.gpa.checked_add(DATA_BYTES_MAX) {
            Some(_) => Ok(()),
            None => Err(header.wrong("its address is beyond all memory")),
        }
    }

    fn platform(&mut self, header: &Header) -> Result<(), ReadError> {
        let platform: IGVM_VHS_SUPPORTED_PLATFORM = self.body(header)?;
        if platform.platform_type == IgvmPlatformType::VSM_ISOLATION {
            self.vsm_masks.push(platform.compatibility_mask);
        }
        Ok(())
    }

    fn vp_context(&mut self, header: &Header) -> Result<(), ReadError> {
        let context: IGVM_VHS_VP_CONTEXT = self.body(header)?;
        let behind = self.file.len().saturating_sub(context.file_offset as usize) as u64;
        if !self.vsm_masks.contains(&context.compatibility_mask) {
            // The igvm crate checks whether a whole page is there.
            self.data(header, context.file_offset, behind)?;
            return self.count(header, PAGE_BYTES);
        }
        let registers = registers(self.data(header, context.file_offset, behind)?);
        let one_vtl = registers.windows(2).all(|two| two[0] == two[1]);
        if context.vp_index != 0 || !one_vtl {
            return Err(header.wrong("its registers are not those of VP 0 at one VTL"));
        }
        // Another platform with the same mask may read the context as a page.
        let bytes = registers.len() * size_of::<VbsVpContextRegister>();
        self.count(header, (bytes as u64).max(PAGE_BYTES))
    }

    fn relocatable_region(&mut self, header: &Header) -> Result<(), ReadError> {
        let region: IGVM_VHS_RELOCATABLE_REGION = self.body(header)?;
        if region.relocation_alignment == 0 {
            return Err(header.wrong("its alignment is 0"));
        }
        self.region(header, region.relocation_region_gpa, region.relocation_region_size)
    }

    fn page_table_region(&mut self, header: &Header) -> Result<(), ReadError> {
        let region: IGVM_VHS_PAGE_TABLE_RELOCATION = self.body(header)?;
        self.region(header, region.gpa, region.size)
    }

    fn region(&mut self, header: &Header, gpa: u64, bytes: u64) -> Result<(), ReadError> {
        self.regions += 1;
        if self.regions > REGIONS_MAX {
            return Err(header.wrong(format!("the file has more than {REGIONS_MAX} regions")));
        }
        match gpa.checked_add(bytes) {
            Some(_) if bytes > 0 => Ok(()),
            _ => Err(header.wrong("its region is empty or ends beyond all memory")),
        }
    }
}

/// Returns the VTLs of the registers at the start of a VBS VP context. The igvm crate refuses a
/// truncated list.
fn registers(data: &[u8]) -> Vec<u8> {
    let Ok((head, mut rest)) = VbsVpContextHeader::read_from_prefix(data) else { return vec![] };
    let mut vtls = Vec::new();
    for _ in 0..head.register_count {
        let Ok((register, behind)) = VbsVpContextRegister::read_from_prefix(rest) else { break };
        vtls.push(register.vtl);
        rest = behind;
    }
    vtls
}

/// Returns whether the type is known and its structure needs no further check.
fn is_known(kind: Type) -> bool {
    matches!(
        kind,
        Type::IGVM_VHT_SUPPORTED_PLATFORM
            | Type::IGVM_VHT_GUEST_POLICY
            | Type::IGVM_VHT_CCA_POLICY
            | Type::IGVM_VHT_REQUIRED_MEMORY
            | Type::IGVM_VHT_VP_COUNT_PARAMETER
            | Type::IGVM_VHT_SRAT
            | Type::IGVM_VHT_MADT
            | Type::IGVM_VHT_MMIO_RANGES
            | Type::IGVM_VHT_SNP_ID_BLOCK
            | Type::IGVM_VHT_MEMORY_MAP
            | Type::IGVM_VHT_ERROR_RANGE
            | Type::IGVM_VHT_COMMAND_LINE
            | Type::IGVM_VHT_SLIT
            | Type::IGVM_VHT_PPTT
            | Type::IGVM_VHT_VBS_MEASUREMENT
            | Type::IGVM_VHT_DEVICE_TREE
            | Type::IGVM_VHT_ENVIRONMENT_INFO_PARAMETER
    )
}
