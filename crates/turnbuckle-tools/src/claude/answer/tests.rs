//! What answers mean that are not quite what the protocol says.

use super::*;

#[test]
fn an_answer_among_other_text_is_a_failure_and_not_silence() {
    let deny = r#"{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"}}"#;
    for text in [
        format!("Loading…\n{deny}"),
        format!("{deny}\nbye"),
        format!("checked: {deny}"),
        "nvm: v20\n{\"decision\": \"block\", \"reason\": \"x\"}\n".to_owned(),
        "a {\n{\"continue\": false}\n}".to_owned(),
    ] {
        let read = Reading::of_text(ClaudeEvent::PreToolUse, &text, 0);
        assert_eq!(read.outcome, Outcome::InvalidJson, "{text}");
        assert!(read.failure.is_some());
    }
    for text in
        ["fine", "{ not json }", "[1, 2]", "a {\"decision\": 1} b", "{\"x\": {\"decision\": \"block\"}} and more"]
    {
        let read = Reading::of_text(ClaudeEvent::PreToolUse, text, 0);
        assert_eq!((read.outcome, read.failure), (Outcome::Ok, None), "{text}");
    }
    let read = Reading::of_text(ClaudeEvent::UserPromptSubmit, &format!("note\n{deny}"), 0);
    assert!(read.answer.context.is_some_and(|text| text.starts_with("note")), "the text stays context");
}

#[test]
fn braces_that_are_no_json_are_text_where_text_is_context_unless_they_may_decide() {
    use std::os::unix::process::ExitStatusExt as _;
    let said = |event: ClaudeEvent, stdout: &str| {
        let kept = Kept { bytes: stdout.as_bytes().to_vec(), beyond: 0 };
        let ran = Ran { status: std::process::ExitStatus::from_raw(0), stdout: kept, stderr: Kept::default() };
        read(event, &Dialect::default(), &ran)
    };
    for event in [ClaudeEvent::UserPromptSubmit, ClaudeEvent::SessionStart] {
        let read = said(event, "{branch: main, dirty: 3}\n");
        assert_eq!(read.outcome, Outcome::Ok, "{event:?}: {:?}", read.failure);
        assert_eq!(read.answer.context.as_deref(), Some("{branch: main, dirty: 3}"), "{event:?}");
    }
    let read = said(ClaudeEvent::UserPromptSubmit, "{'decision': 'block'}");
    assert_eq!(read.outcome, Outcome::InvalidJson, "a decision that is misspelt stays a failure");
    assert_eq!(said(ClaudeEvent::PreToolUse, "{branch: main}").outcome, Outcome::InvalidJson);
    let marked = said(ClaudeEvent::PreToolUse, "\u{feff}{\"decision\": \"block\"}");
    assert_eq!(marked.outcome, Outcome::Blocked, "a byte-order mark is no text before the answer");
}

#[test]
fn what_is_said_and_not_used_is_named() {
    let object = serde_json::json!({
        "terminalSequence": "\u{7}", "suppressOutput": true, "additionalContext": "x", "metrics": 1,
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "sessionTitle": "t", "suppressOriginalPrompt": true},
    });
    let answer = answer(ClaudeEvent::UserPromptSubmit, object.as_object().unwrap()).unwrap();
    for name in ["terminalSequence", "additionalContext", "sessionTitle", "suppressOriginalPrompt"] {
        assert!(answer.warnings.iter().any(|warning| warning.contains(name)), "{name} in {:?}", answer.warnings);
    }
    assert_eq!(answer.warnings.len(), 4, "unknown keys are nobody's concern: {:?}", answer.warnings);
}
