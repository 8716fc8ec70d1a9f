//! Shortens a failing plan.

use super::plan::Plan;

/// Removes steps as long as the plan fails in the same way. The function first tries each half
/// alone and then removes single steps. If several single steps can go, it tries to remove all of
/// them at once. `fail` returns for each plan whether it fails in the same way. The plans of one
/// call are independent of each other.
///
/// # Errors
/// The errors of `fail`.
pub fn shrink<E>(
    plan: &Plan,
    mut fail: impl FnMut(&[Plan]) -> Result<Vec<bool>, E>,
) -> Result<Plan, E> {
    let mut current = plan.clone();
    loop {
        let halves = halves(&current);
        let singles = 0..current.steps.len();
        let fewer = singles.clone().map(|step| current.without(step));
        let candidates: Vec<Plan> = halves.into_iter().chain(fewer).collect();
        let fails = fail(&candidates)?;
        let count_halves = candidates.len() - singles.len();
        let (of_halves, of_singles) = fails.split_at(count_halves);
        if let Some(half) = of_halves.iter().position(|fails| *fails) {
            current = candidates[half].clone();
            continue;
        }
        let spare: Vec<usize> = singles.filter(|step| of_singles[*step]).collect();
        let Some(first) = spare.first() else { return Ok(current) };
        let without_all =
            spare.iter().rev().fold(current.clone(), |plan, step| plan.without(*step));
        let together = spare.len() > 1 && fail(std::slice::from_ref(&without_all))? == [true];
        current = if together { without_all } else { current.without(*first) };
    }
}

/// Returns the two halves of a plan's steps. A plan of fewer than four steps has none, because
/// removing single steps is as quick.
fn halves(plan: &Plan) -> Vec<Plan> {
    let count = plan.steps.len();
    if count < 4 {
        return Vec::new();
    }
    let (first, second) = plan.steps.split_at(count / 2);
    let half = |steps: &[_]| Plan { topology: plan.topology, steps: steps.to_vec() };
    vec![half(first), half(second)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shrinks a plan when a plan fails exactly if it has all of `needed`. Returns the number of
    /// plans tried and the remaining plan.
    fn shrunk(seed: u64, needed: impl Fn(&Plan) -> bool) -> (usize, Plan) {
        let mut tried = 0;
        let left = shrink(&Plan::of(seed), |plans| {
            tried += plans.len();
            Ok::<_, ()>(plans.iter().map(&needed).collect())
        });
        (tried, left.unwrap())
    }

    #[test]
    fn what_makes_it_fail_is_left() {
        for seed in 0..100 {
            let plan = Plan::of(seed);
            for (one, two) in [(0, plan.steps.len() - 1), (1, 2), (3, 3)] {
                let pair = [&plan.steps[one], &plan.steps[two]];
                let needed = |plan: &Plan| pair.iter().all(|step| plan.steps.contains(step));
                let (tried, left) = shrunk(seed, needed);
                assert!(left.steps.len() <= 2 && needed(&left), "seed {seed}: {left:?}");
                assert!(tried < 60, "seed {seed}: {tried} plans");
            }
        }
    }

    #[test]
    fn what_always_fails_needs_no_step() {
        let (_, left) = shrunk(5, |_| true);
        assert!(left.steps.is_empty());
    }

    #[test]
    fn what_fails_no_more_stays_whole() {
        let (_, left) = shrunk(5, |_| false);
        assert_eq!(left, Plan::of(5));
    }
}
