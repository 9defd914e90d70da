//! `quota`: nobody gets more than their share, and everybody gets it.

use std::time::Duration;

use turnbuckle::hooks::Quota;
use turnbuckle::hooks::quota::QuotaOptions;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome, Scope};

fn rig(change: impl FnOnce(&mut QuotaOptions)) -> Rig {
    let mut options = QuotaOptions::default();
    change(&mut options);
    let script = Script::of([ScriptReply::says("fine").costing(60, 40)]).when_exhausted(OnExhausted::Repeat);
    Rig::new(Agent::builder("a", script).hook(Quota::new(options).unwrap()).build().unwrap())
}

/// The reason, if the turn did not complete.
async fn asks(rig: &Rig, scope: Scope) -> Option<String> {
    let ended = rig.conversations.run("hi", scope).await.unwrap();
    assert_eq!(ended.outcome == Outcome::Halted, ended.reason.is_some());
    ended.reason.map(|reason| reason.to_string())
}

#[tokio::test]
async fn a_user_has_so_many_requests_in_a_window_and_then_a_new_window() {
    let rig = rig(|options| options.requests = Some(2));
    let ann = || Scope::user("ann");
    assert_eq!((asks(&rig, ann()).await, asks(&rig, ann()).await), (None, None));
    rig.clock.advance(Duration::from_secs(600));
    let refusal = asks(&rig, ann()).await.unwrap();
    assert_eq!(refusal, "the quota of 2 requests in 1h is used up; come back in 50m");
    assert_eq!(asks(&rig, Scope::user("bob")).await, None, "each user has their own");
    rig.clock.advance(Duration::from_secs(3000));
    assert_eq!(asks(&rig, ann()).await, None);
}

#[tokio::test]
async fn the_tokens_of_ended_turns_count() {
    let rig = rig(|options| options.tokens = Some(150));
    let ann = || Scope::user("ann");
    assert_eq!((asks(&rig, ann()).await, asks(&rig, ann()).await), (None, None));
    assert!(asks(&rig, ann()).await.unwrap().contains("150 tokens"));
}

#[tokio::test]
async fn exempt_roles_and_the_system_are_not_counted() {
    let rig = rig(|options| (options.requests, options.exempt) = (Some(0), vec!["admin".into()]));
    assert!(asks(&rig, Scope::user("ann")).await.is_some());
    assert_eq!(asks(&rig, Scope::user("ann").role("admin")).await, None);
    assert_eq!(asks(&rig, Scope::system()).await, None);
}

#[test]
fn a_quota_of_nothing_is_refused() {
    assert_eq!(Quota::new(QuotaOptions::default()).unwrap_err().option, "requests");
    let options = QuotaOptions { tokens: Some(1), window: Duration::ZERO.into(), ..QuotaOptions::default() };
    assert_eq!(Quota::new(options).unwrap_err().option, "window");
}
