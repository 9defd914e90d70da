//! `guard`: no reply that breaks a rule becomes the answer.

use expect_test::expect;
use serde_json::json;
use turnbuckle::hook::HookExt;
use turnbuckle::hooks::guard::{GuardRule, OnViolation, Rule};
use turnbuckle::hooks::{Guard, SchemaSource};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, Outcome};

use crate::kit::{add, check};

fn guard(rule: GuardRule) -> Guard {
    Guard::new([rule]).unwrap()
}

fn forbid(pattern: &str) -> GuardRule {
    GuardRule::new(Rule::Forbid(pattern.into()))
}

#[tokio::test]
async fn a_forbidden_reply_is_made_again_with_the_reason() {
    check(
        Agent::builder("a", Script::says(["the code is 1234", "I cannot tell"]))
            .hook(guard(forbid("[0-9]{4}").because("no codes"))),
        "tell",
        expect![[r#"
            accept    "tell"
            build     1 message, 0 tools
            discard   attempt 1 by hook guard: no codes
            build     3 messages, 0 tools
            call      "I cannot tell"
            end       completed
        "#]],
    )
    .await;
}

#[tokio::test]
async fn a_rule_may_end_the_turn() {
    let rule = GuardRule::new(Rule::Phrases(vec!["Guaranteed Returns".into()])).then(OnViolation::Reject);
    let script = Script::says(["we have guaranteed returns"]);
    let mut rig = Rig::new(Agent::builder("a", script).hook(guard(rule).release_on_accept()).build().unwrap());
    let ended = rig.ended("invest?").await.unwrap();
    assert_eq!(ended.outcome, Outcome::Rejected);
    assert_eq!(ended.reason.as_deref(), Some("it must not say \"guaranteed returns\""));
}

#[tokio::test]
async fn a_rule_may_take_the_offence_out() {
    for (rule, said, kept) in [
        (forbid("[0-9]+").then(OnViolation::Modify).replace("#"), "pin 12 and $1 34", "pin # and $# #"),
        (GuardRule::new(Rule::MaxChars(3)).then(OnViolation::Modify).replace("…"), "äöüß", "äöü…"),
    ] {
        let mut rig = Rig::new(Agent::builder("a", Script::says([said])).hook(guard(rule)).build().unwrap());
        assert_eq!(rig.ended("hi").await.unwrap().text(), kept);
    }
}

#[tokio::test]
async fn all_rules_judge_also_what_an_earlier_one_left() {
    let rules = [forbid("a").then(OnViolation::Modify), GuardRule::new(Rule::MinChars(3)).because("too short")];
    let script = Script::says(["aaab", "bcd"]);
    let mut rig = Rig::new(Agent::builder("a", script).hook(Guard::new(rules).unwrap()).build().unwrap());
    assert_eq!(rig.ended("hi").await.unwrap().text(), "bcd");
}

#[tokio::test]
async fn an_answer_must_fit_the_schema_and_a_step_on_the_way_need_not() {
    let schema = json!({"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}});
    let rule = GuardRule::new(Rule::Schema(SchemaSource::Inline(schema)));
    let script = Script::of([
        ScriptReply::says("let me see").and_calls("c1", "add", json!({"a": 2, "b": 2})),
        ScriptReply::says("it is 4"),
        ScriptReply::says("```json\n{\"sum\": 4}\n```"),
    ]);
    let mut rig = Rig::new(Agent::builder("a", script).tool(add()).hook(guard(rule)).build().unwrap());
    let ended = rig.ended("2+2").await.unwrap();
    assert_eq!((ended.outcome, ended.model_calls), (Outcome::Completed, 3));
    assert!(ended.text().contains("\"sum\": 4"));
}

#[tokio::test]
async fn what_must_be_there_is_asked_for() {
    let script = Script::says(["yes", "yes, because of that"]);
    let rule = GuardRule::new(Rule::Require("because".into()));
    let mut rig = Rig::new(Agent::builder("a", script).hook(guard(rule)).build().unwrap());
    assert_eq!(rig.ended("why?").await.unwrap().text(), "yes, because of that");
}

#[test]
fn rules_that_cannot_be_kept_are_refused_when_built() {
    let refused = |rule: GuardRule| Guard::new([rule]).unwrap_err().to_string();
    assert!(refused(forbid("(")).contains("`rules` is not a pattern"));
    assert!(refused(forbid("x*")).contains("which every text has"));
    assert!(refused(GuardRule::new(Rule::Require("a".into())).then(OnViolation::Modify)).contains("modify"));
    assert!(refused(forbid("a").replace("b")).contains("without `then"));
    assert!(refused(GuardRule::new(Rule::Phrases(vec![" ".into()]))).contains("phrases"));
    let none = SchemaSource::File("no-such-schema.json".into());
    assert!(refused(GuardRule::new(Rule::Schema(none))).contains("cannot be read"));
    assert!(Guard::new([]).is_err());
}
