//! Tower's own layers around models and tools, with their state kept over calls.

use std::future::{Ready, ready};
use std::time::Duration;

use tower::ServiceBuilder;
use tower::retry::Policy;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxError, Conversations, Outcome, Reply, Scope};
use turnbuckle_hooks::tower::{ModelCall, around_models, around_tools};

use super::kit::{Act, Puppet, add, adding, pieces};

#[derive(Clone)]
struct Times(u32);

impl Policy<ModelCall, Reply, BoxError> for Times {
    type Future = Ready<()>;
    fn retry(&mut self, _: &mut ModelCall, result: &mut Result<Reply, BoxError>) -> Option<Self::Future> {
        (result.is_err() && self.0 > 0).then(|| {
            self.0 -= 1;
            ready(())
        })
    }
    fn clone_request(&mut self, call: &ModelCall) -> Option<ModelCall> {
        Some(call.clone())
    }
}

#[tokio::test]
async fn what_a_model_says_is_streamed_through_a_layer_piece_by_piece() {
    let model = Puppet::new([Act::Chunks(&["Hel", "lo"])]);
    let layer = ServiceBuilder::new().concurrency_limit(1);
    let mut rig = Rig::new(Agent::builder("a", model).hook(around_models(layer)).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "Hello");
    assert_eq!(pieces(rig.told()), ["Hel", "lo"]);
}

#[tokio::test]
async fn towers_retry_makes_new_attempts_and_takes_back_what_was_said() {
    let model = Puppet::new([Act::BreaksAfter("half"), Act::Fails(500), Act::Says("whole")]);
    let layer = ServiceBuilder::new().retry(Times(2));
    let mut rig = Rig::new(Agent::builder("a", model.clone()).hook(around_models(layer)).build().unwrap());
    let ended = rig.ended("hi").await.unwrap();
    assert_eq!((ended.text().as_str(), ended.model_calls), ("whole", 3));
    assert!(format!("{:?}", rig.told()).contains("AttemptDiscarded { attempt: 1"));
}

#[tokio::test]
async fn an_error_of_the_model_comes_through_a_layer_as_it_was() {
    let model = Puppet::new([Act::Fails(418)]);
    let layer = ServiceBuilder::new().timeout(Duration::from_secs(5)).retry(Times(0));
    let mut rig = Rig::new(Agent::builder("a", model).hook(around_models(layer)).build().unwrap());
    assert!(rig.ended("hi").await.unwrap().reason.unwrap().contains("status 418"));
}

#[tokio::test(start_paused = true)]
async fn towers_timeout_drops_a_model_that_hangs() {
    let model = Puppet::new([Act::HangsAfter("well")]);
    let layer = ServiceBuilder::new().timeout(Duration::from_secs(5));
    let agent = Agent::builder("a", model).hook(around_models(layer)).build().unwrap();
    let Err(turnbuckle::RunError::NotCompleted(ended)) = agent.run("hi").await else { panic!("it completed") };
    assert_eq!(ended.outcome, Outcome::Failed);
    assert!(ended.reason.unwrap().contains("a layer gave up"), "as a connection that broke");
}

#[tokio::test(start_paused = true)]
async fn towers_rate_limit_is_kept_over_calls_and_conversations() {
    let model = Puppet::new([Act::Says("yes")]);
    let layer = ServiceBuilder::new().rate_limit(2, Duration::from_secs(60));
    let agent = Agent::builder("a", model).hook(around_models(layer)).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let began = tokio::time::Instant::now();
    let all = (0..5).map(|_| conversations.run("hi", Scope::local()));
    let mut done = Vec::new();
    for run in all {
        done.push(run.await.unwrap());
    }
    assert!(done.iter().all(|ended| ended.is_completed()));
    assert_eq!(began.elapsed().as_secs(), 120, "two at once, two after a minute, one after another");
}

#[tokio::test]
async fn a_cancelled_call_gives_its_permit_back() {
    let model = Puppet::new([Act::HangsAfter("…"), Act::Says("mine")]);
    let layer = ServiceBuilder::new().concurrency_limit(1);
    let rig = Rig::new(Agent::builder("a", model).hook(around_models(layer)).build().unwrap());
    let first = super::kit::begin(&rig, "talk_1", "hi").await;
    super::kit::settle().await;
    let second = super::kit::begin(&rig, "talk_2", "hi").await;
    super::kit::settle().await;
    rig.conversations.cancel(&"talk_1".into(), Scope::local()).await.unwrap();
    assert_eq!(super::kit::end(first).await.outcome, Outcome::Cancelled);
    assert_eq!(super::kit::end(second).await.text(), "mine");
}

#[tokio::test(start_paused = true)]
async fn tools_have_layers_too() {
    let layer = ServiceBuilder::new().timeout(Duration::from_secs(5));
    let agent = Agent::builder("a", adding(99, "never mind")).tool(add()).hook(around_tools(layer)).build().unwrap();
    let conversations = Conversations::in_memory(agent);
    let id = "talk".into();
    conversations.turn(&id, "hi", Scope::local()).await.unwrap();
    let log = conversations.log(&id, Scope::local()).await.unwrap();
    assert!(format!("{log:?}").contains("request timed out"), "{log:?}");
    let mut fine = Rig::new(
        Agent::builder("a", adding(1, "3"))
            .tool(add())
            .hook(around_tools(tower::layer::util::Identity::new()))
            .build()
            .unwrap(),
    );
    assert!(fine.trace("hi").await.contains("add(1, 2) = 3"));
}
