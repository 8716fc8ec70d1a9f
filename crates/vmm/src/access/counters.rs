//! Counters of page access, for `--stats`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares each counter once, and derives the fields and the JSON text from the declaration.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a VM. They are exact once its threads have ended.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        impl Counters {
            /// Returns a line of JSON: the policy, whether a protection key is in use, seconds,
            /// counters.
            pub fn json(&self, policy: &str, key: bool, seconds: f64) -> String {
                let mut text = format!("{{\"policy\":\"{policy}\",\"key\":{key}");
                text += &format!(",\"seconds\":{seconds:.3}");
                $(text += &format!(",\"{}\":{}", stringify!($name), read(&self.$name));)*
                text + "}\n"
            }
        }
    };
}

counters! {
    /// Descriptor chains that devices served.
    chains,
    /// Pages that descriptors, indirect tables and rings named.
    pages_asked,
    /// Those of `pages_asked` that were open already and needed no call.
    hits,
    /// Calls that opened pages.
    requests,
    /// Pages that those calls opened.
    pages_opened,
    /// Calls that closed pages after a use, with the policy `request`.
    returns,
    /// Pages that revocations closed.
    revoked,
    /// Revocations that waited for I/O in flight.
    revoke_waits,
    /// Total time that revocations waited, in nanoseconds.
    revoke_wait_ns,
    /// Times that a device's thread waited for the end of a revocation.
    device_waits,
    /// Chains and rings that got no access. The driver gets such a chain back unserved.
    refused,
    /// Attempts to take a page that the guest had made private.
    refused_private,
    /// Conversions to private that the guest reported.
    to_private,
    /// Conversions to shared that the guest reported.
    to_shared,
    /// Pages that became private so, some of them more than once.
    pages_to_private,
    /// Pages that became shared so.
    pages_to_shared,
    /// Reports of conversions that were refused.
    reports_refused,
    /// Open pages that became private.
    converted_open,
    /// Parts of conversions that waited for I/O in flight.
    convert_waits,
    /// Total time that they waited, in nanoseconds.
    convert_wait_ns,
}

/// Adds `count` to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Returns a counter's value.
pub fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_a_line_of_json() {
        let counters = Counters::default();
        add(&counters.hits, 3);
        let text = counters.json("cache", false, 1.5);
        assert!(
            text.starts_with("{\"policy\":\"cache\",\"key\":false,\"seconds\":1.500,"),
            "{text}"
        );
        assert!(text.contains(",\"hits\":3,") && text.ends_with("_wait_ns\":0}\n"), "{text}");
    }
}
