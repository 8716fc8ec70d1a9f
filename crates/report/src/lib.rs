//! What an experiment's runs say: the summary, and its forms for people.

pub mod ab;
pub mod claims;
mod columns;
pub mod compare;
pub mod doctor;
pub mod evaluate;
pub mod explain;
pub mod format;
pub mod headline;
pub mod html;
pub mod live;
pub mod markdown;
pub mod openmetrics;
mod rows;
pub mod scheduler;
pub mod session;
pub mod storms;
pub mod summarize;
pub mod svg;
pub mod terminal;
pub mod verdict;
pub mod view;

pub use summarize::summarize;
