//! What an experiment's runs say: the summary, and its forms for people.

pub mod summarize;

pub use summarize::summarize;
