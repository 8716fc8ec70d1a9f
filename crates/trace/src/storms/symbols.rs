//! Names of the guest's functions, from its /proc/kallsyms.

use std::io::{self, BufRead};

/// Limit in bytes that no kernel's list reaches.
const BYTES_MAX: u64 = 1 << 29;

/// Length in bytes that no function reaches.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;

/// The functions of a kernel by address.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    /// Sorted by address; each function extends to the next one.
    by_address: Vec<(u64, Box<str>)>,
}

/// Reasons why a file is not a guest's /proc/kallsyms.
#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// The file cannot be read.
    #[error("cannot read it")]
    Read(#[from] io::Error),
    /// The file has no line of the form `ADDRESS TYPE NAME`.
    #[error("no symbols in it: copy /proc/kallsyms of the guest, from the boot that was traced")]
    Empty,
    /// The kernel hid the addresses from an unprivileged user.
    #[error("all addresses are 0: copy the guest's /proc/kallsyms as root")]
    Hidden,
}

impl Symbols {
    /// Reads the format of /proc/kallsyms; ignores other lines.
    ///
    /// # Errors
    /// See [`SymbolsError`].
    pub fn read(input: impl BufRead) -> Result<Symbols, SymbolsError> {
        let mut by_address = Vec::new();
        super::lines::each(input.take(BYTES_MAX), |line| {
            by_address.extend(function(&String::from_utf8_lossy(line)));
        })?;
        if by_address.is_empty() {
            return Err(SymbolsError::Empty);
        }
        if by_address.iter().all(|(address, _)| *address == 0) {
            return Err(SymbolsError::Hidden);
        }
        by_address.sort();
        Ok(Symbols { by_address })
    }

    /// Returns the function that contains an address. Returns `None` if the address lies far behind
    /// the last function before it, as that of code generated at run time does.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.by_address.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.by_address.get(after.checked_sub(1)?)?;
        (address - start < FUNCTION_BYTES_MAX).then_some(&**name)
    }
}

/// Parses `ADDRESS TYPE NAME` if the type is code.
fn function(line: &str) -> Option<(u64, Box<str>)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    let name = words.next()?;
    is_code.then(|| (address, name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000100 t native_queued_spin_lock_slowpath\n\
        ffffffff81000080 D data\nffffffff81000300 T smp_call_function_many_cond\t[mod]\nnot a line\n";

    #[test]
    fn an_address_far_behind_all_functions_is_in_none() {
        let symbols = Symbols::read(KALLSYMS.as_bytes()).unwrap();
        assert_eq!(symbols.name(0xffff_ffff_c000_0000), None);
    }

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let symbols = Symbols::read(KALLSYMS.as_bytes()).unwrap();
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), Some("_text"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0090), Some("_text"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0123), Some("native_queued_spin_lock_slowpath"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0300), Some("smp_call_function_many_cond"));
        assert_eq!(symbols.name(0x1000), None);
    }

    #[test]
    fn hidden_and_foreign_files_are_refused() {
        let read = |text: &str| Symbols::read(text.as_bytes()).unwrap_err().to_string();
        assert!(read("0000000000000000 T _text\n").contains("as root"));
        assert!(read("hello\n").contains("/proc/kallsyms"));
        assert!(read("").contains("/proc/kallsyms"));
    }
}
