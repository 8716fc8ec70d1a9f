//! From the records of an experiment's runs to its summary, and from summaries to claims. Other
//! crates render them for people.

pub mod compare;
pub mod evaluate;
pub mod family;
pub mod summarize;

pub use summarize::summarize;
