//! The family of comparisons that p is corrected for.
//!
//! The oracle of one static choice asks the same question as that choice's own comparison: does it
//! pay to restrict tasks to K vCPUs? The two count as one.

use unspin_model::Cell;
use unspin_model::summary::{Comparison, ComparisonKind};
use unspin_stats::holm;

use crate::summarize::oracle::held;

/// Question of a comparison: its kind and its subject.
pub(crate) type Question<'a> = (ComparisonKind, &'a Cell);

/// Returns the comparisons that count, each question once.
pub fn counted(comparisons: &[Comparison]) -> impl Iterator<Item = &Comparison> {
    let questions: Vec<Question> = comparisons.iter().map(|it| (it.kind, &it.subject)).collect();
    let counts = move |at: &usize| only_choice(&questions, *at).is_none();
    (0..comparisons.len()).filter(counts).map(|at| &comparisons[at])
}

/// Returns each p after Holm's correction for all questions. The p of an oracle that counts
/// together with its only choice is corrected in that choice's place.
pub(crate) fn adjusted(questions: &[Question], p: &[f64]) -> Vec<f64> {
    let choices: Vec<Option<usize>> = (0..p.len()).map(|at| only_choice(questions, at)).collect();
    let family: Vec<usize> = (0..p.len()).filter(|at| choices[*at].is_none()).collect();
    let place = |at: usize| family.iter().position(|member| *member == at).unwrap_or(0);
    let with = |at: usize, value: f64| {
        let mut all: Vec<f64> = family.iter().map(|member| p[*member]).collect();
        all[place(at)] = value;
        holm(&all)[place(at)]
    };
    p.iter()
        .zip(&choices)
        .enumerate()
        .map(|(at, (p, choice))| with(choice.unwrap_or(at), *p))
        .collect()
}

/// Returns the comparison of the only static choice that an oracle had next to its baseline.
/// Returns `None` for an oracle that had several, and for any other comparison.
fn only_choice(questions: &[Question], oracle: usize) -> Option<usize> {
    let (ComparisonKind::Oracle, subject) = questions[oracle] else { return None };
    let is_choice = |(kind, cell): &Question| {
        *kind == ComparisonKind::Scheduler
            && held(&cell.scheduler).is_some()
            && Cell { scheduler: subject.scheduler.clone(), ..(*cell).clone() } == *subject
    };
    let mut choices = (0..questions.len()).filter(|at| is_choice(&questions[*at]));
    choices.next().filter(|_| choices.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheduler: &str) -> Cell {
        Cell {
            topology: "2:1".into(),
            kernel: "lab".into(),
            boot_params: String::new(),
            scheduler: scheduler.into(),
            workload: "rename".into(),
        }
    }

    #[test]
    fn an_oracle_of_one_choice_is_corrected_with_it() {
        let (held, other, oracle) = (cell("hold:2"), cell("bpfland"), cell("oracle"));
        let questions = [
            (ComparisonKind::Scheduler, &held),
            (ComparisonKind::Scheduler, &other),
            (ComparisonKind::Oracle, &oracle),
        ];
        // With two questions, the smaller p is doubled; with three, it would be 0.03.
        let p = adjusted(&questions, &[0.01, 0.04, 0.015]);
        assert!([0.02, 0.04, 0.03].iter().zip(&p).all(|(a, b)| (a - b).abs() < 1e-12), "{p:?}");
    }

    #[test]
    fn an_oracle_of_several_choices_is_a_question_of_its_own() {
        let (one, two, oracle) = (cell("hold:1"), cell("hold:2"), cell("oracle"));
        let questions = [
            (ComparisonKind::Scheduler, &one),
            (ComparisonKind::Scheduler, &two),
            (ComparisonKind::Oracle, &oracle),
        ];
        let p = adjusted(&questions, &[0.01, 0.04, 0.9]);
        assert_eq!(p, holm(&[0.01, 0.04, 0.9]));
    }
}
