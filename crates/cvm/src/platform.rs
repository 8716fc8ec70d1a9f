//! The kinds of machine that a file can be for.

use std::fmt;

use igvm_defs::IgvmPlatformType;
use serde::Serialize;

/// A platform of IGVM's specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// A VM without isolation.
    Native,
    /// Hyper-V's software isolation (VBS).
    Vsm,
    /// AMD SEV-SNP.
    Snp,
    /// Intel TDX.
    Tdx,
    /// AMD SEV.
    Sev,
    /// AMD SEV-ES.
    SevEs,
    /// Arm CCA.
    Cca,
}

impl Platform {
    /// All platforms, in the order of their numbers in IGVM files.
    pub const ALL: [Platform; 7] = [
        Platform::Native,
        Platform::Vsm,
        Platform::Snp,
        Platform::Tdx,
        Platform::Sev,
        Platform::SevEs,
        Platform::Cca,
    ];

    /// Returns the name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Native => "native",
            Platform::Vsm => "vsm",
            Platform::Snp => "snp",
            Platform::Tdx => "tdx",
            Platform::Sev => "sev",
            Platform::SevEs => "sev-es",
            Platform::Cca => "cca",
        }
    }

    /// Returns the platform with this name.
    pub fn named(name: &str) -> Option<Platform> {
        Platform::ALL.into_iter().find(|platform| platform.name() == name)
    }

    /// Returns the platform with this number.
    pub fn of(kind: IgvmPlatformType) -> Option<Platform> {
        Platform::ALL.into_iter().find(|platform| platform.kind() == kind)
    }

    /// Returns the platform's number in IGVM files.
    pub fn kind(self) -> IgvmPlatformType {
        match self {
            Platform::Native => IgvmPlatformType::NATIVE,
            Platform::Vsm => IgvmPlatformType::VSM_ISOLATION,
            Platform::Snp => IgvmPlatformType::SEV_SNP,
            Platform::Tdx => IgvmPlatformType::TDX,
            Platform::Sev => IgvmPlatformType::SEV,
            Platform::SevEs => IgvmPlatformType::SEV_ES,
            Platform::Cca => IgvmPlatformType::CCA,
        }
    }

    /// Returns whether a bit of page table entries marks a page as encrypted.
    pub fn has_c_bit(self) -> bool {
        matches!(self, Platform::Snp | Platform::Sev | Platform::SevEs)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for (number, platform) in Platform::ALL.into_iter().enumerate() {
            assert_eq!(platform.kind().0 as usize, number);
            assert_eq!(Platform::of(platform.kind()), Some(platform));
            assert_eq!(Platform::named(platform.name()), Some(platform));
        }
        assert_eq!(Platform::of(IgvmPlatformType(7)), None);
    }
}
