//! What must not be stored is not in records of what hooks changed.

use std::sync::Arc;

use expect_test::expect;
use serde_json::{Value, json};
use turnbuckle::hook::*;
use turnbuckle::message::{Reply, ToolCall};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, Limits, Scope, Turn};

use crate::changes::{Does, check, records, reply, rewriter, says};
use crate::kit::{adder, sum};
use crate::steering::under_way;

/// What must not be stored.
const SECRET: &str = "s3cret";

/// Takes the secret out of messages, results and replies. `finds`: also where it is asked for the form of a text.
struct Hides {
    finds: bool,
    breaks: bool,
}

const FINDS: Hides = Hides { finds: true, breaks: false };
const SILENT: Hides = Hides { finds: false, breaks: false };

impl Hook for Hides {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.hides_changes = true;
        settings.redacts_arguments = self.finds;
        settings
    }
    fn redact_text(&self, text: &str) -> Result<Option<String>, BoxError> {
        if self.breaks {
            return Err("broken".into());
        }
        Ok((self.finds && text.contains(SECRET)).then(|| text.replace(SECRET, "[hidden]")))
    }
    fn redact_arguments(&self, arguments: &Value) -> Result<Option<Value>, BoxError> {
        Ok(Some(serde_json::from_str(&arguments.to_string().replace(SECRET, "[hidden]"))?))
    }
    async fn before_agent(&self, turn: &mut BeforeAgentContext) -> Result<BeforeAgent, BoxError> {
        if self.breaks {
            return Err("broken".into());
        }
        turn.rewrite_input(turn.user_message().text().replace(SECRET, "[hidden]"));
        Ok(BeforeAgent::Continue)
    }
    async fn after_tool(&self, _: &Turn, _: &ToolCall, output: &Output) -> Result<AfterTool, BoxError> {
        let text = output.content.text();
        Ok(AfterTool::Modify(output.clone().with_content(text.replace(SECRET, "[hidden]"))))
    }
    async fn after_model(&self, _: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        let mut other = (**reply).clone();
        other.content = reply.content.text().replace(SECRET, "[hidden]").into();
        Ok(AfterModel::Modify(Box::new(other)))
    }
}

#[tokio::test]
async fn no_record_has_what_a_hook_takes_out_of_what_is_stored() {
    // What the hooks before it had in their hands, at each point.
    let agent = |hides: Hides| {
        let does = Does {
            before_tool: BeforeTool::Answer(format!("{SECRET} in a result").into()),
            after_tool: AfterTool::Modify(Output::ok(format!("{SECRET} in another"))),
            after_model: AfterModel::Modify(reply("my s3cret reply")),
        };
        let before_hides = rewriter("rewriter", "my s3cret is safe");
        adder(sum()).hook(before_hides).hook(does).hook(hides)
    };
    for hides in [FINDS, SILENT] {
        let (finds, (records, _)) = (hides.finds, records(agent(hides), "it is s3cret").await);
        let stored = serde_json::to_string(&records).unwrap();
        assert!(!stored.contains(SECRET), "{stored}");
        assert!(stored.contains(r#""after":"my [hidden] is safe","hidden":true"#), "what became of it: {stored}");
        // A hook that finds its texts costs the others no more than the secret.
        assert_eq!(stored.contains(r#""before":"it is [hidden]","after":"my [hidden] is safe""#), finds, "{stored}");
        assert_eq!(
            stored.contains(r#""before":"[hidden] in a result","after":"[hidden] in another""#),
            finds,
            "{stored}"
        );
    }
}

#[tokio::test]
async fn arguments_in_records_have_the_form_of_the_log() {
    let rewrites = Does { before_tool: BeforeTool::Rewrite(json!({"a": 1, "b": 1, "c": SECRET})), ..Does::default() };
    let (records, _) = records(adder(sum()).hook(rewrites).hook(FINDS), "go").await;
    let stored = serde_json::to_string(&records).unwrap();
    assert!(stored.contains(r#"\"c\":\"[hidden]\""#) && !stored.contains(SECRET), "{stored}");
}

#[tokio::test]
async fn where_redaction_fails_a_note_stands_in_the_place_of_the_text() {
    let breaks = Hides { finds: true, breaks: true }.on_failure(OnFailure::Ignore);
    let (records, _) = records(says("hi").hook(rewriter("rewriter", "my s3cret")).hook(breaks), "s3cret").await;
    let stored = serde_json::to_string(&records).unwrap();
    assert!(stored.contains(r#""edit":{"of":"message","hidden":true}"#) && !stored.contains(SECRET), "{stored}");
    let adds = pre("adds", |mut turn: BeforeModelContext| async move {
        turn.inject("s3cret");
        turn.proceed()
    });
    let breaks = Hides { finds: true, breaks: true }.on_failure(OnFailure::Ignore);
    let (told, _) = self::records(says("hi").hook(adds.every_call()).hook(breaks), "go").await;
    let stored = serde_json::to_string(&told).unwrap();
    assert!(stored.contains("not kept: the hook that redacts it failed") && !stored.contains(SECRET), "{stored}");
}

#[tokio::test]
async fn of_a_message_that_is_not_kept_records_have_nothing() {
    let adds = pre("adds", |mut turn: BeforeAgentContext| async move {
        let heard = format!("you said {}", turn.user_message().text());
        turn.inject(heard);
        turn.proceed()
    });
    let erases = pre("erases", |turn: BeforeAgentContext| async move { turn.erase("never") });
    let agent = says("hi").hook(rewriter("rewriter", "my s3cret")).hook(adds).hook(erases);
    let (records, _) = records(agent, "s3cret").await;
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record.change.is_none()), "{records:?}");
}

#[tokio::test]
async fn of_a_reply_that_is_taken_back_or_never_told_records_have_nothing() {
    for decision in [AfterModel::Reject("no".into()), AfterModel::Regenerate("again".into())] {
        let modifies = Does { after_model: AfterModel::Modify(reply("a s3cret reply")), ..Does::default() };
        let judges = Does { after_model: decision, ..Does::default() };
        let limits = Limits { max_regenerations: 0, ..Limits::default() };
        let agent = says("the s3cret").limits(limits).hook(modifies.named("modifies")).hook(judges.named("judges"));
        let (records, _) = records(agent, "go").await;
        let stored = serde_json::to_string(&records).unwrap();
        assert!(stored.contains(r#""edit":{"of":"reply","hidden":true}"#) && !stored.contains(SECRET), "{stored}");
    }
    // With this nothing is told before every guard has accepted.
    let modifies = Does { after_model: AfterModel::Modify(reply("fine")), ..Does::default() };
    let expected = expect![[r#"
        after_model does modify: {"edit":{"of":"reply","after":"fine","hidden":true}}
    "#]];
    check(says("the s3cret").hook(modifies.release_on_accept()), "go", expected).await;
}

#[tokio::test]
async fn secrets_that_the_program_knows_are_in_no_record() {
    let adds = pre("adds", |mut turn: BeforeAgentContext| async move {
        turn.inject(format!("{}s3cret", "x".repeat(4_093)));
        turn.proceed()
    });
    let agent = says("hi").hook(rewriter("rewriter", "my s3cret")).hook(adds).build().unwrap();
    let redact = |text: &str| text.contains(SECRET).then(|| text.replace(SECRET, "[key]"));
    let mut rig = Rig::with(agent, MemoryStore::default(), |builder| builder.redact_records(redact));
    let report = rig.ended("s3cret").await.unwrap();
    let records = rig.conversations.records(&report.conversation, &report.turn, Scope::local()).await.unwrap();
    let stored = serde_json::to_string(&records).unwrap();
    assert!(stored.contains(r#""before":"[key]","after":"my [key]""#), "{stored}");
    assert!(!stored.contains("s3c"), "not even the beginning of one, where a text is cut: {stored}");
}

#[tokio::test]
async fn records_have_nothing_of_a_message_that_is_refused() {
    let rewrites = pre("rewrites", |mut turn: BeforeAgentContext| async move {
        let other = turn.user_message().text().to_uppercase();
        turn.rewrite_input(other);
        turn.proceed()
    });
    let halts = pre("halts", |turn: BeforeAgentContext| async move {
        match turn.is_steering() {
            true => turn.halt("not that"),
            false => turn.proceed(),
        }
    });
    let under_way = under_way(|agent| agent.hook(rewrites).hook(halts)).await;
    let sent = under_way.steer("bad").await;
    let (rig, ended, _) = under_way.finish().await;
    assert!(sent.wait().await.is_err());
    let records = rig.conversations.records(&ended.conversation, &ended.turn, Scope::local()).await.unwrap();
    let changed: Vec<_> = records.iter().map(|record| (&*record.hook, record.change.is_some())).collect();
    assert_eq!(changed, [("rewrites", true), ("halts", false), ("rewrites", false), ("halts", false)]);
}
