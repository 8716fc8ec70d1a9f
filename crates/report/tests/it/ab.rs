//! The verdict on pairs of rounds, and its text.

use unspin_model::ab::{Arm, Figure, Round, Rounds, Source};
use unspin_model::{Better, Metric};
use unspin_report::ab::{Judged, Kind};

fn rounds(pairs: &[(f64, f64)], better: Better) -> Rounds {
    let metric = Metric { name: "time".into(), unit: "s".into(), better };
    let figure = |value| Figure { seconds: 1.0, value, switches_per_s: None };
    let rounds = pairs.iter().zip(1..).flat_map(|(&(unspin, stock), pair)| {
        let round = |arm, value| Round { pair, arm, figure: figure(value) };
        [round(Arm::Unspin, unspin), round(Arm::Stock, stock)]
    });
    Rounds {
        metric,
        needs: None,
        source: Source::Duration,
        pairs: pairs.len() as u32,
        seed: 1,
        interrupted: false,
        warm_up: Some(figure(2.0)),
        rounds: rounds.collect(),
    }
}

/// Returns ten pairs of times, of unspin relative to stock, each with noise of some percent.
fn times(relative: f64, percent: f64) -> Vec<(f64, f64)> {
    let noise = [0.3, -0.8, 0.5, -0.1, 1.0, -0.6, 0.2, -0.4, 0.9, -1.0];
    let time = |noise: f64| 10.0 * (1.0 + noise * percent / 100.0);
    noise.iter().map(|n| (relative * time(*n), time(-n))).collect()
}

#[test]
fn a_time_that_shrinks_is_a_gain() {
    let judged = Judged::of(rounds(&times(0.8, 2.0), Better::Lower));
    assert_eq!(judged.kind, Kind::LeaveOn);
    insta::assert_snapshot!(judged.text(), @r"
            time, s          95 %
    stock      9.99  9.89 to 10.1
    unspin     8.01  7.90 to 8.09
    speed     1.25x  1.22 to 1.28

    Leave it on: 1.25x the speed in 10 pairs (p = 0.002).
    ");
}

#[test]
fn a_gain_names_the_option_that_it_takes() {
    let needs = Some("--actuator cpuset".to_owned());
    let rounds = Rounds { needs, ..rounds(&times(0.8, 2.0), Better::Lower) };
    let sentence = Judged::of(rounds).sentence;
    assert!(sentence.starts_with("Leave it on with --actuator cpuset: 1.25x "), "{sentence}");
}

#[test]
fn a_time_that_grows_is_a_loss() {
    let judged = Judged::of(rounds(&times(1.25, 2.0), Better::Lower));
    assert_eq!((judged.kind, judged.enough), (Kind::LeaveOff, None));
    assert!(
        judged.sentence.starts_with("Leave it off: 0.80x the speed in 10 "),
        "{}",
        judged.sentence
    );
    let more = Judged::of(rounds(&times(1.25, 2.0), Better::Higher));
    assert_eq!(more.kind, Kind::LeaveOn);
}

#[test]
fn no_difference_comes_with_what_would_show_one() {
    let sentence = |percent| Judged::of(rounds(&times(1.0, percent), Better::Lower)).sentence;
    for (percent, expected) in [
        (1.0, ", which are enough to show 5 %."),
        (5.0, "; about 30 would show 5 %."),
        (20.0, "; about 35 would show 20 %."),
        (70.0, ", which vary too much to show even 50 %."),
    ] {
        assert_eq!(sentence(percent), format!("No difference shown after 10 pairs{expected}"));
    }
}

#[test]
fn few_pairs_and_none_have_no_verdict() {
    let judged = Judged::of(rounds(&times(0.5, 1.0)[..5], Better::Lower));
    assert_eq!(judged.kind, Kind::TooFew);
    assert!(judged.text().ends_with("Too few pairs to judge: 5 complete, 6 needed.\n"));
    let none = Judged::of(rounds(&[], Better::Lower));
    assert_eq!(none.text(), "Too few pairs to judge: 0 complete, 6 needed.\n");
}

#[test]
fn rounds_of_the_guest_itself_are_called_a_proxy() {
    let mut guest = rounds(&times(0.8, 2.0), Better::Higher);
    guest.source = Source::Guest;
    guest.metric = Metric { name: "useful".into(), unit: "vCPUs".into(), better: Better::Higher };
    for round in &mut guest.rounds {
        round.figure.switches_per_s = Some(1234.0);
    }
    insta::assert_snapshot!(Judged::of(guest).text(), @r"
            useful, vCPUs          95 %  switches/s
    stock            9.99  9.89 to 10.1        1230
    unspin           8.01  7.90 to 8.09        1230
    speed           0.80x  0.78 to 0.82

    Leave it off: 0.80x the speed in 10 pairs (p = 0.002).
    Mind: this compares CPU time that was neither idle, off nor spinning, which is
    a proxy. Whether it was your work is unknown: use -- CMD or --metric-cmd to
    know.
    ");
}

#[test]
fn json_has_every_round_and_the_verdict() {
    let judged = Judged::of(rounds(&times(0.8, 2.0), Better::Lower));
    let json = serde_json::to_value(&judged).expect("JSON");
    assert_eq!((&json["kind"], &json["source"]), (&"leave-on".into(), &"duration".into()));
    assert_eq!(json["rounds"].as_array().map(Vec::len), Some(20));
    assert_eq!(json["warm_up"]["value"], 2.0);
    assert_eq!(json["interrupted"], false);
    assert!(json["ratio"]["lo"].as_f64() > Some(1.0), "{json}");
}
