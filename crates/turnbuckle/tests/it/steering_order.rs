//! A message that does not fit into the turn that it is to steer is left for a turn of its own, and so is what its sender says after it.

use turnbuckle::conversation::TurnError;
use turnbuckle::event::Outcome;
use turnbuckle::{Limits, Scope, TurnStatus};

use crate::steering::{requests, said, under_way};

#[tokio::test]
async fn what_a_user_says_after_a_message_that_does_not_fit_comes_after_it() {
    let limits = Limits { context_tokens: 4_000, injection_reserve: 400, ..Limits::default() };
    let under_way = under_way(|agent| agent.limits(limits)).await;
    let log = format!("log {}", "word ".repeat(3_600));
    let (first, large) = (under_way.steer("first").await, under_way.steer(&log).await);
    let small = under_way.steer("what is wrong in it?").await;
    let turns = [large.turn().clone(), small.turn().clone()];
    let (mut rig, ended, asked) = under_way.finish().await;
    assert_eq!((ended.outcome, ended.text().as_str()), (Outcome::Completed, "done"));
    for sent in [first, large, small] {
        sent.wait().await.unwrap();
    }
    rig.settle().await;
    assert!(requests(&asked)[2].ends_with("first |  | slept"), "{:?}", requests(&asked)[2]);
    assert_eq!(said(&rig.conversations).await, ["go", "first", log.as_str(), "what is wrong in it?"]);
    let opened: Vec<_> = rig.log().await.unwrap().iter().map(|event| event.turn.clone()).collect();
    assert!(turns.iter().all(|turn| opened.contains(turn)), "each has a turn of its own");
    let told = rig.told().iter().filter(|told| format!("{told:?}").contains("does not fit")).count();
    let whose = rig.told().iter().any(|told| format!("{told:?}").contains("a message of user local does not fit"));
    assert!(told == 1 && whose, "{told} notices");
}

#[tokio::test]
async fn a_message_that_is_left_for_later_can_be_taken_back() {
    let limits = Limits { context_tokens: 4_000, injection_reserve: 400, ..Limits::default() };
    let under_way = under_way(|agent| agent.limits(limits)).await;
    let (large, small) = (under_way.steer(&"word ".repeat(3_600)).await, under_way.steer("and this?").await);
    under_way.slow.go.notify_one();
    under_way.slow.runs.notified().await;
    let (door, id) = (&under_way.rig.conversations, &under_way.rig.id);
    assert!(door.take_back(id, large.turn(), Scope::local()).await.unwrap(), "its turn has not begun");
    assert!(door.take_back(id, small.turn(), Scope::local()).await.unwrap(), "nor has that of the one behind it");
    assert!(!door.take_back(id, large.turn(), Scope::local()).await.unwrap(), "it is gone");
    under_way.slow.go.notify_one();
    assert!(matches!(large.wait().await, Err(TurnError::TakenBack)));
    assert!(matches!(under_way.turn.wait().await, Ok(TurnStatus::Ended(_))));
    assert_eq!(said(&under_way.rig.conversations).await, ["go"]);
}
