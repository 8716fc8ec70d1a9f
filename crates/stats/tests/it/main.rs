//! The tests of this crate from outside, in one program.

mod ab;
mod properties;
