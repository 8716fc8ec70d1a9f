//! `unspin explain`.

use std::collections::BTreeSet;

use unspin_model::episode::Cause;
use unspin_report::explain::{Topic, list, text};

#[test]
fn the_list_has_a_line_for_each_topic() {
    let list = list(100);
    assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
    insta::assert_snapshot!(list);
}

#[test]
fn a_cause_in_full() {
    insta::assert_snapshot!(text(&Topic::Cause(Cause::HolderOff).explanation(), 80));
    insta::assert_snapshot!(text(&Topic::Cause(Cause::Plain).explanation(), 40));
}

#[test]
fn every_name_leads_to_its_topic_and_every_cause_to_its_own() {
    let mut names = BTreeSet::new();
    for topic in Topic::all() {
        let words = topic.explanation();
        for name in [&[words.name], words.also, words.shown_as].concat() {
            assert!(names.insert(name), "{name} is there twice");
            assert_eq!(Topic::of(name), Some(topic));
        }
        assert!(!words.means.is_empty() && !words.remedies.is_empty());
    }
    assert_eq!(Topic::of("holder-off"), Some(Topic::Cause(Cause::HolderOff)));
    for name in ["The holder was off", "lock_holders_were_preempted", "HOLDER-OFF"] {
        assert_eq!(Topic::of(name), Some(Topic::Cause(Cause::HolderOff)), "{name}");
    }
    assert_eq!(Topic::of("nothing"), None);
}
