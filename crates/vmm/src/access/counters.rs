//! What page access did, for `--stats`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares counters once, for their fields, their sum and their text.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a VM. They are exact when its threads have ended.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        impl Counters {
            /// A line of JSON: policy, whether a protection key is in use, seconds, counters.
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
    /// Chains that were served.
    chains,
    /// Pages that descriptors, indirect tables and rings asked for.
    pages_asked,
    /// Of these, pages that were open, which needs no call.
    hits,
    /// Calls that opened pages.
    requests,
    /// Pages that they opened.
    pages_opened,
    /// Calls after a use that closed pages, in the policy `request`.
    returns,
    /// Pages that were revoked.
    revoked,
    /// Revocations that waited for I/O in flight.
    revoke_waits,
    /// Nanoseconds that they waited, together.
    revoke_wait_ns,
    /// Times that a thread of a device waited for the end of a revocation.
    device_waits,
    /// Chains and rings that got no access; the driver gets such a chain back unserved.
    refused,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// A counter's value.
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
        assert!(text.contains(",\"hits\":3,") && text.ends_with(",\"refused\":0}\n"), "{text}");
    }
}
