//! What a plan does with a newer summary.

use super::{NewerSummary, Plan, PlannedTurn, Pressure};

fn turn(tokens: u64, last: u64) -> PlannedTurn {
    PlannedTurn { tokens, events: 1, last, is_open: false, is_recent: false, is_left_out: false }
}

/// A plan that shows a summary of 500 tokens, the turn before the open one and the open one, each with 300.
fn plan(newer: NewerSummary, target: u64) -> Plan {
    let recent = PlannedTurn { is_recent: true, ..turn(300, 8) };
    let open = PlannedTurn { is_open: true, ..turn(300, 9) };
    Plan {
        turns: vec![recent, open],
        results: Vec::new(),
        calls: Vec::new(),
        steps: Vec::new(),
        found_by: None,
        tokens: 1_100,
        limit: 1_200,
        target,
        pressure: Pressure::Normal,
        shown_summary: 500,
        newer_summary: Some(newer),
    }
}

#[test]
fn a_newer_summary_that_is_smaller_is_shown_beside_the_turn_before_where_that_is_enough() {
    let newer = |last| NewerSummary { last, tokens: 100, is_used: false };
    let mut enough = plan(newer(8), 700);
    assert!(enough.show_summary() && enough.shows_newer_summary());
    assert!(!enough.turns[0].is_left_out);
    assert_eq!(enough.tokens(), 700);
    let mut too_little = plan(newer(8), 699);
    assert!(too_little.show_summary() && too_little.turns[0].is_left_out);
    assert_eq!(too_little.tokens(), 400);
    let mut covers_nothing = plan(newer(7), 700);
    assert!(!covers_nothing.show_summary(), "it covers nothing that is shown");
    let mut larger = plan(NewerSummary { last: 8, tokens: 600, is_used: false }, 1_200);
    assert!(!larger.show_summary() && !larger.turns[0].is_left_out, "it saves nothing");
}
