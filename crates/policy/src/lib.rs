//! The decisions of `policy/`, called as they are compiled into the kernel's side: the
//! same headers, behind the C ABI. What they mean is told in the headers.

pub mod activity;
pub mod pack;
