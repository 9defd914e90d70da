//! What is wrong with a definition is said when the agent is built, and the culprit is named.

use std::time::Duration;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use turnbuckle::hook::{
    AfterModel, BeforeAgentContext, BeforeModelContext, BeforeTool, Hook, HookEntry, HookExt, Point, gate, guard,
    member, parallel, pre, stop,
};
use turnbuckle::models::Script;
use turnbuckle::tool::{Approval, Effect, Executor, Output, Spec, Tool};
use turnbuckle::tools::{FunctionTool, function_with_schema, human};
use turnbuckle::{Agent, AgentBuilder, BoxError, BoxFuture, Limits, ToolCall, Turn};

fn agent() -> AgentBuilder {
    Agent::builder("a", Script::says(["hi"])).tool(tool("read_file")).tool(tool("write_file"))
}

fn tool(name: &str) -> FunctionTool {
    with_schema(name, json!({"type": "object"}))
}

fn with_schema(name: &str, schema: Value) -> FunctionTool {
    function_with_schema(name, "For tests.", schema, Effect::Pure, |_, _| async { Ok("done") })
}

fn nothing(name: &str) -> impl Hook + use<> {
    pre(name, |turn: BeforeAgentContext| async move { turn.proceed() })
}

fn every_call(name: &str) -> impl Hook + use<> {
    pre(name, |turn: BeforeModelContext| async move { turn.proceed() }).every_call()
}

fn watch(name: &str) -> impl Hook + use<> {
    gate(name, |_, _| async { Ok(BeforeTool::Continue) })
}

/// The variant's name, and what people read.
fn refused(agent: AgentBuilder, expected: Expect) {
    let error = agent.build().expect_err("the agent was built");
    let shown = format!("{error:?}");
    let variant = shown.split([' ', '{']).next().unwrap_or_default();
    expected.assert_eq(&format!("{variant}: {error}"));
}

fn limited(change: impl FnOnce(&mut Limits)) -> AgentBuilder {
    let mut limits = Limits::default();
    change(&mut limits);
    agent().limits(limits)
}

#[test]
fn a_definition_without_a_fault_is_built() {
    let hooks = parallel([member("x", |_| async { Ok("x") }), member("y", |_| async { Ok("y") })]);
    let built = agent().hook(watch("w").for_tools(["write_*"])).hook(hooks).approve(["write_file"]).build();
    assert_eq!(built.unwrap().hooks().len(), 2);
}

#[test]
fn an_agents_name_that_cannot_be_one_is_refused() {
    for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
        let error = Agent::builder(name, Script::says(["hi"])).build().expect_err(name).to_string();
        assert!(error.starts_with(&format!("agent name {name:?} is not")), "{error}");
    }
}

#[test]
fn a_tools_name_that_cannot_be_one_is_refused() {
    refused(
        agent().tool(tool("read file")),
        expect![[r#"BadName: tool name "read file" is not made of 1 to 64 of A-Z a-z 0-9 _ -"#]],
    );
}

#[test]
fn two_tools_with_one_name_are_refused() {
    refused(agent().tool(tool("read_file")), expect![[r#"DuplicateTool: two tools are named "read_file""#]]);
}

#[test]
fn approving_a_tool_that_is_not_there_is_refused_and_those_that_are_there_are_told() {
    refused(
        agent().approve(["read_file", "shell"]),
        expect![[
            r#"UnknownTool: approve names "shell", and the agent has no such tool; it has: read_file, write_file"#
        ]],
    );
    refused(
        Agent::builder("a", Script::says(["hi"])).approve(["shell"]),
        expect![[r#"UnknownTool: approve names "shell", and the agent has no such tool; it has: none"#]],
    );
}

#[test]
fn a_hook_for_a_tool_that_is_not_there_is_refused() {
    refused(
        agent().hook(watch("guard").for_tools(["read_*", "shel?"])),
        expect![[
            r#"UnknownTool: hook "guard" names "shel?", and the agent has no such tool; it has: read_file, write_file"#
        ]],
    );
}

#[test]
fn two_hooks_with_one_name_are_refused() {
    refused(
        agent().hook(nothing("recall")).hook(watch("recall")),
        expect![[r#"DuplicateHook: two hooks are named "recall""#]],
    );
    refused(
        agent().hook(nothing("a")).hook(watch("b").named("a")),
        expect![[r#"DuplicateHook: two hooks are named "a""#]],
    );
}

#[test]
fn a_name_is_unique_across_groups_and_within_one() {
    let recall = || member("recall", |_| async { Ok("tea") });
    refused(agent().hook(parallel([recall(), recall()])), expect![[r#"DuplicateHook: two hooks are named "recall""#]]);
    refused(
        agent().hook(nothing("recall")).hook(parallel([recall()])),
        expect![[r#"DuplicateHook: two hooks are named "recall""#]],
    );
    refused(
        agent().hook(parallel([recall()])).hook(parallel([recall()]).every_call()),
        expect![[r#"DuplicateHook: two hooks are named "recall""#]],
    );
}

#[test]
fn a_hook_without_a_name_is_refused_by_its_place() {
    refused(agent().hook(nothing("one")).hook(nothing(" ")), expect!["NamelessHook: hook number 2 has an empty name"]);
    refused(
        agent().hook(parallel([member("", |_| async { Ok("x") })])),
        expect!["NamelessHook: hook number 1 has an empty name"],
    );
}

#[test]
fn a_gate_on_a_persons_tool_is_refused_wherever_it_was_put() {
    refused(
        agent().tool(human("ask", "Asks.").requires_approval()),
        expect![[
            r#"IllegalGate: tool "ask" requires approval, and is run by the Human: only server and client tools can be gated"#
        ]],
    );
    refused(
        agent().tool(human("ask", "Asks.")).approve(["ask"]),
        expect![[
            r#"IllegalGate: tool "ask" requires approval, and is run by the Human: only server and client tools can be gated"#
        ]],
    );
}

struct OfTheHost(Spec);

impl Tool for OfTheHost {
    fn spec(&self) -> &Spec {
        &self.0
    }
    fn call<'a>(&'a self, _: &'a Turn, _: &'a ToolCall) -> BoxFuture<'a, Result<Output, BoxError>> {
        Box::pin(async { Err("not run here".into()) })
    }
}

#[test]
fn a_gate_on_the_hosts_tool_is_refused() {
    let spec = Spec::server("web_search", "Searches.", json!({"type": "object"}), Effect::Pure);
    let spec = Spec { executor: Executor::Provider, approval: Approval::Required, ..spec };
    refused(
        agent().tool(OfTheHost(spec)),
        expect![[
            r#"IllegalGate: tool "web_search" requires approval, and is run by the Provider: only server and client tools can be gated"#
        ]],
    );
}

/// A pointer that leads nowhere is the same in every call, so a standing approval by it would cover all of them.
#[test]
fn a_pointer_of_standing_by_that_names_no_argument_is_refused() {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}, "a/b": {"type": "object"}}});
    let by = |pointer: &str| agent().tool(with_schema("write", parameters.clone()).standing_by([pointer]));
    refused(
        by("path"),
        expect![[
            r#"BadStandingBy: `standing_by` of tool "write" has "path", which is not the JSON pointer of an argument, like "/path""#
        ]],
    );
    for wrong in ["", "/", "/pth", "/a/b"] {
        assert!(matches!(by(wrong).build(), Err(turnbuckle::BuildError::BadStandingBy { .. })), "{wrong}");
    }
    for right in ["/path", "/a~1b", "/a~1b/c"] {
        by(right).build().unwrap();
    }
    // Without a list of arguments it cannot be known which there are.
    agent().tool(with_schema("any", json!({"type": "object"})).standing_by(["/path"])).build().unwrap();
}

#[test]
fn a_schema_that_is_none_is_refused() {
    refused(
        agent().tool(with_schema("odd", json!({"type": "string"}))),
        expect![[
            r#"BadSchema: the parameters of tool "odd" are not the JSON schema of an object: its type is not "object""#
        ]],
    );
    refused(
        agent().tool(with_schema("odd", json!(true))),
        expect![[
            r#"BadSchema: the parameters of tool "odd" are not the JSON schema of an object: its type is not "object""#
        ]],
    );
    let twisted = json!({"type": "object", "properties": {"a": {"type": "integre"}}});
    let error = agent().tool(with_schema("odd", twisted)).build().expect_err("no such type").to_string();
    assert!(error.starts_with("the parameters of tool \"odd\" are not") && error.contains("integre"), "{error}");
}

#[test]
fn a_reserve_that_leaves_no_room_for_history_is_refused() {
    refused(
        limited(|limits| limits.injection_reserve = 32_000),
        expect!["ReserveTooLarge: injection_reserve (32000) must be smaller than context_tokens (32000)"],
    );
    refused(
        limited(|limits| limits.context_tokens = 4_000),
        expect!["ReserveTooLarge: injection_reserve (4000) must be smaller than context_tokens (4000)"],
    );
}

#[test]
fn a_hook_that_may_add_more_than_the_reserve_is_refused() {
    refused(
        agent().hook(nothing("recall").sheddable(4_001, 0)),
        expect![[r#"HookBeyondReserve: hook "recall" may add 4001 tokens, and injection_reserve is 4000"#]],
    );
    assert!(agent().hook(nothing("recall").sheddable(4_000, 0)).build().is_ok());
}

#[test]
fn a_limit_that_allows_nothing_is_refused() {
    refused(limited(|limits| limits.max_model_calls = 0), expect!["ZeroLimit: max_model_calls must not be 0"]);
    refused(limited(|limits| limits.turn_timeout = Duration::ZERO), expect!["ZeroLimit: turn_timeout must not be 0"]);
    refused(
        limited(|limits| limits.approval_timeout = Duration::ZERO),
        expect!["ZeroLimit: approval_timeout must not be 0"],
    );
}

#[test]
fn limits_where_zero_means_none_may_be_zero() {
    let agent = limited(|limits| {
        (limits.max_tokens, limits.max_cost) = (0, 0.0);
        (limits.max_regenerations, limits.max_stop_refusals, limits.injection_reserve) = (0, 0, 0);
    });
    assert!(agent.build().is_ok());
}

#[test]
fn holding_the_stream_without_judging_a_reply_is_refused() {
    refused(
        agent().hook(nothing("recall").release_on_accept()),
        expect![[r#"IdleSetting: hook "recall" has release = on_accept, and implements no point that it applies to"#]],
    );
    let critic = guard("critic", |_, _| async { Ok(AfterModel::Continue) });
    assert!(agent().hook(critic.release_on_accept()).build().is_ok());
}

#[test]
fn durable_without_a_point_that_injects_for_good_is_refused() {
    refused(
        agent().hook(stop("lint", |_| async { Ok(Default::default()) }).durable()),
        expect![[r#"IdleSetting: hook "lint" has durable, and implements no point that it applies to"#]],
    );
    refused(
        agent().hook(every_call("clock").durable()),
        expect![[r#"IdleSetting: hook "clock" has durable, and implements no point that it applies to"#]],
    );
    refused(
        agent().hook(parallel([member("clock", |_| async { Ok("noon") })]).every_call().durable()),
        expect![[r#"IdleSetting: hook "parallel(clock)" has durable, and implements no point that it applies to"#]],
    );
    assert!(agent().hook(nothing("recall").durable()).build().is_ok());
}

#[test]
fn max_tokens_without_a_point_that_injects_is_refused() {
    refused(
        agent().hook(watch("guard").sheddable(10, 1)),
        expect![[r#"IdleSetting: hook "guard" has max_tokens, and implements no point that it applies to"#]],
    );
    assert!(agent().hook(every_call("clock").sheddable(10, 1)).build().is_ok());
}

#[test]
fn a_filter_by_tool_without_a_tool_point_is_refused() {
    refused(
        agent().hook(nothing("recall").for_tools(["read_*"])),
        expect![[r#"IdleSetting: hook "recall" has tools, and implements no point that it applies to"#]],
    );
}

/// A parallel hook after the model, the tools or the turn cannot be written: a group takes members, a member appends
/// content, and these two are all the points there are.
#[test]
fn a_group_stands_before_the_agent_or_before_the_model_and_nowhere_else() {
    let group = || parallel([member("clock", |_| async { Ok("noon") })]);
    let points = |entry: HookEntry| entry.points().iter().collect::<Vec<_>>();
    assert_eq!(points(group().into()), [Point::BeforeAgent]);
    assert_eq!(points(group().every_call().into()), [Point::BeforeModel]);
}
