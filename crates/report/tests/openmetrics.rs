//! The OpenMetrics text of sums that are known.

use unspin_model::episode::{Cause, Wait};
use unspin_report::openmetrics::text;
use unspin_trace::totals::{Sum, Totals};

#[test]
fn every_sum_is_a_counter_with_its_unit() {
    let totals = Totals {
        seconds: 2.5,
        off: vec![Sum { count: 3, ns: 4_500_000 }, Sum::default()],
        spins: [((Wait::Spinlock, Cause::HolderOff), Sum { count: 7, ns: 1_000_000_000 })].into(),
        waits: [((Wait::Futex, Cause::HolderPreempted), Sum { count: 2, ns: 6_000_000 })].into(),
        lost: 1,
    };
    insta::assert_snapshot!(text(&totals));
}
