//! The page of a turn has the hooks of the agent at each point, in the words of `turnbuckle hooks`.

use std::time::Duration;

use turnbuckle::Agent;
use turnbuckle::hook::{self, BeforeTool, Decision, HookExt as _, OnFailure, OnStop, Point, Record};
use turnbuckle::models::Script;
use turnbuckle_server::page::{self, HookLine, TurnPage};

use crate::page_story::viewer;

#[test]
fn the_hooks_of_a_turn_are_shown_point_by_point_with_what_their_failure_means() {
    let stop = hook::stop("lint", async |_| Ok(OnStop::Accept)).on_failure(OnFailure::Ignore);
    let agent =
        Agent::builder("coder", Script::says(["hi"])).hook(hook::gate("gate", async |_, _| Ok(BeforeTool::Continue)));
    let agent = agent.hook(stop).build().unwrap();
    let mut lines = HookLine::of_agent(&agent);
    assert_eq!(lines[0].settings, "made by the program");
    lines[0].settings = "use = \"command\", run = [\"true\"], tools = [\"shell\"]".to_owned();
    lines[0].from = Some("turnbuckle.toml:3, accepted".to_owned());
    lines[0].handlers = vec!["PreToolUse: true".to_owned()];
    let own = Record::new(Point::BeforeTool, "gate".into(), Decision::Continue, Duration::from_millis(3));
    let (conversation, turn) = ("c_1".into(), "t_1".into());
    let records = [own.clone(), own];
    let page = TurnPage {
        conversation: &conversation,
        title: None,
        turn: &turn,
        events: &[],
        records: &records,
        hooks: &lines,
    };
    let page = page::turn(&viewer(""), &page).0;
    let (_, table) = page.split_once("<table class=\"points\">").unwrap();
    for part in [
        "<td>before_tool</td><td><strong>gate</strong></td>",
        "<code>use = &quot;command&quot;, run = [&quot;true&quot;], tools = [&quot;shell&quot;]</code>",
        "from turnbuckle.toml:3, accepted",
        "if it fails: the call ends with an error result",
        "<li>PreToolUse: true</li>",
        "<td class=\"right\">2</td><td class=\"right\">6.0 ms</td>",
        "<td>on_stop</td><td><strong>lint</strong></td>",
        "if it fails: ignored: nobody judges in its place, and the turn may end",
        "<td class=\"right\">0</td>",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
}
