//! Paths in a guest that the image and the init agree on.

/// The file that only a lab guest's root has; its content is the id of the kernel.
pub const MARKER: &str = "/etc/unspin-guest";
/// The file that lists the modules to load, in order.
pub const MODULE_LIST: &str = "/etc/unspin-modules";
/// The file that makes a guest run one job and power off, see [`crate::Errand`].
pub const ERRAND_FILE: &str = "/etc/unspin-jobs.json";
