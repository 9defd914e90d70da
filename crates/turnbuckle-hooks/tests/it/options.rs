//! Options that are misspelt or out of range are refused when a hook is built, and the message names them.

use serde_json::{Value, json};
use turnbuckle::hooks::ConfigHook;
use turnbuckle_hooks::*;

use super::kit::built;

/// Each of these is refused with a message that names the option.
fn refuses<H: ConfigHook>(bad: impl IntoIterator<Item = (&'static str, Value)>) {
    for (option, value) in bad {
        let refusal = built::<H>(json!({ option: value })).err();
        let refusal = refusal.unwrap_or_else(|| panic!("{} took {option} = {value}", H::NAME));
        let misspelt = refusal.contains("unknown");
        assert!(refusal.contains(option) || refusal.contains("duration"), "{}: {refusal}", H::NAME);
        assert!(!misspelt || option.ends_with('x') || refusal.contains("variant"), "{}: {refusal}", H::NAME);
    }
}

#[test]
fn limits_refuse_what_they_cannot_keep() {
    refuses::<Cache>([("ttl", json!("0s")), ("max_bytes", json!(1)), ("ttlx", json!("1s")), ("ttl", json!("soon"))]);
    refuses::<RateLimit>([
        ("limit", json!(0)),
        ("burst", json!(61)),
        ("burst", json!(0)),
        ("every", json!("0s")),
        ("every", json!("1000years")),
        ("per_user_x", json!(true)),
    ]);
    refuses::<Concurrency>([("limit", json!(0)), ("limit", json!(100_001)), ("max_wait", json!("0s"))]);
    refuses::<Timeout>([("after", json!("0s")), ("afterx", json!("5s")), ("models", json!([""]))]);
    refuses::<CircuitBreaker>([("failures", json!(0)), ("probes", json!(0)), ("open_for", json!("0s"))]);
}

#[test]
fn words_that_are_not_choices_are_refused() {
    let refusal = built::<RateLimit>(json!({ "per": ["agent"] })).unwrap_err();
    assert!(refusal.contains("agent") && refusal.contains("user"), "{refusal}");
    let refusal = built::<Timeout>(json!({ "around": "tools" })).unwrap_err();
    assert!(refusal.contains("tool_calls"), "{refusal}");
    let refusal = built::<Concurrency>(json!({ "around": "tool_calls", "models": ["gpt"] })).unwrap_err();
    assert!(refusal.contains("models"), "{refusal}");
}

#[test]
fn every_hook_is_built_from_no_options_but_those_that_need_one() {
    built::<Cache>(json!({})).unwrap();
    built::<RateLimit>(json!({})).unwrap();
    built::<Concurrency>(json!({})).unwrap();
    built::<Timeout>(json!({})).unwrap();
    built::<CircuitBreaker>(json!({})).unwrap();
}
