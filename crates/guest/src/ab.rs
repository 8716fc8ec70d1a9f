//! Compares the same work with and without unspin, in pairs of rounds.
//!
//! [`measure`] decides only which round comes next. A [`Switch`] changes the scheduling, and a
//! [`Job`] does the work that is measured, so that a test can replace both.

mod useful;

use unspin_model::ab::{Arm, Figure, Round};

pub use useful::{Counts, Useful};

/// Switches between the arms of the comparison.
pub trait Switch<E> {
    /// Starts `arm` from scratch, even if it is already running, so that no round inherits more
    /// from the previous one than another round does.
    fn start(&mut self, arm: Arm) -> Result<(), E>;
    /// Fails if the arm that was started does not run any more.
    fn check(&mut self) -> Result<(), E>;
}

/// The work of a round.
pub trait Job<E> {
    /// Does one round, and calls `check` a few times per second meanwhile. Returns `None` if a
    /// signal ended the round.
    fn round(&mut self, check: &mut Check<'_, E>) -> Result<Option<Figure>, E>;
}

/// A check during a round, which fails if the round is void.
pub type Check<'a, E> = dyn FnMut() -> Result<(), E> + 'a;

/// The progress of the comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The number of the pair, from 1; 0 in the warm-up.
    pub pair: u32,
    /// The arm of the round.
    pub arm: Arm,
    /// The number of rounds that are done, including the warm-up.
    pub done: u32,
}

/// The result of the measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// The figure of the warm-up round.
    pub warm_up: Option<Figure>,
    /// The rounds that count, in the order of time.
    pub rounds: Vec<Round>,
    /// Whether a signal ended the measurement early.
    pub interrupted: bool,
}

/// Runs a warm-up round, which does not count, and a pair of rounds for each item of
/// `unspin_first`, which says whether unspin comes first. Calls `watch` at the start of each round
/// and with each check. Afterwards the kernel's own scheduler is back, however the measurement
/// ends.
pub fn measure<E>(
    unspin_first: &[bool],
    switch: &mut dyn Switch<E>,
    job: &mut dyn Job<E>,
    watch: &mut dyn FnMut(Place),
) -> Result<Measured, E> {
    let measured = rounds(unspin_first, switch, job, watch);
    let back = switch.start(Arm::Stock);
    let measured = measured?;
    back.map(|()| measured)
}

fn rounds<E>(
    unspin_first: &[bool],
    switch: &mut dyn Switch<E>,
    job: &mut dyn Job<E>,
    watch: &mut dyn FnMut(Place),
) -> Result<Measured, E> {
    let mut measured = Measured::default();
    let of_pair = |(unspin_first, pair): (&bool, u32)| {
        let (first, second) =
            if *unspin_first { (Arm::Unspin, Arm::Stock) } else { (Arm::Stock, Arm::Unspin) };
        [(pair, first), (pair, second)]
    };
    let plan = unspin_first.iter().zip(1..).flat_map(of_pair);
    for (done, (pair, arm)) in (0..).zip([(0, Arm::Stock)].into_iter().chain(plan)) {
        let mut watch = || watch(Place { pair, arm, done });
        watch();
        switch.start(arm)?;
        let mut check = || {
            watch();
            switch.check()
        };
        let Some(figure) = job.round(&mut check)? else {
            return Ok(Measured { interrupted: true, ..measured });
        };
        if pair == 0 {
            measured.warm_up = Some(figure);
        } else {
            measured.rounds.push(Round { pair, arm, figure });
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// The state that the switch and the job share: the arms that were started, and whether the
    /// current one has ended.
    #[derive(Default)]
    struct Machine {
        started: Vec<Arm>,
        ended: bool,
    }

    #[derive(Clone, Default)]
    struct Fake(Rc<RefCell<Machine>>);

    impl Switch<&'static str> for Fake {
        fn start(&mut self, arm: Arm) -> Result<(), &'static str> {
            self.0.borrow_mut().started.push(arm);
            Ok(())
        }

        fn check(&mut self) -> Result<(), &'static str> {
            if self.0.borrow().ended { Err("the kernel ended it") } else { Ok(()) }
        }
    }

    /// A job that does more under unspin. `happens` runs in one of its rounds.
    struct Work {
        machine: Fake,
        round: u32,
        in_round: u32,
        happens: fn(&mut Machine) -> Result<bool, &'static str>,
    }

    impl Job<&'static str> for Work {
        fn round(
            &mut self,
            check: &mut Check<'_, &'static str>,
        ) -> Result<Option<Figure>, &'static str> {
            self.round += 1;
            let mut machine = self.machine.0.borrow_mut();
            if self.round == self.in_round && !(self.happens)(&mut machine)? {
                return Ok(None);
            }
            let arm = *machine.started.last().expect("one was started");
            drop(machine);
            check()?;
            let value = if arm == Arm::Unspin { 2.0 } else { 1.0 };
            Ok(Some(Figure { seconds: 1.0, value, switches_per_s: None }))
        }
    }

    type Happens = fn(&mut Machine) -> Result<bool, &'static str>;

    fn run(in_round: u32, happens: Happens) -> (Result<Measured, &'static str>, Vec<Arm>) {
        let mut machine = Fake::default();
        let mut work = Work { machine: machine.clone(), round: 0, in_round, happens };
        let measured = measure(&[true, false], &mut machine, &mut work, &mut |_| {});
        let started = machine.0.borrow().started.clone();
        (measured, started)
    }

    #[test]
    fn pairs_follow_their_order_and_the_warm_up_does_not_count() {
        let (measured, started) = run(0, |_| Ok(true));
        let measured = measured.unwrap();
        use Arm::{Stock, Unspin};
        assert_eq!(started, [Stock, Unspin, Stock, Stock, Unspin, Stock]);
        let rounds = measured.rounds.iter().map(|r| (r.pair, r.arm, r.figure.value));
        let expected = [(1, Unspin, 2.0), (1, Stock, 1.0), (2, Stock, 1.0), (2, Unspin, 2.0)];
        assert_eq!(rounds.collect::<Vec<_>>(), expected);
        assert_eq!(measured.warm_up.map(|figure| figure.value), Some(1.0));
        assert!(!measured.interrupted);
    }

    #[test]
    fn a_signal_keeps_the_rounds_that_are_done() {
        let (measured, started) = run(3, |_| Ok(false));
        let measured = measured.unwrap();
        assert!(measured.interrupted);
        assert_eq!(measured.rounds.len(), 1);
        assert_eq!(started.last(), Some(&Arm::Stock));
    }

    #[test]
    fn the_kernels_scheduler_is_back_after_each_failure() {
        let (measured, started) = run(2, |_| Err("exit code 3"));
        assert_eq!((measured, started.last()), (Err("exit code 3"), Some(&Arm::Stock)));
        let (measured, started) = run(2, |machine| {
            machine.ended = true;
            Ok(true)
        });
        assert_eq!((measured, started.last()), (Err("the kernel ended it"), Some(&Arm::Stock)));
    }

    #[test]
    fn the_watcher_sees_each_round() {
        let mut machine = Fake::default();
        let mut work =
            Work { machine: machine.clone(), round: 0, in_round: 0, happens: |_| Ok(true) };
        let mut seen = Vec::new();
        measure(&[true], &mut machine, &mut work, &mut |place| seen.push(place)).unwrap();
        let done: Vec<_> = seen.iter().map(|place| (place.pair, place.done)).collect();
        assert_eq!(done, [(0, 0), (0, 0), (1, 1), (1, 1), (1, 2), (1, 2)]);
    }
}
