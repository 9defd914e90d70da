//! Redaction on the stream: everything that becomes an assistant message has passed every transformer exactly once.

use std::sync::Arc;

use proptest::prelude::*;
use turnbuckle::event::EventKind;
use turnbuckle::feed::{FeedItem, LiveEvent};
use turnbuckle::hook::*;
use turnbuckle::message::Reply;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, AgentBuilder, BoxError, Outcome, Turn};
use turnbuckle_hooks::Redact;

/// Put together here, so that no scanner takes this file for a leak.
fn secrets() -> [String; 3] {
    ["ann.lee@example.com".to_owned(), "4111 1111 1111 1111".to_owned(), format!("sk-{}", "a1B2".repeat(10))]
}

fn agent(model: impl Model) -> AgentBuilder {
    Agent::builder("a", model).hook(Redact::standard().unwrap())
}

/// What was told and what was logged, after one turn.
async fn said(agent: AgentBuilder) -> (String, String) {
    let mut rig = Rig::new(agent.build().unwrap());
    rig.run("go").await.unwrap();
    let mut told = String::new();
    for word in rig.told() {
        match &word.item {
            FeedItem::Live(LiveEvent::TextDelta { text, .. }) => told.push_str(text),
            FeedItem::Live(LiveEvent::AttemptDiscarded { .. }) => told.push('⟲'),
            _ => {}
        }
    }
    let log = rig.log().await.unwrap();
    let logged = log.iter().filter_map(|event| match &event.kind {
        EventKind::AssistantMessage { content, .. } => Some(content.text()),
        _ => None,
    });
    (told, logged.collect())
}

#[tokio::test]
async fn every_secret_split_at_every_boundary_is_redacted() {
    for secret in secrets() {
        let text = format!("It is {secret}, ok?");
        let whole = Redact::standard().unwrap().apply(&text).into_owned();
        assert!(!whole.contains(&secret));
        for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let script = Script::of([ScriptReply::chunks([&text[..cut], &text[cut..]])]);
            assert_eq!(said(agent(script)).await, (whole.clone(), whole.clone()), "{secret} cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_chunking_tells_and_logs_the_same(
        words in proptest::collection::vec(prop_oneof![
            Just("hello ".to_owned()), Just("ann@example.com ".to_owned()), Just("4111111111111111".to_owned()),
            Just(" sk-abcdefghijklmnopqrstuvwxyz123456 ".to_owned()), Just("ünï@".to_owned()), "[a-z@. 0-9-]{0,12}",
        ], 0..12),
        cuts in proptest::collection::vec(0usize..200, 0..40),
    ) {
        let text = words.concat();
        prop_assume!(!text.trim().is_empty());
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| text.floor_char_boundary(cut.min(text.len()))).chain([0, text.len()]).collect();
        cuts.sort();
        let chunks: Vec<_> = cuts.windows(2).map(|pair| text[pair[0]..pair[1]].to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (told, logged) = runtime.block_on(said(agent(Script::of([ScriptReply::chunks(chunks)]))));
        let whole = Redact::standard().unwrap().apply(&text).into_owned();
        prop_assert_eq!((told, logged), (whole.clone(), whole));
    }
}

const LEAK: &str = "mail ann.lee@example.com now";
const CLEAN: &str = "mail [email] now";

#[tokio::test]
async fn a_cached_reply_passes_the_transformers_too() {
    struct Cache;
    impl Hook for Cache {
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            _: &'a Request,
            _: &'a mut dyn Sink,
            _: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            Ok(Reply::text(LEAK))
        }
    }
    assert_eq!(said(agent(Script::of([])).hook(Cache)).await, (CLEAN.to_owned(), CLEAN.to_owned()));
}

#[tokio::test]
async fn a_fallback_after_half_a_reply_passes_them_too() {
    struct Fallback(Arc<dyn Model>);
    impl Hook for Fallback {
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            request: &'a Request,
            out: &'a mut dyn Sink,
            next: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            match next.run(request, out).await {
                Ok(reply) => Ok(reply),
                Err(_) => ModelNext::on(next, &self.0.clone()).run(request, out).await,
            }
        }
    }
    let broken = ScriptReply { fail_after_chunks: Some(1), ..ScriptReply::chunks(["so, ann.l", "ost"]) };
    let other: Arc<dyn Model> = Arc::new(Script::of([ScriptReply::says("x"), ScriptReply::says(LEAK)]));
    let (told, logged) = said(agent(Script::of([broken])).hook(Fallback(other))).await;
    assert_eq!((told.as_str(), logged.as_str()), ("so, ⟲mail [email] now", CLEAN));
}

#[tokio::test]
async fn a_modified_reply_passes_them_too() {
    let modify = guard("modify", |_, _| async { Ok(AfterModel::Modify(Box::new(Reply::text(LEAK)))) });
    let (told, logged) = said(agent(Script::says(["hello"])).hook(modify)).await;
    assert_eq!((told.as_str(), logged.as_str()), ("hello⟲mail [email] now", CLEAN));
}

#[tokio::test]
async fn a_wrap_that_returns_other_words_than_it_streamed_is_taken_at_its_word() {
    struct Liar;
    impl Hook for Liar {
        async fn wrap_model_call<'a>(
            &self,
            _: &'a Turn,
            request: &'a Request,
            out: &'a mut dyn Sink,
            next: ModelNext<'a>,
        ) -> Result<Reply, ModelError> {
            next.run(request, out).await?;
            Ok(Reply::text(LEAK))
        }
    }
    let (told, logged) = said(agent(Script::says(["hello there"])).hook(Liar)).await;
    assert_eq!((told.as_str(), logged.as_str()), ("hello ⟲mail [email] now", CLEAN));
}

#[tokio::test]
async fn thinking_is_redacted_as_well() {
    let script = Script::of([ScriptReply { thinking: Some(LEAK.into()), ..ScriptReply::says("ok") }]);
    let mut rig = Rig::new(agent(script).build().unwrap());
    rig.run("go").await.unwrap();
    let all = format!("{:?}{:?}", rig.told(), rig.log().await.unwrap());
    assert!(!all.contains("ann.lee") && all.contains(CLEAN), "{all}");
}

#[tokio::test]
async fn a_transformer_that_fails_blocks_and_tells_nothing_more() {
    struct Fuse(usize);
    impl Transformer for Fuse {
        fn chunk(&mut self, text: &str, out: &mut TransformOutput<'_>) -> Result<(), BoxError> {
            self.0 += text.len();
            if self.0 > 4 {
                return Err("too much".into());
            }
            out.push(text);
            Ok(())
        }
    }
    struct Fused;
    impl Hook for Fused {
        fn transformer(&self) -> Option<Box<dyn Transformer>> {
            Some(Box::new(Fuse(0)))
        }
    }
    let script = Script::of([ScriptReply::chunks(["one ", "two ", "three"])]);
    let mut rig = Rig::new(Agent::builder("a", script).hook(Fused.on_failure(OnFailure::Ignore)).build().unwrap());
    let ended = rig.ended("go").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Failed);
    assert_eq!(ended.reason.as_deref(), Some("hook fused failed at stream: too much"));
}

#[tokio::test]
async fn ten_thousand_chunks_of_one_byte_come_through() {
    let text: String = (0..10_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let chunks: Vec<_> = text.chars().map(String::from).collect();
    let (told, logged) = said(agent(Script::of([ScriptReply::chunks(chunks)]))).await;
    assert_eq!(told, text);
    assert_eq!(logged, text);
}
