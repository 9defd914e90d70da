//! What each answer means, and which answers mean nothing.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::*;

fn ran(code: i32, stdout: &str, stderr: &str) -> Ran {
    let kept = |text: &str| Kept { bytes: text.as_bytes().to_vec(), beyond: 0 };
    Ran { status: ExitStatus::from_raw(code << 8), stdout: kept(stdout), stderr: kept(stderr) }
}

fn heard<A: DeserializeOwned>(on: CommandPoint, ran: &Ran) -> Result<Said<A>, String> {
    said(ran, &CommandLine::Shell("lint".into()), on).map_err(|error| error.to_string())
}

fn tool(stdout: &str) -> Result<BeforeTool, String> {
    match heard::<ToolAnswer>(CommandPoint::BeforeTool, &ran(0, stdout, ""))? {
        Said::Answer(answer) => answer.decide(),
        _ => Ok(BeforeTool::Continue),
    }
}

fn model(stdout: &str) -> Result<AfterModel, String> {
    match heard::<ReplyAnswer>(CommandPoint::AfterModel, &ran(0, stdout, ""))? {
        Said::Answer(answer) => answer.decide(&Reply::text("old")),
        _ => Ok(AfterModel::Continue),
    }
}

fn stop(stdout: &str) -> Result<OnStop, String> {
    match heard::<StopAnswer>(CommandPoint::Stop, &ran(0, stdout, ""))? {
        Said::Answer(answer) => Ok(answer.decide()),
        _ => Ok(OnStop::Accept),
    }
}

#[test]
fn exit_0_is_no_objection_whatever_text_is_on_stdout() {
    for stdout in ["", "all is well\n", "[1, 2]", "checking\n{\"decision\": \"deny\"}", "{}", " {} \n"] {
        assert_eq!(tool(stdout), Ok(BeforeTool::Continue), "{stdout:?}");
    }
}

#[test]
fn exit_2_blocks_with_stderr_for_its_reason() {
    let blocked = |stderr| match heard::<StopAnswer>(CommandPoint::Stop, &ran(2, "{not read", stderr)) {
        Ok(Said::Block(reason)) => reason,
        other => format!("{other:?}"),
    };
    assert_eq!(blocked("  fix it\n"), "fix it");
    assert_eq!(blocked("\n"), "no reason was given");
}

#[test]
fn any_other_exit_is_a_failure_with_status_and_the_first_lines() {
    let why = heard::<StopAnswer>(CommandPoint::Stop, &ran(3, "", "a\nb\nc\nd\ne\nf\n")).unwrap_err();
    assert_eq!(why, "`lint` ended with exit status: 3: a\nb\nc\nd\ne");
    let killed = Ran { status: ExitStatus::from_raw(9), ..ran(0, "", "") };
    let why = heard::<StopAnswer>(CommandPoint::Stop, &killed).unwrap_err();
    assert!(why.contains("signal: 9"), "{why}");
}

#[test]
fn at_ended_there_is_nothing_to_decide() {
    let over = |code, stdout| heard::<NoAnswer>(CommandPoint::Ended, &ran(code, stdout, "")).map(|_| ());
    assert_eq!(over(0, "done"), Ok(()));
    assert!(over(2, "").is_err());
    assert!(over(0, r#"{"decision": "refuse"}"#).is_err());
}

#[test]
fn before_tool_allows_denies_asks_and_rewrites() {
    assert_eq!(tool(r#"{"decision": "allow", "reason": "fine"}"#), Ok(BeforeTool::Continue));
    assert_eq!(tool(r#"{"decision": "deny", "reason": "no"}"#), Ok(BeforeTool::Deny("no".into())));
    assert_eq!(tool(r#"{"decision": "deny"}"#), Ok(BeforeTool::Deny(NO_REASON.into())));
    assert_eq!(tool(r#"{"decision": "ask", "reason": "sure?"}"#), Ok(BeforeTool::Ask("sure?".into())));
    let rewritten = Ok(BeforeTool::Rewrite(serde_json::json!({"a": 1})));
    assert_eq!(tool(r#"{"decision": "allow", "input": {"a": 1}}"#), rewritten);
    assert_eq!(tool(r#"{"input": {"a": 1}}"#), rewritten);
}

#[test]
fn after_model_rejects_regenerates_and_modifies() {
    assert_eq!(model(r#"{"decision": "reject", "reason": "no"}"#), Ok(AfterModel::Reject("no".into())));
    assert_eq!(model(r#"{"decision": "regenerate", "reason": "no"}"#), Ok(AfterModel::Regenerate("no".into())));
    let modified = Ok(AfterModel::Modify(Box::new(Reply::text("new"))));
    assert_eq!(model(r#"{"decision": "modify", "text": "new"}"#), modified);
}

#[test]
fn stop_refuses_advises_pauses_and_prevents() {
    let said = |decision: &str| stop(&format!(r#"{{"decision": "{decision}", "reason": "r"}}"#));
    assert_eq!(said("refuse"), Ok(OnStop::Refuse("r".into())));
    assert_eq!(said("advise"), Ok(OnStop::Advise("r".into())));
    assert_eq!(said("pause"), Ok(OnStop::Pause("r".into())));
    assert_eq!(said("prevent"), Ok(OnStop::Prevent("r".into())));
}

#[test]
fn an_answer_that_makes_no_sense_is_a_failure() {
    for stdout in [
        r#"{"decision": "refuse"}"#,
        r#"{"decision": "deny", "input": {}}"#,
        r#"{"decision": "ask", "input": {}}"#,
        r#"{"decision": "allow", "input": "rm"}"#,
        r#"{"decision": "allow", "decision": "deny"}"#,
        r#"{"decison": "deny"}"#,
        r#"{"reason": "no"}"#,
        r#"{"decision": "deny""#,
        r#"{"decision": "deny"} and more"#,
    ] {
        assert!(tool(stdout).is_err(), "{stdout}");
    }
    for stdout in [
        r#"{"decision": "deny"}"#,
        r#"{"decision": "modify"}"#,
        r#"{"decision": "reject", "text": "new"}"#,
        r#"{"text": "new"}"#,
    ] {
        assert!(model(stdout).is_err(), "{stdout}");
    }
    assert!(stop(r#"{"decision": "block"}"#).unwrap_err().contains("refuse"));
}

#[test]
fn an_answer_that_was_cut_is_a_failure() {
    let mut long = ran(0, r#"{"decision": "deny"}"#, "");
    long.stdout.beyond = 1;
    assert!(heard::<ToolAnswer>(CommandPoint::BeforeTool, &long).is_err());
}

#[test]
fn a_modified_reply_keeps_thoughts_and_calls() {
    let thought = Part::thinking("hm");
    let content = vec![thought.clone(), Part::text("a"), Part::text("b")];
    let reply = Reply { content: content.into(), ..Reply::default() };
    assert_eq!(with_text(&reply, "c".into()).content.parts(), [thought, Part::text("c")]);
}
