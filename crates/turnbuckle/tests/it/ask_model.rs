//! `Turn::ask_model`: a hook may ask a model by itself, and the turn pays for it.

use std::sync::{Arc, Mutex};

use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::{AfterModel, Hook};
use turnbuckle::message::{Reply, Usage};
use turnbuckle::model::{ModelError, Request};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxError, Limits, Outcome, Turn};

/// Asks its model about every reply as often as it is told, and keeps what came back.
#[derive(Clone)]
struct Asks {
    model: Arc<Script>,
    times: usize,
    answers: Arc<Mutex<Vec<Result<String, ModelError>>>>,
}

impl Asks {
    fn new(times: usize) -> Self {
        let usage = Usage { input: 40, output: 10, ..Usage::default() };
        let model = Script::of([ScriptReply { usage, ..ScriptReply::says("fine") }]);
        Self { model: Arc::new(model), times, answers: Arc::default() }
    }
}

impl Hook for Asks {
    async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        for _ in 0..self.times {
            let question = Request::question(turn.agent().name(), "Is it good?", reply.content.text());
            let answer = turn.ask_model(&*self.model, &question).await;
            self.answers.lock().unwrap().push(answer.map(|reply| reply.content.text()));
        }
        Ok(AfterModel::Continue)
    }
}

#[tokio::test]
async fn what_a_hook_asks_is_charged_to_the_turn_and_is_neither_a_call_nor_shown() {
    let asks = Asks::new(1);
    let mut rig = Rig::new(Agent::builder("a", Script::says(["work"])).hook(asks.clone()).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert!(matches!(asks.answers.lock().unwrap()[..], [Ok(ref text)] if text == "fine"));
    assert_eq!((ended.model_calls, ended.usage.total()), (1, 50));
    let told = |item: &FeedItem| matches!(item, FeedItem::Live(LiveEvent::TextDelta { text, .. }) if &**text == "fine");
    assert!(!rig.told().iter().any(|event| told(&event.item)));
}

#[tokio::test]
async fn a_budget_that_is_used_up_refuses_the_next_question() {
    let asks = Asks::new(2);
    let limits = Limits { max_tokens: 50, ..Limits::default() };
    let agent = Agent::builder("a", Script::says(["work"])).limits(limits).hook(asks.clone()).build().unwrap();
    let ended = Rig::new(agent).ended("go").await.unwrap();
    let answers = asks.answers.lock().unwrap();
    assert!(
        matches!(&answers[..], [Ok(_), Err(ModelError::Exhausted { limit })] if limit == "max_tokens"),
        "{answers:?}"
    );
    assert_eq!(ended.outcome, Outcome::Completed, "the reply was there already");
}
