//! The simulated host of a topology: the values of `[topology.vt]`, or their defaults.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::Deserialize;
use toml::Spanned;
use unspin_wire::{
    Boost, CpuLimits, Critical, Cvm, Debooster, Fairness, Help, HostScheduler, PauseExits, Prices,
    VirtualNeighbour, Vnae, option_name,
};

use super::file::Source;
use super::{Spinlock, cpu_limits};
use crate::toml_error::ConfigError;

/// So short that an interrupt between vCPUs is never later than it is expensive.
const DEFAULT_QUANTUM_NS: u64 = 500;
/// With this value, short operations cost about as much as on hardware: docs/micro-costs.md.
const DEFAULT_INSTRUCTIONS: u32 = 2;

/// The `[vt]` table of an experiment, and `[topology.vt]`, which takes precedence.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSimulated {
    regime: Option<Regime>,
    prices: Option<Prices>,
    price_percent: Option<Spanned<u32>>,
    host_scheduler: Option<HostScheduler>,
    cpu_weight: Option<Spanned<u32>>,
    cpu_max: Option<Spanned<String>>,
    quantum_ns: Option<Spanned<u64>>,
    instructions: Option<Spanned<u32>>,
    pause_window: Option<Spanned<u32>>,
    boost: Option<Boost>,
    debooster: Option<Debooster>,
    critical: Option<Critical>,
    cvm: Option<Cvm>,
    vnae: Option<Spanned<Vnae>>,
}

/// The host's help for spinning guests, and the hardware that its prices model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Regime {
    /// All of KVM's help.
    Pv,
    /// PAUSE exits only.
    Ple,
    /// No help.
    #[default]
    Abandoned,
    /// PV spinlocks without steal time or PAUSE exits: what KVM and QEMU leave a TDX guest.
    TdxLike,
    /// All of KVM's help, at the prices of SEV-ES.
    SevLike,
}

/// A simulated host whose values have been checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Simulated {
    /// Help that the host's KVM offers.
    pub help: Help,
    /// Table of the prices of exits.
    pub prices: Prices,
    /// Percentage of these prices that the guest pays.
    pub price_percent: u32,
    /// The host's scheduler.
    pub host_scheduler: HostScheduler,
    /// Limits of the guest's pCPU time.
    pub cpu: CpuLimits,
    /// Nanoseconds that each pCPU runs per round.
    pub quantum_ns: u64,
    /// Instructions that each pCPU executes per nanosecond.
    pub instructions: u32,
    /// Kind of confidential guest, if the guest is one.
    pub cvm: Option<Cvm>,
    /// Neighbours that are models.
    pub neighbours: Vec<VirtualNeighbour>,
}

/// `HOST_PRICE_PERCENT_MAX` of policy/host/prices.h.
const MOST_PERCENT: u32 = 1_000;
/// Quanta in nanoseconds that QEMU's `virtual-host` accepts.
const QUANTA_NS: RangeInclusive<u64> = 1..=1_000_000;
const INSTRUCTIONS: RangeInclusive<u32> = 1..=16;

/// The physical address width is one more than the number of the emulated C-bit.
const CVM_CPU: &str = "max,phys-bits=48";

impl RawSimulated {
    /// Merges two tables. The topology's keys take precedence over the experiment's.
    pub(super) fn or(&self, experiment: &RawSimulated) -> RawSimulated {
        RawSimulated {
            regime: self.regime.or(experiment.regime),
            prices: self.prices.or(experiment.prices),
            price_percent: self.price_percent.clone().or_else(|| experiment.price_percent.clone()),
            host_scheduler: self.host_scheduler.or(experiment.host_scheduler),
            cpu_weight: self.cpu_weight.clone().or_else(|| experiment.cpu_weight.clone()),
            cpu_max: self.cpu_max.clone().or_else(|| experiment.cpu_max.clone()),
            quantum_ns: self.quantum_ns.clone().or_else(|| experiment.quantum_ns.clone()),
            instructions: self.instructions.clone().or_else(|| experiment.instructions.clone()),
            pause_window: self.pause_window.clone().or_else(|| experiment.pause_window.clone()),
            boost: self.boost.or(experiment.boost),
            debooster: self.debooster.or(experiment.debooster),
            critical: self.critical.or(experiment.critical),
            cvm: self.cvm.or(experiment.cvm),
            vnae: self.vnae.clone().or_else(|| experiment.vnae.clone()),
        }
    }

    /// Checks the values and returns the host.
    pub(super) fn check(
        &self,
        source: &Source,
        fairness: Fairness,
        neighbours: Vec<VirtualNeighbour>,
    ) -> Result<Simulated, ConfigError> {
        let cpu = self.cpu_limits(source, fairness, !neighbours.is_empty())?;
        let host = Simulated { cpu, ..self.resolve(neighbours) };
        within(source, "price_percent", self.price_percent.as_ref(), 0..=MOST_PERCENT)?;
        within(source, "quantum_ns", self.quantum_ns.as_ref(), QUANTA_NS)?;
        within(source, "instructions", self.instructions.as_ref(), INSTRUCTIONS)?;
        let vnae = self.vnae.as_ref().filter(|vnae| *vnae.get_ref() != Vnae::Off);
        if let Some((vnae, why)) = vnae.and_then(|vnae| Some((vnae, host.unfit_for_vnae()?))) {
            return Err(source.error(vnae, why));
        }
        match self.pause_window.as_ref().and_then(|window| Some((window, host.unfit_window()?))) {
            Some((window, why)) => Err(source.error(window, why)),
            None => Ok(host),
        }
    }

    fn cpu_limits(
        &self,
        source: &Source,
        fairness: Fairness,
        beside_others: bool,
    ) -> Result<CpuLimits, ConfigError> {
        let mut limits = CpuLimits::default();
        if let Some(weight) = &self.cpu_weight {
            let checked = cpu_limits::weight(*weight.get_ref());
            limits.weight = Some(checked.map_err(|why| source.error(weight, why))?);
        }
        if let Some(max) = &self.cpu_max {
            limits.max = cpu_limits::max(max.get_ref()).map_err(|why| source.error(max, why))?;
            let per_vm = fairness == Fairness::PerVm;
            if let Some(why) = cpu_limits::unfit(&limits, per_vm, beside_others) {
                return Err(source.error(max, why));
            }
        }
        Ok(limits)
    }

    fn resolve(&self, neighbours: Vec<VirtualNeighbour>) -> Simulated {
        let regime = self.regime.unwrap_or_default();
        let own = self.cvm.map_or(regime.prices(), |_| Prices::SevEs);
        let prices = self.prices.unwrap_or(own);
        let help = Help {
            pause_window: self.pause_window.as_ref().map(|window| *window.get_ref()),
            boost: self.boost.unwrap_or_default(),
            debooster: self.debooster.unwrap_or_default(),
            critical: self.critical.unwrap_or_default(),
            vnae: self.vnae.as_ref().map(|vnae| *vnae.get_ref()).unwrap_or_default(),
            ..regime.help(prices)
        };
        Simulated {
            help,
            prices,
            price_percent: self.price_percent.as_ref().map_or(100, |percent| *percent.get_ref()),
            host_scheduler: self.host_scheduler.unwrap_or_default(),
            quantum_ns: self.quantum_ns.as_ref().map_or(DEFAULT_QUANTUM_NS, |ns| *ns.get_ref()),
            instructions: self
                .instructions
                .as_ref()
                .map_or(DEFAULT_INSTRUCTIONS, |number| *number.get_ref()),
            cpu: CpuLimits::default(),
            cvm: self.cvm,
            neighbours,
        }
    }
}

/// Rejects a number that the simulated host does not accept.
fn within<T: PartialOrd + Display>(
    source: &Source,
    key: &str,
    number: Option<&Spanned<T>>,
    bounds: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    match number.filter(|number| !bounds.contains(number.get_ref())) {
        Some(number) => {
            let why = format!("`{key}` is {} to {}", bounds.start(), bounds.end());
            Err(source.error(number, why))
        }
        None => Ok(()),
    }
}

impl Regime {
    fn prices(self) -> Prices {
        match self {
            Regime::Pv | Regime::Ple | Regime::Abandoned => Prices::Vmx,
            Regime::TdxLike => Prices::Tdx,
            Regime::SevLike => Prices::SevEs,
        }
    }

    /// Returns the help that the regime offers. PAUSE exits are those of the hardware whose prices
    /// apply.
    fn help(self, prices: Prices) -> Help {
        let pause_exits = match prices {
            Prices::Svm | Prices::SevEs => PauseExits::Svm,
            Prices::Free | Prices::Vmx | Prices::Tdx => PauseExits::Vmx,
        };
        let no_help = Help::default();
        match self {
            Regime::Pv | Regime::SevLike => {
                Help { pv_unhalt: true, pv_ipi: true, steal_time: true, pause_exits, ..no_help }
            }
            Regime::Ple => Help { pause_exits, ..no_help },
            Regime::Abandoned => no_help,
            Regime::TdxLike => Help { pv_unhalt: true, pv_ipi: true, ..no_help },
        }
    }
}

impl Simulated {
    /// Returns the prices in the form of a label.
    pub fn prices_text(&self) -> String {
        let table = option_name(&self.prices);
        match self.price_percent {
            100 => table,
            percent => format!("{table} at {percent} %"),
        }
    }

    /// Returns why the host cannot reflect pause loops, if it cannot.
    fn unfit_for_vnae(&self) -> Option<&'static str> {
        if self.cvm.is_none() {
            Some("`vnae` needs a confidential guest: `cvm = \"sev-es-emulated\"`")
        } else if self.help.pause_exits == PauseExits::Off {
            Some("`vnae` needs PAUSE exits: `regime = \"ple\"` or `\"pv\"`")
        } else {
            None
        }
    }

    /// Returns why the host cannot use its `pause_window`, if it cannot.
    fn unfit_window(&self) -> Option<&'static str> {
        let window = self.help.pause_window?;
        match self.help.pause_exits {
            PauseExits::Off => {
                Some("`pause_window` needs PAUSE exits: `regime = \"ple\"` or `\"pv\"`")
            }
            PauseExits::Svm if u16::try_from(window).is_err() => {
                Some("`pause_window` is at most 65535 PAUSEs: a VMCB counts no further")
            }
            PauseExits::Svm | PauseExits::Vmx if window == 0 => {
                Some("`pause_window` is at least 1: leave PAUSE exits out by `regime`")
            }
            PauseExits::Svm | PauseExits::Vmx => None,
        }
    }

    /// Returns QEMU's `-cpu` argument. Without the hypervisor bit Linux takes the FIFO qspinlock,
    /// as it does on KVM with `nopvspin`. With the bit and without PV spinlocks Linux takes the
    /// test-and-set lock.
    pub fn cpu(&self, spinlock: Option<Spinlock>) -> String {
        match spinlock {
            // A confidential guest uses x2APIC only if it sees KVM's signature.
            _ if self.cvm.is_some() => CVM_CPU.into(),
            Some(Spinlock::Tas) => "max".into(),
            None if self.help.pv_unhalt => "max".into(),
            Some(Spinlock::Native) | None => "max,-hypervisor".into(),
        }
    }

    /// Returns whether a confidential guest needs `nopvspin` to take the FIFO qspinlock. Until
    /// commit 960550503965 (Linux 6.18), Linux obeys `nopvspin` only if KVM offers PV spinlocks.
    pub fn declines_pv_spinlocks(&self, spinlock: Option<Spinlock>) -> bool {
        let native = match spinlock {
            Some(spinlock) => spinlock == Spinlock::Native,
            None => !self.help.pv_unhalt,
        };
        self.cvm.is_some() && native
    }

    /// Returns the help that the host's KVM offers a guest with this spinlock.
    pub fn offered(&self, spinlock: Option<Spinlock>) -> Help {
        let pv_unhalt = self.help.pv_unhalt || self.declines_pv_spinlocks(spinlock);
        Help { pv_unhalt, ..self.help }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regimes_bring_their_help_and_prices() {
        let of = |text: &str| toml::from_str::<RawSimulated>(text).unwrap().resolve(Vec::new());
        let tdx = of("regime = \"tdx-like\"");
        assert_eq!(tdx.prices, Prices::Tdx);
        assert!(tdx.help.pv_unhalt && !tdx.help.steal_time);
        assert_eq!(tdx.help.pause_exits, PauseExits::Off, "the TDX module keeps them off");
        assert_eq!(of("regime = \"sev-like\"").help.pause_exits, PauseExits::Svm);
        assert_eq!(of("regime = \"ple\"\nboost = \"strict\"").help.boost, Boost::Strict);
        assert_eq!(tdx.cpu(None), "max");
        assert_eq!(of("").cpu(None), "max,-hypervisor");
        assert_eq!(of("").cpu(Some(Spinlock::Tas)), "max");
        assert_eq!(of("regime = \"pv\"\nprices = \"free\"").prices, Prices::Free);
        assert_eq!(of("critical = \"extend\"").help.critical, Critical::Extend);
        assert_eq!(of("host_scheduler = \"cfs\"").host_scheduler, HostScheduler::Cfs);
        assert!(toml::from_str::<RawSimulated>("regime = \"none\"").is_err());
    }

    #[test]
    fn a_confidential_guest_has_its_own_cpu_prices_and_spinlock() {
        let of = |text: &str| toml::from_str::<RawSimulated>(text).unwrap().resolve(Vec::new());
        let cvm = of("cvm = \"sev-es-emulated\"");
        assert_eq!((cvm.prices, cvm.cpu(None)), (Prices::SevEs, "max,phys-bits=48".into()));
        assert!(cvm.declines_pv_spinlocks(None) && cvm.offered(None).pv_unhalt);
        assert!(!cvm.declines_pv_spinlocks(Some(Spinlock::Tas)));
        let pv = of("regime = \"pv\"\ncvm = \"sev-es-emulated\"\nprices = \"svm\"");
        assert!(!pv.declines_pv_spinlocks(None) && pv.prices == Prices::Svm);
        assert!(!of("").declines_pv_spinlocks(None));
    }

    #[test]
    fn only_a_confidential_guest_with_pause_exits_is_asked() {
        let of = |text: &str| toml::from_str::<RawSimulated>(text).unwrap().resolve(Vec::new());
        let asked = of("cvm = \"sev-es-emulated\"\nregime = \"ple\"\nvnae = \"both\"");
        assert_eq!((asked.help.vnae, asked.unfit_for_vnae()), (Vnae::Both, None));
        let plain = of("regime = \"ple\"\nvnae = \"both\"");
        assert!(plain.unfit_for_vnae().is_some_and(|why| why.contains("cvm")));
        let abandoned = of("cvm = \"sev-es-emulated\"\nvnae = \"none\"");
        assert!(abandoned.unfit_for_vnae().is_some_and(|why| why.contains("regime")));
        assert!(toml::from_str::<RawSimulated>("vnae = \"force\"").is_err(), "a guest would die");
    }

    #[test]
    fn a_window_needs_pause_exits_and_fits_the_hardware() {
        let of = |text: &str| toml::from_str::<RawSimulated>(text).unwrap().resolve(Vec::new());
        let why = |text: &str| of(text).unfit_window().unwrap_or("fits");
        assert_eq!(of("pause_window = 300\nregime = \"ple\"").help.pause_window, Some(300));
        assert!(why("pause_window = 300").contains("regime"));
        assert!(why("pause_window = 0\nregime = \"ple\"").contains("at least"));
        assert_eq!(why("pause_window = 70000\nregime = \"ple\""), "fits", "VMX counts time");
        assert!(why("pause_window = 70000\nregime = \"sev-like\"").contains("65535"));
        assert_eq!(why("pause_window = 65535\nregime = \"sev-like\""), "fits");
    }

    #[test]
    fn a_topology_goes_before_its_experiment() {
        let of = |text: &str| toml::from_str::<RawSimulated>(text).unwrap();
        let both = of("quantum_ns = 500").or(&of("quantum_ns = 2000\nprices = \"svm\""));
        let both = both.resolve(Vec::new());
        assert_eq!((both.quantum_ns, both.prices), (500, Prices::Svm));
    }

    #[test]
    fn a_label_says_which_part_of_the_prices_is_paid() {
        let of = |text: &str| toml::from_str::<RawSimulated>(text).unwrap();
        let text = |raw: RawSimulated| raw.resolve(Vec::new()).prices_text();
        let dear = of("price_percent = 400");
        assert_eq!(text(of("regime = \"tdx-like\"").or(&dear)), "tdx at 400 %");
        assert_eq!(text(of("price_percent = 100").or(&dear)), "vmx");
    }
}
