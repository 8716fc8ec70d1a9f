//! A session as text.

use unspin_model::episode::{Cause, Wait};
use unspin_report::session::text;
use unspin_trace::digest::{CauseWaste, Digest, SiteWaste, VcpuOff};

#[test]
fn a_session_as_text() {
    let cause = |cause, episodes, wasted_s, confidence| CauseWaste {
        cause,
        episodes,
        wasted_s,
        confidence,
    };
    let site = |site: &str, wait, cause| SiteWaste {
        site: site.into(),
        wait,
        episodes: 120,
        wasted_s: 0.31,
        cause,
    };
    let digest = Digest {
        seconds: 10.0,
        vcpus: 2,
        off: vec![
            VcpuOff { vcpu: 0, intervals: 812, off_s: 3.25 },
            VcpuOff { vcpu: 1, intervals: 790, off_s: 3.5 },
        ],
        off_ms: Some([3.9, 7.2, 12.4, 30.0]),
        spins: 1_402,
        spin_s: 1.25,
        causes: vec![cause(Cause::HolderOff, 900, 0.8, 0.83), cause(Cause::Plain, 502, 0.2, 0.85)],
        sites: vec![
            site("do_renameat2", Wait::Mutex, Cause::HolderOff),
            site("", Wait::Ipi, Cause::IpiOff),
        ],
        beats_per_s: 1_200.0,
        lost: 2,
    };
    insta::assert_snapshot!(text(&digest));
}

#[test]
fn nothing_found_is_said_plainly() {
    let digest = Digest {
        seconds: 1.0,
        vcpus: 1,
        off: vec![VcpuOff { vcpu: 0, intervals: 0, off_s: 0.0 }],
        off_ms: None,
        spins: 0,
        spin_s: 0.0,
        causes: Vec::new(),
        sites: Vec::new(),
        beats_per_s: 0.0,
        lost: 0,
    };
    insta::assert_snapshot!(text(&digest));
}
