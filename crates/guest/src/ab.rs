//! The same work with and without the guest scheduler, in pairs of rounds.
//!
//! [`measure`] decides only which round comes next. What schedules is a [`Switch`], and what is
//! measured is a [`Job`], so that a test can replace both.

mod useful;

use unspin_model::ab::{Arm, Figure, Round};

pub use useful::{Counts, Useful};

/// Changes what schedules.
pub trait Switch<E> {
    /// Starts `arm` afresh, even if it schedules already, so that no round inherits more from
    /// the previous one than another does.
    fn start(&mut self, arm: Arm) -> Result<(), E>;
    /// Fails if the arm that was started schedules no longer.
    fn check(&mut self) -> Result<(), E>;
}

/// The work of a round.
pub trait Job<E> {
    /// Does one round, and calls `check` a few times a second meanwhile. `None` if a signal
    /// ended the round.
    fn round(&mut self, check: &mut Check<'_, E>) -> Result<Option<Figure>, E>;
}

/// Fails if the round is void.
pub type Check<'a, E> = dyn FnMut() -> Result<(), E> + 'a;

/// Where the rounds are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// The pair, from 1; 0 while it warms up.
    pub pair: u32,
    /// What schedules.
    pub arm: Arm,
    /// Rounds that are done, the first one for warming up included.
    pub done: u32,
}

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// The round before all others.
    pub warm_up: Option<Figure>,
    /// Those that count, in the order of time.
    pub rounds: Vec<Round>,
    /// A signal ended it early.
    pub interrupted: bool,
}

/// Runs a round to warm up, which does not count, and a pair of rounds for each of
/// `unspin_first`, which is whether unspin comes first. `watch` is called at the start of each
/// round and with each check. Afterwards the kernel's own scheduler is back, however it ends.
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

    /// Which arm schedules, and all that did, for the switch and the job to share.
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

    /// Does more under unspin. Something happens in one of its rounds.
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
