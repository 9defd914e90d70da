//! What calls were sent, rebuilt from a long log in one pass.

use turnbuckle::models::{OnExhausted, Script};
use turnbuckle::sent::{Stored, each_call};
use turnbuckle::store::Store as _;
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, Limits};

#[tokio::test]
async fn numbers_and_finds_of_every_call_are_those_of_the_messages_that_were_sent() {
    let model = Recorder::of(Script::says(["ok"]).when_exhausted(OnExhausted::Repeat));
    let limits = Limits { context_tokens: 2_000, injection_reserve: 200, ..Limits::default() };
    let store = MemoryStore::default();
    let mut rig = Rig::on(Agent::builder("a", model.clone()).limits(limits).build().unwrap(), store.clone());
    for n in 0..300 {
        rig.ended(format!("message <{n}> {}", "word ".repeat(20))).await.unwrap();
    }
    let id = rig.id.clone();
    let log = store.log(&id, 1, usize::MAX).await.unwrap();
    let (cuts, summaries) = (store.cuts(&id).await.unwrap(), store.summaries(&id).await.unwrap());
    assert!(cuts.len() > 5, "{}", cuts.len());
    let asked: Vec<_> =
        model.requests().into_iter().filter(|request| &*request.agent == "a").map(|request| request.messages).collect();
    let wanted = "message <40>";
    let (mut place, mut with) = (0, 0);
    let stored = Stored { log: &log, cuts: &cuts, summaries: &summaries };
    let left = each_call(stored, Some(wanted), &mut |call, window| {
        assert_eq!(*window.messages(), *asked[place], "call {place}");
        assert_eq!(call.messages, asked[place].len(), "call {place}");
        let is_sent = asked[place].iter().any(|message| message.content().text().contains(wanted));
        assert_eq!(call.found.is_sent(), is_sent, "call {place}");
        let events = window.events();
        assert!(events.len() <= 2 && events.iter().all(|(first, last)| first <= last), "{events:?}");
        (place, with) = (place + 1, with + usize::from(is_sent));
    });
    assert_eq!(place, 300);
    assert!(left.is_empty());
    assert!(with > 3 && with < 200, "it was sent, and left: {with}");
}
