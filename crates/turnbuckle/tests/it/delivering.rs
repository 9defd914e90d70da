//! `on_logged`: log events and reminders reach their hook at least once, and what does not is kept, told and tried again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::store::{Answer, Job, JobKind};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxError, Scope, TurnStatus};

use crate::faulty_store::FaultyStore;
use crate::kit::{adder, sum};

/// Keeps what it is given, as `type` or `type PERCENT%`, with the key. Fails as often as it is told to.
#[derive(Clone, Default)]
struct Receiver {
    got: Arc<Mutex<Vec<(String, String)>>>,
    failures: Arc<Mutex<VecDeque<&'static str>>>,
    reminders: Vec<u8>,
}

impl Receiver {
    fn failing(times: usize) -> Self {
        Self { failures: Arc::new(Mutex::new(vec!["nobody listens"; times].into())), ..Self::default() }
    }
    fn reminding() -> Self {
        Self { reminders: vec![50, 90], ..Self::default() }
    }
    fn types(&self) -> Vec<String> {
        self.got.lock().unwrap().iter().map(|(kind, _)| kind.clone()).collect()
    }
}

impl Hook for Receiver {
    fn name(&self) -> String {
        "receiver".to_owned()
    }
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.reminders.clone_from(&self.reminders);
        settings
    }
    async fn on_logged(&self, context: &LoggedContext) -> Result<(), BoxError> {
        let FeedItem::Log(event) = &context.event().item else { return Err("not a log event".into()) };
        let percent = context.reminder().map(|percent| format!(" {percent}%")).unwrap_or_default();
        self.got.lock().unwrap().push((format!("{}{percent}", event.kind.name()), context.key()));
        match self.failures.lock().unwrap().pop_front() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}

fn gated(receiver: &Receiver) -> Agent {
    adder(sum()).approve(["add"]).hook(receiver.clone()).build().unwrap()
}

async fn jobs(rig: &Rig) -> Vec<Job> {
    rig.conversations.jobs(&rig.id, Scope::local()).await.unwrap()
}

async fn waits(rig: &mut Rig) {
    let rest = rig.run("go").await.unwrap();
    assert!(matches!(rest, TurnStatus::Waiting(_)), "{rest:?}");
    rig.settle().await;
}

/// What a process with maintenance does after some time.
async fn later(rig: &mut Rig, passed: Duration) {
    rig.clock.advance(passed);
    rig.conversations.recover_due().await.unwrap();
    rig.settle().await;
}

fn notices(rig: &Rig) -> Vec<String> {
    let notice = |told: &turnbuckle::feed::FeedEvent| match &told.item {
        FeedItem::Live(LiveEvent::Notice { text, hook: Some(_), .. }) => Some(text.to_string()),
        _ => None,
    };
    rig.told().iter().filter_map(notice).collect()
}

#[tokio::test]
async fn a_question_and_the_end_are_delivered_once_each_while_the_turn_goes_on() {
    let receiver = Receiver::default();
    let mut rig = Rig::new(gated(&receiver));
    waits(&mut rig).await;
    assert_eq!(receiver.types(), ["suspension"]);
    rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    rig.settle().await;
    assert_eq!(receiver.types(), ["suspension", "turn_ended"]);
    assert!(jobs(&rig).await.is_empty());
    assert!(notices(&rig).is_empty());
}

#[tokio::test]
async fn what_reaches_nobody_is_told_kept_and_tried_again_with_the_same_key() {
    let receiver = Receiver::failing(2);
    let mut rig = Rig::new(gated(&receiver));
    waits(&mut rig).await;
    let [job] = &jobs(&rig).await[..] else { panic!("one job is kept") };
    assert_eq!((job.kind, job.tries, job.error.as_deref()), (JobKind::Logged, 1, Some("nobody listens")));
    assert_eq!(notices(&rig), ["an event was not delivered: nobody listens; it is kept and tried again (try 1 of 8)"]);
    later(&mut rig, Duration::from_secs(4)).await;
    assert_eq!(receiver.types().len(), 1, "not before its time");
    later(&mut rig, Duration::from_secs(1)).await;
    later(&mut rig, Duration::from_secs(10)).await;
    assert_eq!(receiver.types(), ["suspension"; 3]);
    assert!(jobs(&rig).await.is_empty());
    let keys: Vec<String> = receiver.got.lock().unwrap().iter().map(|(_, key)| key.clone()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn tries_are_bounded_and_then_the_job_is_parked_and_told() {
    let receiver = Receiver::failing(100);
    let mut rig = Rig::new(adder(sum()).hook(receiver.clone()).build().unwrap());
    rig.ended("go").await.unwrap();
    rig.settle().await;
    for _ in 0..20 {
        later(&mut rig, Duration::from_secs(3600)).await;
    }
    assert_eq!(receiver.types(), ["turn_ended"; 8]);
    let [job] = &jobs(&rig).await[..] else { panic!("it stays, to be looked at") };
    assert_eq!((job.due, job.tries, job.error.as_deref()), (None, 8, Some("nobody listens")));
    let last = "an event was not delivered: nobody listens; it is parked after 8 tries";
    assert_eq!(notices(&rig).last().unwrap(), last);
}

#[tokio::test]
async fn another_try_is_dropped_once_the_question_has_its_answer() {
    let receiver = Receiver::failing(1);
    let mut rig = Rig::new(gated(&receiver));
    waits(&mut rig).await;
    rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    rig.settle().await;
    later(&mut rig, Duration::from_secs(60)).await;
    assert_eq!(receiver.types(), ["suspension", "turn_ended"]);
    assert!(jobs(&rig).await.is_empty());
}

#[tokio::test]
async fn reminders_come_when_half_and_most_of_the_time_have_passed_also_after_a_restart() {
    let (store, hour) = (FaultyStore::shared(), Duration::from_secs(3600));
    let first = Receiver::reminding();
    let mut rig = Rig::on(gated(&first), store.clone());
    waits(&mut rig).await;
    assert_eq!(first.types(), ["suspension"]);
    drop(rig);
    // The process that asked is gone; another one looks after the store.
    let second = Receiver::reminding();
    let mut rig = Rig::on(gated(&second), store);
    later(&mut rig, hour * 12 - Duration::from_millis(1)).await;
    assert!(second.types().is_empty());
    later(&mut rig, Duration::from_millis(1)).await;
    assert_eq!(second.types(), ["suspension 50%"]);
    later(&mut rig, hour * 9).await;
    assert_eq!(second.types(), ["suspension 50%"], "90 % of 24 h are 21.6 h");
    later(&mut rig, hour).await;
    assert_eq!(second.types(), ["suspension 50%", "suspension 90%"]);
    let keys: Vec<String> = second.got.lock().unwrap().iter().map(|(_, key)| key.clone()).collect();
    assert_ne!(keys[0], keys[1]);
    assert!(jobs(&rig).await.is_empty());
}

#[tokio::test]
async fn an_answer_takes_its_reminders_away_in_the_same_write() {
    let receiver = Receiver::reminding();
    let mut rig = Rig::new(gated(&receiver));
    waits(&mut rig).await;
    let due: Vec<Option<u8>> = jobs(&rig).await.iter().map(|job| job.reminder).collect();
    assert_eq!(due, [Some(50), Some(90)]);
    rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Deny(None), None, Scope::local()).await.unwrap();
    rig.settle().await;
    assert!(jobs(&rig).await.is_empty());
    later(&mut rig, Duration::from_secs(48 * 3600)).await;
    assert_eq!(receiver.types(), ["suspension", "turn_ended"]);
}

#[tokio::test]
async fn one_of_two_approvals_leaves_the_reminders_for_the_other() {
    let receiver = Receiver::reminding();
    let rule = ApproveRule { tool: "add".into(), by: vec!["manager".into()], not_requester: false, n: 2 };
    let access = RoleAccess { approve: vec![rule], ..RoleAccess::default() };
    let mut rig = Rig::with(gated(&receiver), FaultyStore::shared(), |builder| builder.access(access));
    waits(&mut rig).await;
    let mia = Scope::user("mia").role("manager");
    rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, mia).await.unwrap();
    rig.settle().await;
    let due: Vec<Option<u8>> = jobs(&rig).await.iter().map(|job| job.reminder).collect();
    assert_eq!(due, [Some(50), Some(90)]);
    later(&mut rig, Duration::from_secs(13 * 3600)).await;
    assert_eq!(receiver.types(), ["suspension", "suspension 50%"]);
}

#[tokio::test]
async fn what_another_process_writes_for_the_agent_is_delivered_by_the_agent() {
    let (store, receiver) = (FaultyStore::shared(), Receiver::reminding());
    let mut rig = Rig::on(gated(&receiver), store.clone());
    waits(&mut rig).await;
    // A desk that has neither the agent nor its hooks.
    let clock = Arc::new(rig.clock.clone());
    let desk = turnbuckle::Conversations::without_agent(store.clone()).clock(clock).build();
    rig.clock.advance(turnbuckle::store::LEASE);
    desk.cancel(&rig.id, Scope::local()).await.unwrap();
    desk.drain(Duration::from_secs(1)).await;
    let kept: Vec<_> = desk.jobs(&rig.id, Scope::local()).await.unwrap();
    assert!(kept.iter().all(|job| job.reminder.is_none()), "the answer took the reminders away: {kept:?}");
    later(&mut rig, Duration::from_secs(1)).await;
    assert_eq!(receiver.types(), ["suspension", "turn_ended"]);
}

#[tokio::test]
async fn without_background_hooks_messages_are_delivered_all_the_same() {
    let receiver = Receiver::default();
    let agent = gated(&receiver);
    let store = turnbuckle::stores::MemoryStore::default();
    let mut rig = Rig::with(agent, store, |builder| builder.without_background_hooks());
    waits(&mut rig).await;
    assert_eq!(receiver.types(), ["suspension"]);
}

#[test]
fn reminders_of_a_hook_that_is_not_told_of_questions_are_refused() {
    let idle = adder(sum()).hook(pre("p", |turn: BeforeAgentContext| async { turn.proceed() }).reminders([50])).build();
    assert!(idle.unwrap_err().to_string().contains("reminders"));
}
