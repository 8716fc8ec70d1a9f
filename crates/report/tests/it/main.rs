//! The tests of this crate from outside, in one program.

mod ab;
mod claims;
mod common;
mod compare;
mod distribution;
mod doctor;
mod explain;
mod html;
mod igvm;
mod live;
mod monitoring;
mod openmetrics;
mod session;
mod storms;
mod svg;
mod text;
mod verdict;
