//! Reports for people: tables, pages and plots of summaries, sessions and claims.

pub mod ab;
pub mod claims;
mod columns;
pub mod compare;
pub mod csv;
pub mod doctor;
pub mod explain;
pub mod format;
pub mod headline;
pub mod html;
pub mod igvm;
pub mod live;
pub mod markdown;
pub mod openmetrics;
mod rows;
pub mod scheduler;
pub mod session;
pub mod storms;
pub mod svg;
pub mod terminal;
pub mod verdict;
pub mod view;

pub use columns::printable;
