//! Shows the progress of fetches and builds.

use unspin_lab::run::{Bar, Event, Progress as _};
use unspin_sources::Progress;

/// Runs `make` and shows its stages, each named `what: STAGE`.
pub fn watched<T, E>(
    what: &str,
    make: impl FnOnce(&mut dyn FnMut(Progress)) -> Result<T, E>,
) -> Result<T, E> {
    let mut bar = Bar::new();
    let mut report = |step: Progress| {
        bar.event(Event::Stage(&format!("{what}: {}", step.stage), step.fraction));
    };
    make(&mut report)
}
