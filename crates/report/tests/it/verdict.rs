//! Verdicts: their kinds, their words, and what to do next.

use unspin_model::diagnosis::Scheduling;
use unspin_model::episode::{Cause, Wait};
use unspin_model::session::BUSY;
use unspin_report::verdict::{Kind, Origin, Verdict, judge};
use unspin_trace::digest::{CauseWaste, Digest, SiteWaste, VcpuOff};

const HERE: Origin = Origin::Here(Scheduling::Ready);

/// Returns a digest of ten seconds of ten vCPUs, in which a second is a percent.
fn digest(off_s: f64, causes: &[(Cause, f64, f64)]) -> Digest {
    let waste = |(cause, wasted_s, blocked_s): &(Cause, f64, f64)| CauseWaste {
        cause: *cause,
        episodes: 10,
        wasted_s: *wasted_s,
        blocked_s: *blocked_s,
        confidence: 0.9,
    };
    let off = VcpuOff { vcpu: 0, intervals: 100, off_s, steal_s: Some(0.0), user_spin_s: None };
    Digest {
        seconds: 10.0,
        vcpus: 10,
        off: vec![off],
        off_ms: Some([1.0; 4]),
        steal_s: Some(0.0),
        spins: 10,
        spin_s: 1.0,
        halted_s: 0.0,
        user_spin_s: None,
        waits: 0,
        wait_s: 0.0,
        causes: causes.iter().map(waste).collect(),
        sites: Vec::new(),
        beats_per_s: 0.0,
        lost: 0,
        incomplete: None,
    }
}

fn told(verdict: &Verdict) -> String {
    verdict.paragraphs().join("\n").replace('\u{202f}', " ")
}

#[test]
fn each_kind_has_its_words_and_its_next_command() {
    let holders = [(Cause::HolderOff, 3.0, 0.0), (Cause::IpiOff, 0.4, 0.0)];
    let mut contended = digest(0.5, &[(Cause::Plain, 6.0, 0.0)]);
    contended.sites = vec![SiteWaste {
        site: "do_renameat2".into(),
        wait: Wait::Mutex,
        episodes: 10,
        wasted_s: 6.0,
        blocked_s: 0.0,
        cause: Cause::Plain,
    }];
    let user = Digest { user_spin_s: Some(20.0), ..digest(9.0, &[]) };
    let short = Digest { seconds: 0.3, ..digest(9.0, &holders) };
    let soon = Digest { seconds: 1.0, ..digest(9.0, &holders) };
    assert_eq!(judge(&soon, HERE, &[]).kind, Kind::Spinning, "many preemptions in a second");
    let mut unseen = Digest { seconds: 1.0, off: Vec::new(), ..digest(0.0, &holders) };
    assert_eq!(judge(&unseen, HERE, &[]).kind, Kind::TooLittle);
    unseen.causes[0].episodes = 500;
    let verdict = judge(&unseen, HERE, &[]);
    assert_eq!(verdict.kind, Kind::Spinning, "waits say it, too");
    assert!(!told(&verdict).contains("to preemption"), "{verdict:?}");
    let mut all = String::new();
    for (digest, kind) in [
        (short, Kind::TooLittle),
        (digest(0.0, &[]), Kind::Fine),
        (digest(0.2, &holders[1..]), Kind::Fine),
        (digest(9.0, &holders), Kind::Spinning),
        (digest(9.0, &[(Cause::HolderOff, 0.1, 32.0)]), Kind::Sleeping),
        (user, Kind::UserSpinning),
        (contended, Kind::Contended),
        (digest(2.6, &[]), Kind::Preempted),
        (digest(18.0, &holders[1..]), Kind::Preempted),
    ] {
        let verdict = judge(&digest, HERE, &[]);
        assert_eq!(verdict.kind, kind, "{verdict:?}");
        all += &format!("{kind:?}: {}\n\n", told(&verdict));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn the_next_command_is_one_that_can_be_given_there() {
    let digest = digest(9.0, &[(Cause::HolderOff, 3.0, 0.0)]);
    let origins = [
        Scheduling::Ready,
        Scheduling::Ours,
        Scheduling::Taken,
        Scheduling::Absent,
        Scheduling::Needless,
    ];
    let mut all = String::new();
    for origin in origins.map(Origin::Here).into_iter().chain([Origin::File]) {
        let verdict = judge(&digest, origin, &[]);
        all += &format!("{origin:?}:\n{}\n\n", told(&verdict));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn what_limits_a_verdict_is_part_of_it() {
    let mut digest = digest(3.0, &[]);
    (digest.lost, digest.steal_s) = (9, Some(30.0));
    digest.incomplete = Some("cut off in batch 7".into());
    let verdict = judge(&digest, Origin::File, &["waits for IPIs", "waits for glibc mutexes"]);
    insta::assert_snapshot!(told(&verdict));
    digest.lost = 90;
    let verdict = judge(&digest, Origin::File, &[]);
    assert_eq!(verdict.kind, Kind::TooLittle, "so many were lost");
    let json = serde_json::to_string(&verdict).unwrap();
    assert!(!json.contains('\u{202f}'), "{json}");
}

#[test]
fn where_busy_vcpus_are_hidden_nothing_found_is_not_called_fine() {
    let nothing = digest(0.0, &[]);
    let verdict = judge(&nothing, HERE, &["where the kernel spins", BUSY]);
    let json = serde_json::to_value(&verdict).unwrap();
    assert_eq!((verdict.kind, &json["kind"]), (Kind::Blind, &"blind".into()));
    let text = told(&verdict);
    let first = "This kernel does not show when busy vCPUs are off: no verdict.\n\
                 Try: sudo unspin watch --beat 4ms\n";
    assert!(text.starts_with(first), "{text}");
    let text = told(&judge(&nothing, Origin::File, &[BUSY]));
    assert!(text.contains("Try: sudo unspin record --beat 4ms"), "{text}");
    assert_eq!(judge(&digest(18.0, &[]), HERE, &[BUSY]).kind, Kind::Preempted);
    assert_eq!(judge(&nothing, HERE, &["waits for IPIs"]).kind, Kind::Fine);
}

#[test]
fn spinning_is_not_called_preemption() {
    let verdict = judge(&digest(2.6, &[(Cause::IpiOff, 0.4, 0.0)]), HERE, &[]);
    let lost = "You lose 2.6 % of CPU time to preemption, 0.4 % to spinning: ";
    assert_eq!(verdict.kind, Kind::Preempted);
    assert!(told(&verdict).starts_with(lost), "{verdict:?}");
}

#[test]
fn what_the_hypervisor_counts_is_not_called_no_time() {
    for (steal_s, end) in [
        (0.5, "0.5 % of CPU time as steal time: nothing worth fixing."),
        (30.0, "30 % of CPU time as steal time."),
    ] {
        let stolen = Digest { steal_s: Some(steal_s), ..digest(0.0, &[]) };
        let verdict = judge(&stolen, HERE, &[]);
        let sentence = verdict.sentence.replace('\u{202f}', " ");
        assert_eq!(sentence, format!("No loss was found, but the hypervisor counts {end}"));
    }
}

#[test]
fn shares_add_up() {
    let verdict = judge(&digest(9.0, &[(Cause::HolderOff, 3.0, 0.0)]), HERE, &[]);
    let shares = verdict.shares;
    assert!((shares.lost - 0.12).abs() < 1e-9 && (shares.preempted - 0.09).abs() < 1e-9);
    assert_eq!(shares.spinning.len(), 1);
}

/// A forged file can have any number of lost findings.
#[test]
fn any_number_of_findings_can_be_lost() {
    let made_up = Digest { lost: u64::MAX, ..digest(9.0, &[]) };
    let verdict = judge(&made_up, Origin::File, &[]);
    assert_eq!(verdict.kind, Kind::TooLittle);
    assert!(told(&verdict).contains("100 % of what happened came too fast"), "{}", told(&verdict));
}
