//! Conversations of another agent, in which no turn is open.

use turnbuckle::conversation::{OtherAgents, SendError};
use turnbuckle::models::Script;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, ConversationId, Conversations, Outcome, Scope, TurnStatus, UserInput, WhileBusy};

fn with_agent(name: &str, store: &MemoryStore, choice: OtherAgents) -> Conversations {
    let agent = Agent::builder(name, Script::says(["one", "two", "three", "four"])).build().unwrap();
    Conversations::builder(agent, store.clone()).other_agents(choice).build()
}

fn completed(status: &TurnStatus) -> bool {
    matches!(status, TurnStatus::Ended(report) if report.outcome == Outcome::Completed)
}

#[tokio::test]
async fn they_take_no_message_where_that_is_refused_unless_its_sender_insists() -> Result<(), Box<dyn std::error::Error>>
{
    let (store, id, ann) = (MemoryStore::default(), ConversationId::from("c"), Scope::user("ann"));
    let (own, other) = (with_agent("a", &store, OtherAgents::Refuse), with_agent("b", &store, OtherAgents::Refuse));
    assert!(completed(&own.turn(&id, "hi", ann.clone()).await?));
    assert!(completed(&own.turn(&id, "again", ann.clone()).await?), "its own agent goes on");
    for while_busy in [WhileBusy::Reject, WhileBusy::Queue, WhileBusy::Interrupt] {
        let refused = other.send_while(&id, "hello", ann.clone(), while_busy).await;
        assert!(matches!(refused, Err(SendError::OtherAgent { agent, .. }) if *agent == *"a"));
    }
    assert!(other.turn(&id, "hello", ann.clone()).await.is_err());
    assert_eq!(other.other_agent(&id, &ann).await?.as_deref(), Some("a"), "it is told before somebody tries");
    assert_eq!(own.other_agent(&id, &ann).await?, None);
    assert!(other.other_agent(&id, &Scope::user("bob")).await.is_err(), "and to those alone who may read");
    assert_eq!(own.log(&id, ann.clone()).await?.len(), 6, "nothing was stored");
    // Where no turn was, there is no agent yet.
    other.create(Some("empty".into()), &ann).await?;
    assert!(completed(&other.turn(&"empty".into(), "hi", ann.clone()).await?));
    assert!(completed(&other.turn(&id, UserInput::new("hello").accept_agent(), ann.clone()).await?));
    assert!(completed(&other.turn(&id, "more", ann.clone()).await?), "from now on it is with this agent");
    assert!(matches!(own.send(&id, "back", ann).await, Err(SendError::OtherAgent { agent, .. }) if *agent == *"b"));
    Ok(())
}

#[tokio::test]
async fn they_go_on_with_this_agent_where_nothing_else_is_said() -> Result<(), Box<dyn std::error::Error>> {
    let (store, id, ann) = (MemoryStore::default(), ConversationId::from("c"), Scope::user("ann"));
    with_agent("a", &store, OtherAgents::default()).turn(&id, "hi", ann.clone()).await?;
    assert_eq!(with_agent("b", &store, OtherAgents::default()).other_agent(&id, &ann).await?, None);
    assert!(completed(&with_agent("b", &store, OtherAgents::default()).turn(&id, "hi", ann).await?));
    Ok(())
}
