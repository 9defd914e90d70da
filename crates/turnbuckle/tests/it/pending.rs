//! What waits for someone, over all conversations: only what they can still answer.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::conversation::{Conversations, SendError};
use turnbuckle::id::SystemIds;
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::PausedClock;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Scope};

use crate::access::{Paid, ann, process, refund, roles, user, waiting};
use crate::faulty_store::FaultyStore;

async fn calls(conversations: &Conversations, scope: Scope) -> Vec<String> {
    let pending = conversations.pending(scope).await.unwrap();
    pending.iter().map(|one| format!("{} {}", one.conversation, one.pending.call)).collect()
}

fn desk(store: &FaultyStore, clock: &PausedClock) -> Conversations {
    let builder = Conversations::without_agent(store.clone()).clock(Arc::new(clock.clone()));
    builder.ids(Arc::new(SystemIds::default())).access(roles()).build()
}

#[tokio::test]
async fn a_call_that_waits_while_another_one_runs_is_pending_until_it_has_an_answer() {
    let (paid, store, clock) = (Paid::default(), FaultyStore::shared(), PausedClock::default());
    let busy = function_with_schema("busy", "Never ends.", json!({"type": "object"}), Effect::Pure, |_, _| async {
        std::future::pending::<()>().await;
        Ok("never")
    });
    let both = ScriptReply::calls("b1", "busy", json!({})).and_calls("c1", "refund", json!({"euro": 5}));
    let agent = Agent::builder("support", Script::of([both])).tool(busy).tool(refund(&paid));
    let mut owner = process(agent, &store, &clock, roles());
    let _turn = owner.conversations.send(&owner.id, "pay me", ann()).await.unwrap();
    owner.settle().await;
    let (desk, mia) = (desk(&store, &clock), user("mia", "manager"));
    assert_eq!(calls(&desk, mia.clone()).await, ["c_1 c1"]);
    let recorded = desk.answer(&"c_1".into(), &"c1".into(), Answer::Approve, None, mia.clone()).await.unwrap();
    assert!(recorded.is_stored_for_owner);
    assert!(calls(&desk, mia).await.is_empty(), "its answer is in the inbox of the process that has the turn");
}

#[tokio::test]
async fn what_someone_approved_or_nobody_answered_in_time_no_longer_waits_for_them() {
    let rule = ApproveRule { tool: "refund".into(), by: vec!["manager".into()], not_requester: true, n: 2 };
    let access = RoleAccess { approve: vec![rule], ..roles() };
    let (store, clock, _gone) = waiting(&Paid::default(), access).await;
    let (desk, mia, max) = (desk(&store, &clock), user("mia", "manager"), user("max", "manager"));
    assert!(calls(&desk, ann().role("manager")).await.is_empty(), "the requester may not");
    assert_eq!(calls(&desk, mia.clone()).await, ["c_1 c1"]);
    desk.answer(&"c_1".into(), &"c1".into(), Answer::Approve, None, mia.clone()).await.unwrap();
    assert!(calls(&desk, mia).await.is_empty());
    assert_eq!(calls(&desk, max.clone()).await, ["c_1 c1"]);
    clock.advance(Duration::from_secs(25 * 3600));
    assert!(calls(&desk, max).await.is_empty());
}

#[tokio::test]
async fn whether_someone_may_is_told_without_doing_anything() {
    use turnbuckle::access::Action;
    let (_, _, rig) = waiting(&Paid::default(), roles()).await;
    let may = |action, scope: Scope| {
        let conversations = rig.conversations.clone();
        async move { conversations.may(&"c_1".into(), action, &scope).await }
    };
    assert!(may(Action::Cancel, user("otto", "operator")).await.is_ok());
    assert!(matches!(may(Action::Say, user("otto", "operator")).await, Err(SendError::Forbidden { .. })));
    assert!(matches!(may(Action::Read, user("bob", "")).await, Err(SendError::NotFound { .. })));
}
