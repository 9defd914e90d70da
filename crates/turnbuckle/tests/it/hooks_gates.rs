//! `approval`, `permit`, `dry_run`: no call runs that they stand before.

use serde_json::json;
use turnbuckle::hook::{Hook, HookEntry, HookExt};
use turnbuckle::hooks::approval::ApprovalRule;
use turnbuckle::hooks::permit::{DefaultDecision, PermitRule};
use turnbuckle::hooks::{Approval, DryRun, Permit};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::store::Answer;
use turnbuckle::testing::Rig;
use turnbuckle::tool::Effect;
use turnbuckle::tools::{FunctionTool, function_with_schema};
use turnbuckle::{Agent, Scope, TurnStatus};

fn shell(effect: Effect) -> FunctionTool {
    let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
    function_with_schema("shell", "Runs.", schema, effect, |_, _| async { Ok("ran") })
}

fn agent(command: &str, hook: impl Into<HookEntry>) -> Agent {
    let script =
        Script::of([ScriptReply::calls("c1", "shell", json!({"command": command})), ScriptReply::says("done")]);
    Agent::builder("a", script).tool(shell(Effect::Never)).hook(hook).build().unwrap()
}

/// What the model read as the call's result, or what a person is asked.
async fn result_of(command: &str, hook: impl Into<HookEntry>) -> String {
    let mut rig = Rig::new(agent(command, hook));
    let rest = rig.run("go").await.unwrap();
    match rest {
        TurnStatus::Waiting(pending) => format!("{:?}", pending[0].question),
        TurnStatus::Ended(_) => {
            let trace = turnbuckle::trace::trace_told(rig.told(), 1);
            trace.lines().find(|line| line.starts_with("dispatch")).unwrap_or_default().to_owned()
        }
    }
}

fn rules() -> Approval {
    Approval::new([
        ApprovalRule::allow("sh*").when("/command", "^ls( |$)"),
        ApprovalRule::deny("shell").when("/command", "sudo").explain("never as root"),
        ApprovalRule::ask("shell").when("/command", "rm").explain("{tool} deletes: {/command}, {/no/such}"),
    ])
    .unwrap()
}

#[tokio::test]
async fn the_first_rule_that_fits_decides_about_a_call() {
    assert!(result_of("ls src", rules()).await.ends_with("= ran"));
    assert!(result_of("sudo ls", rules()).await.contains("never as root"));
    assert!(result_of("rm -r x", rules()).await.contains("shell deletes: rm -r x, (nothing)"));
    assert!(result_of("cat x", rules()).await.ends_with("= ran"));
}

#[tokio::test]
async fn an_approved_call_runs_and_a_denied_one_does_not() {
    for (answer, expected) in [(Answer::Approve, "ran"), (Answer::Deny(Some("no".into())), "no")] {
        let mut rig = Rig::new(agent("rm x", rules()));
        let TurnStatus::Waiting(pending) = rig.run("go").await.unwrap() else { panic!("nobody was asked") };
        let resolved = rig.conversations.resolve(&rig.id, &pending[0].call, answer, None, Scope::local()).await;
        rig.follow(resolved.unwrap()).await.unwrap();
        let trace = turnbuckle::trace::trace_told(rig.told(), 1);
        assert!(trace.contains(expected), "{trace}");
    }
}

#[tokio::test]
async fn an_explanation_shows_the_arguments_but_not_ten_megabytes_of_them() {
    let long = "rm ".to_owned() + &"x".repeat(10_000_000);
    let asked = result_of(&long, Approval::new([ApprovalRule::ask("*").explain("{/command}")]).unwrap()).await;
    assert!(asked.contains("(10000003 bytes)"));
    let why = asked.split("why: ").nth(1).unwrap();
    assert!(why.len() < 5000, "{}", why.len());
}

#[test]
fn approval_rules_are_checked_when_built() {
    let refused = |rule: ApprovalRule| Approval::new([rule]).unwrap_err().to_string();
    assert!(refused(ApprovalRule::ask("*").when("command", "x")).contains("begins with `/`"));
    assert!(refused(ApprovalRule::ask("*").when("/command", "(")).contains("not a pattern"));
    assert!(refused(ApprovalRule::ask("*").explain("{tol}")).contains("{tool}"));
    assert!(Approval::new([]).is_err());
}

/// Whether a user with these roles gets the call through.
async fn permitted(permit: &Permit, roles: &[&str]) -> bool {
    let rig = Rig::new(agent("ls", permit.clone()));
    let scope = roles.iter().fold(Scope::user("ann"), |scope, role| scope.role(*role));
    let ended = rig.conversations.run("go", scope).await.unwrap();
    let log = rig.conversations.log(&ended.conversation, Scope::user("ann")).await.unwrap();
    let text = format!("{log:?}");
    assert!(text.contains("ran") || text.contains("shell is not permitted for user ann"), "{text}");
    text.contains("\"ran\"")
}

#[tokio::test]
async fn tools_are_permitted_by_role_and_denial_wins() {
    let permit = Permit::new([
        PermitRule::everyone().allow(["read_*"]),
        PermitRule::role("editor").allow(["sh*"]),
        PermitRule::role("guest").deny(["*"]),
    ])
    .unwrap();
    assert!(!permitted(&permit, &[]).await);
    assert!(permitted(&permit, &["editor"]).await);
    assert!(!permitted(&permit, &["editor", "guest"]).await);
    let open = Permit::new([PermitRule::role("guest").deny(["read_*"])]).unwrap().otherwise(DefaultDecision::Allow);
    assert!(permitted(&open, &["guest"]).await);
    assert!(Permit::new([PermitRule::role("idle")]).is_err() && Permit::new([]).is_err());
}

#[tokio::test]
async fn a_dry_run_answers_with_what_would_run_and_lets_the_agent_look_around() {
    let dry = result_of("rm x", DryRun::default()).await;
    assert!(dry.contains("nothing was done] shell would run with {\"command\":\"rm x\"}"), "{dry}");
    let pure = |hook: DryRun| async {
        let script = Script::of([ScriptReply::calls("c1", "shell", json!({})), ScriptReply::says("done")]);
        let agent = Agent::builder("a", script).tool(shell(Effect::Pure)).hook(hook.named("dry"));
        Rig::new(agent.build().unwrap()).trace("go").await
    };
    assert!(pure(DryRun::default()).await.contains("= ran"));
    assert!(pure(DryRun::default().pure()).await.contains("[dry run"));
    assert_eq!(Hook::name(&DryRun::default()), "dry_run");
}
