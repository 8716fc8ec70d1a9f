//! Kinds of failures.

use std::error::Error;
use std::fmt;

/// Kind of a failure, which decides the command's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Any other failure.
    Failed,
    /// The user's input, on the command line or in a file, is invalid.
    Usage,
    /// This machine lacks something.
    Unavailable,
    /// The user lacks a privilege that root has.
    NeedsRoot,
    /// A signal ended the work early.
    Interrupted,
}

impl Class {
    /// Returns the command's exit status.
    pub fn exit_status(self) -> u8 {
        match self {
            Class::Failed => 1,
            Class::Usage => 2,
            Class::Unavailable | Class::NeedsRoot => 77,
            Class::Interrupted => 130,
        }
    }
}

/// An error that has a class.
pub trait Classified: Error {
    /// Returns the class of the error.
    fn class(&self) -> Class;
}

/// Returns an error with its causes, outermost first: `cannot open x: No such file or directory`.
pub fn chain(error: &dyn Error) -> impl fmt::Display {
    let sources = std::iter::successors(Some(error), |error: &&dyn Error| (*error).source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(fmt::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_chain_has_each_cause_once() {
        let text = chain(&Outer(fmt::Error)).to_string();
        assert_eq!(text, format!("outer: {}", fmt::Error));
    }
}
