//! One line of a trace: a kvm_exit or kvm_entry event of a thread at a time.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Common prefix of both events' names.
static KVM: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"kvm_e"));

/// An event of a vCPU's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) tid: u32,
    /// Index of the vCPU; kernels before 5.9 do not report it.
    pub(super) vcpu: Option<u32>,
    pub(super) t_ns: u64,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The vCPU left the guest because of a PAUSE at this address.
    Pause(u64),
    /// The vCPU left the guest for another reason.
    OtherExit,
    /// The vCPU entered the guest.
    Entry,
}

/// Parses a line; returns `None` if it does not hold such an event. Before the event's name, each
/// tool writes the command, which may contain any characters, then
/// - perf script: `TID [CPU] TIME:` or `PID/TID [CPU] TIME:`,
/// - trace-cmd report: `-TID [CPU] TIME:`,
/// - tracefs: `-TID [CPU] FLAGS TIME:`, with the process in parentheses after the thread if the
///   option record-tgid is on.
pub(super) fn parse(line: &[u8]) -> Option<Event> {
    let (at, body) = find_event(line)?;
    let (is_exit, fields) = match (body.strip_prefix(b"xit:"), body.strip_prefix(b"ntry:")) {
        (Some(fields), _) => (true, Fields::of(fields)),
        (_, Some(fields)) => (false, Fields::of(fields)),
        _ => return None,
    };
    let what = if is_exit { fields.exit()? } else { What::Entry };
    let head = line[..at].strip_suffix(b"kvm:").unwrap_or(&line[..at]).trim_ascii_end();
    let time = head.rsplit(|byte| *byte == b' ').next()?;
    let before_cpu = head[..memchr::memrchr(b'[', head)?].trim_ascii_end();
    let vcpu = fields.vcpu.and_then(|text| decimal(text.strip_suffix(b",").unwrap_or(text)));
    let vcpu = vcpu.and_then(|vcpu| vcpu.try_into().ok());
    Some(Event { tid: thread(before_cpu)?, vcpu, t_ns: time_ns(time)?, what })
}

/// Returns the offset of the event's name, and the text after its `kvm_e`. Skips other names with
/// this prefix.
fn find_event(line: &[u8]) -> Option<(usize, &[u8])> {
    let mut at = KVM.find(line)?;
    let is_event = |rest: &[u8]| rest.starts_with(b"xit:") || rest.starts_with(b"ntry:");
    while !is_event(&line[at + 5..]) {
        at += 5 + KVM.find(&line[at + 5..])?;
    }
    Some((at, &line[at + 5..]))
}

/// The fields of an event's text that matter: the words after these names.
#[derive(Default)]
struct Fields<'a> {
    vcpu: Option<&'a [u8]>,
    reason: Option<&'a [u8]>,
    rip: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Reads the fields up to the address; nothing after it matters.
    fn of(text: &'a [u8]) -> Fields<'a> {
        let mut fields = Fields::default();
        let mut words = text.split(|byte| *byte <= b' ').filter(|word| !word.is_empty());
        while let Some(name) = words.next() {
            match name {
                b"vcpu" => fields.vcpu = words.next(),
                b"reason" => fields.reason = words.next(),
                b"rip" => {
                    fields.rip = words.next();
                    break;
                }
                _ => {}
            }
        }
        fields
    }

    /// Returns the kind of exit. The reason is `PAUSE_INSTRUCTION` on Intel and `pause` on AMD.
    fn exit(&self) -> Option<What> {
        match self.reason? {
            b"PAUSE_INSTRUCTION" | b"pause" => {
                Some(What::Pause(hexadecimal(self.rip?.strip_prefix(b"0x")?)?))
            }
            _ => Some(What::OtherExit),
        }
    }
}

/// Parses the thread id at the end of `COMMAND TID`, `COMMAND PID/TID`, `COMMAND-TID` or
/// `COMMAND-TID (PID)`.
fn thread(text: &[u8]) -> Option<u32> {
    let text = match text.strip_suffix(b")") {
        Some(inner) => inner[..memchr::memrchr(b'(', inner)?].trim_ascii_end(),
        None => text,
    };
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    decimal(&text[text.len() - digits..])?.try_into().ok()
}

/// Converts `SECONDS.FRACTION`, with or without a colon, to nanoseconds.
fn time_ns(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b":").unwrap_or(text);
    let point = memchr::memchr(b'.', text)?;
    let (seconds, fraction) = (&text[..point], &text[point + 1..]);
    if fraction.len() > 9 {
        return None;
    }
    let unit_ns = 10_u64.pow(9 - fraction.len() as u32);
    let seconds_ns = decimal(seconds)?.checked_mul(1_000_000_000)?;
    seconds_ns.checked_add(decimal(fraction)? * unit_ns)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    (!digits.is_empty()).then_some(value)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let mut value: u64 = 0;
    for byte in digits {
        value = value.checked_mul(16)?.checked_add(u64::from(char::from(*byte).to_digit(16)?))?;
    }
    (!digits.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(tid: u32, vcpu: Option<u32>, t_ns: u64) -> Option<Event> {
        Some(Event { tid, vcpu, t_ns, what: What::Pause(0xffff_ffff_b72e_29e3) })
    }

    #[test]
    fn the_formats_of_all_three_tools_are_read() {
        for (line, vcpu) in [
            (
                "CPU 2/KVM 2679 [006] 276.731784: kvm:kvm_exit: vcpu 2 reason PAUSE_INSTRUCTION rip 0xffffffffb72e29e3 info 0 0",
                Some(2),
            ),
            (
                "CPU 2/KVM 2679 [006] 276.731784 kvm:kvm_exit: vcpu 2 reason PAUSE_INSTRUCTION rip 0xffffffffb72e29e3 info 0 0",
                Some(2),
            ),
            (
                "       CPU 2/KVM  2600/2679  [006]   276.731784000: kvm:kvm_exit: vcpu 2 reason pause rip 0xffffffffb72e29e3 info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0",
                Some(2),
            ),
            (
                "  CPU 2/KVM-2679  [006]   276.731784: kvm_exit:             reason PAUSE_INSTRUCTION rip 0xffffffffb72e29e3 info 0 0",
                None,
            ),
            (
                "       CPU 2/KVM-2679    [006] d..1.   276.731784: kvm_exit: vcpu 2 reason pause rip 0xffffffffb72e29e3 info1 0x0",
                Some(2),
            ),
            (
                "       CPU 2/KVM-2679    (   2600) [006] d..1.   276.731784: kvm_exit: vcpu 2 reason pause rip 0xffffffffb72e29e3 info1 0x0",
                Some(2),
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), pause(2679, vcpu, 276_731_784_000), "{line}");
        }
    }

    #[test]
    fn entries_and_other_exits_are_told_apart() {
        let what = |line: &str| parse(line.as_bytes()).map(|event| event.what);
        let entry = "CPU 0/KVM 9 [000] 1.5: kvm:kvm_entry: vcpu 0, rip 0xffffffff81000000";
        assert_eq!(what(entry), Some(What::Entry));
        assert_eq!(parse(entry.as_bytes()).unwrap().vcpu, Some(0));
        assert_eq!(parse(entry.as_bytes()).unwrap().t_ns, 1_500_000_000);
        let exit = "CPU 0/KVM 9 [000] 1.5: kvm:kvm_exit: vcpu 0 reason HLT rip 0x10 info 0 0";
        assert_eq!(what(exit), Some(What::OtherExit));
        let named = "kvm_exec 9 [000] 1.5: kvm:kvm_exit: vcpu 0 reason pause rip 0x10 info 0 0";
        assert_eq!(what(named), Some(What::Pause(16)), "a command whose name begins so");
    }

    #[test]
    fn what_is_no_event_is_none() {
        for line in [
            "",
            "# tracer: nop",
            "cpus=8",
            "CPU 2/KVM 2679 [006] 276.731784: kvm:kvm_exit:",
            "CPU 2/KVM 2679 [006] 276.731784: kvm:kvm_exit: vcpu 2 reason pause rip",
            "CPU 2/KVM 2679 [006] 276.731784: kvm:kvm_exit: vcpu 2 reason pause rip 0xfffffffffffffffff",
            "CPU 2/KVM 2679 [006] soon: kvm:kvm_entry: vcpu 2",
            "CPU 2/KVM 2679 [006] 99999999999999999999.0: kvm:kvm_entry: vcpu 2",
            "CPU 2/KVM [006] 276.731784: kvm:kvm_entry: vcpu 2",
            "276.731784: kvm:kvm_entry: vcpu 2",
            "kvm_entry:",
            "CPU 2/KVM 2679 [006] 276.731784: kvm:kvm_eoi: apicid 0 vector 236",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
