//! The tests of this crate from outside, in one program.

mod check;
mod episodes;
mod perfetto;
mod recording;
mod session;
mod storms;
mod virtual_time;
