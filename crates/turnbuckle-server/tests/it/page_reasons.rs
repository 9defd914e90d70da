//! Whoever is asked for an approval is told why.

use serde_json::{Value, json};
use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::models::{Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_server::{AnswerLinks, Keys, Server};

use crate::client::Running;

/// The page of what waits, and the page of a link, for a call of `pay` that waits.
async fn pages(approve: Vec<ApproveRule>) -> [String; 2] {
    let pay = function_with_schema("pay", "Pays.", json!({ "type": "object" }), Effect::Never, |_, _: Value| async {
        Ok("paid")
    });
    let script = Script::of([ScriptReply::calls("p1", "pay", json!({})), ScriptReply::says("done")]);
    let mut agent = Agent::builder("payer", script).tool(pay);
    if approve.is_empty() {
        agent = agent.approve(["pay"]);
    }
    let access = RoleAccess { approve, ..RoleAccess::default() };
    let conversations = Conversations::builder(agent.build().unwrap(), MemoryStore::default()).access(access).build();
    let boss = Scope::user("local").role("boss");
    conversations.send(&"c".into(), "pay", boss.clone()).await.unwrap().wait().await.unwrap();
    let keys = Keys::random().unwrap();
    let asked = conversations.question(&"c".into(), &"p1".into(), &boss).await.unwrap();
    let link = AnswerLinks::new(keys.clone(), "").link(&"c".into(), &asked, Some("local")).unwrap();
    let server = Server::builder(conversations).keys(keys).local_user(boss).build().unwrap();
    let running = Running::start(server).await;
    let client = running.client().with("accept: text/html");
    let pages = [client.get("/page/waiting").await.body, client.get(&link).await.body];
    running.stopped().await;
    pages
}

#[tokio::test]
async fn a_call_that_the_configuration_asks_about_says_so() {
    for page in pages(Vec::new()).await {
        assert!(page.contains("Why it is asked: the configuration asks before this tool runs."), "{page}");
    }
}

#[tokio::test]
async fn a_call_that_a_rule_of_access_asks_about_says_so() {
    let rule = ApproveRule { tool: "p*".into(), by: vec!["boss".into()], not_requester: false, n: 1 };
    for page in pages(vec![rule]).await {
        let why = "Why it is asked: a rule of <code>[access]</code> says who must approve calls of this tool.";
        assert!(page.contains(why) && page.contains("Who may answer: role boss"), "{page}");
    }
}
