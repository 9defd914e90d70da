//! Links that answer one call, once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::access::{ApproveRule, RoleAccess};
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::PausedClock;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_server::{AnswerLinks, Keys, Server, ServerLimits, Token, Tokens};

use crate::client::{Answer, Client, Running};
use crate::page_hostile::{HOSTILE, offences};

const BASE: &str = "https://agents.example";

/// A server with a call of ann's that waits for an approval, and what makes links for it.
struct Desk {
    running: Running,
    conversations: Conversations,
    links: AnswerLinks,
    tokens: Tokens,
    clock: PausedClock,
}

fn tokens() -> [Token; 3] {
    [
        Token::of_text("ann-secret", "ann"),
        Token::of_text("mia-secret", "mia").role("manager"),
        Token::of_text("bob-secret", "bob"),
    ]
}

async fn asking(arguments: Value, access: RoleAccess) -> (Conversations, PausedClock) {
    let schema = json!({ "type": "object", "properties": { "euro": {} } });
    let pay = function_with_schema("pay", "Pays.", schema, Effect::Never, |_, arguments: Value| async move {
        Ok(format!("paid {}", arguments["euro"]))
    });
    let script = Script::of([ScriptReply::calls("p1", "pay", arguments), ScriptReply::says("done")]);
    let agent = Agent::builder("payer", script.when_exhausted(OnExhausted::Repeat));
    let agent = agent.tool(pay).approve(["pay"]).build().unwrap();
    let clock = PausedClock::default();
    let builder = Conversations::builder(agent, MemoryStore::default()).clock(Arc::new(clock.clone())).access(access);
    let conversations = builder.build();
    let turn = conversations.send(&"c_1".into(), "pay", Scope::user("ann")).await.unwrap();
    turn.wait().await.unwrap();
    (conversations, clock)
}

impl Desk {
    async fn open(access: RoleAccess) -> Self {
        Self::with(json!({ "euro": 5 }), access, ServerLimits::default()).await
    }

    async fn with(arguments: Value, access: RoleAccess, limits: ServerLimits) -> Self {
        let (conversations, clock) = asking(arguments, access).await;
        let (keys, tokens) = (Keys::random().unwrap(), Tokens::new(tokens()));
        let builder = Server::builder(conversations.clone()).tokens(tokens.clone()).keys(keys.clone()).limits(limits);
        let running = Running::start(builder.clock(Arc::new(clock.clone())).build().unwrap()).await;
        Self { running, conversations, links: AnswerLinks::new(keys, BASE), tokens, clock }
    }

    /// The path of a link to what ann's call asks.
    async fn link(&self, user: Option<&str>) -> String {
        let view = self.conversations.snapshot(&"c_1".into(), Scope::system()).await.unwrap();
        let asked = view.pending.values().next().unwrap();
        let link = self.links.link(&"c_1".into(), asked, user).unwrap();
        link.strip_prefix(BASE).unwrap().to_owned()
    }

    fn client(&self) -> Client {
        self.running.client()
    }

    async fn approve(&self, link: &str) -> Answer {
        self.client().post(link, json!({ "approve": true })).await
    }

    async fn deny(&self, link: &str) -> Answer {
        self.client().post(link, json!({ "approve": false, "reason": "too much" })).await
    }

    async fn log(&self) -> Vec<Value> {
        let log = self.conversations.log(&"c_1".into(), Scope::user("ann")).await.unwrap();
        log.iter().map(|event| serde_json::to_value(&**event).unwrap()).collect()
    }

    async fn of_type(&self, name: &str) -> Vec<Value> {
        self.log().await.into_iter().filter(|event| event["type"] == name).collect()
    }

    /// The log, when the turn is over.
    async fn ended(&self, name: &str) -> Vec<Value> {
        while self.of_type("turn_ended").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.of_type(name).await
    }

    async fn is_open(&self) -> bool {
        self.of_type("resolution").await.is_empty()
    }
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn managers(not_requester: bool, n: u32) -> RoleAccess {
    let rule = ApproveRule { tool: "pay".into(), by: vec!["manager".into()], not_requester, n };
    RoleAccess { approve: vec![rule], ..RoleAccess::default() }
}

#[tokio::test]
async fn a_link_approves_in_its_users_name_and_the_log_says_via_link() {
    let desk = Desk::open(RoleAccess::default()).await;
    let link = desk.link(Some("ann")).await;
    let shown = desk.client().get(&link).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let view = shown.json();
    assert_eq!((&view["user"], &view["conversation"], &view["call"]), (&json!("ann"), &json!("c_1"), &json!("p1")));
    assert_eq!(view["prompt"]["arguments"], json!({ "euro": 5 }));
    let answered = desk.client().post(&link, json!({ "approve": true, "arguments": { "euro": 4 } })).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    assert!(answered.json()["turn"].is_string());
    let results = desk.ended("tool_result").await;
    assert_eq!(results[0]["content"][0]["text"], "paid 4");
    let resolution = &desk.of_type("resolution").await[0];
    assert_eq!((&resolution["by"], &resolution["via"]), (&json!({ "user": "ann" }), &json!("link")));
    assert_eq!(resolution["arguments"], json!({ "euro": 4 }));
    desk.running.stopped().await;
}

#[tokio::test]
async fn a_link_for_nobody_can_deny_and_not_approve() {
    for access in [RoleAccess::default(), managers(true, 2)] {
        let desk = Desk::open(access).await;
        let link = desk.link(None).await;
        let shown = desk.client().get(&link).await.json();
        assert_eq!((&shown["user"], &shown["prompt"]["tool"]), (&Value::Null, &json!("pay")));
        for more in [json!({ "approve": true }), json!({ "approve": true, "arguments": { "euro": 1 } })] {
            assert_eq!(desk.client().post(&link, more).await.code(), code(403, "forbidden"));
        }
        assert!(desk.is_open().await, "and the link is not used up by it");
        assert_eq!(desk.deny(&link).await.status, 200);
        assert!(desk.ended("tool_started").await.is_empty());
        let resolution = &desk.of_type("resolution").await[0];
        assert_eq!((&resolution["decision"], &resolution["via"]), (&json!("denied"), &json!("link")));
        assert_eq!((&resolution["by"], &resolution["reason"]), (&json!({ "system": "program" }), &json!("too much")));
        desk.running.stopped().await;
    }
}

#[tokio::test]
async fn a_link_works_once() {
    // Two must approve, so that the question stays open.
    let desk = Desk::open(managers(true, 2)).await;
    let link = desk.link(Some("mia")).await;
    assert_eq!(desk.approve(&link).await.status, 200);
    let void = desk.client().get("/v1/answers/AAAA").await;
    for used in [desk.approve(&link).await, desk.deny(&link).await, desk.client().get(&link).await] {
        assert_eq!(used.code(), code(404, "not_found"));
        assert_eq!(used.body, void.body);
    }
    let other = desk.link(Some("mia")).await;
    assert_eq!(desk.approve(&other).await.code(), code(409, "stale"), "the same person does not approve twice");
    assert_eq!(desk.of_type("resolution").await.len(), 1);
    desk.running.stopped().await;
}

#[tokio::test]
async fn of_many_that_use_it_at_once_one_is_taken() {
    let desk = Desk::open(RoleAccess::default()).await;
    let link = desk.link(Some("ann")).await;
    let all = (0..8).map(|_| {
        let (client, link) = (desk.client(), link.clone());
        tokio::spawn(async move { client.post(&link, json!({ "approve": true })).await.status })
    });
    let mut statuses = Vec::new();
    for one in all.collect::<Vec<_>>() {
        statuses.push(one.await.unwrap());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 404 | 409)), "{statuses:?}");
    assert_eq!(desk.ended("tool_started").await.len(), 1);
    desk.running.stopped().await;
}

#[tokio::test]
async fn a_revoked_link_is_void_and_the_call_stays_open() {
    let desk = Desk::open(RoleAccess::default()).await;
    let (link, other) = (desk.link(Some("ann")).await, desk.link(Some("ann")).await);
    let both = json!({ "revoke": true, "approve": true });
    assert_eq!(desk.client().post(&link, both).await.code(), code(400, "bad_request"));
    assert_eq!(desk.client().post(&link, json!({ "revoke": true })).await.json(), json!({ "revoked": true }));
    assert_eq!(desk.approve(&link).await.code(), code(404, "not_found"));
    assert_eq!(desk.client().post(&link, json!({ "revoke": true })).await.code(), code(404, "not_found"));
    assert!(desk.is_open().await);
    assert_eq!(desk.approve(&other).await.status, 200, "another link is another");
    desk.running.stopped().await;
}

#[tokio::test]
async fn what_was_answered_otherwise_is_stale() {
    let desk = Desk::open(RoleAccess::default()).await;
    let (anns, nobodys) = (desk.link(Some("ann")).await, desk.link(None).await);
    let ann = desk.client().bearer("ann-secret");
    assert_eq!(ann.post("/v1/conversations/c_1/calls/p1", json!({ "approve": true })).await.status, 200);
    desk.ended("turn_ended").await;
    for link in [anns, nobodys] {
        for late in [desk.client().get(&link).await, desk.approve(&link).await, desk.deny(&link).await] {
            assert_eq!(late.code(), code(409, "stale"));
        }
    }
    assert_eq!(desk.of_type("resolution").await.len(), 1);
    desk.running.stopped().await;
}

#[tokio::test]
async fn changed_arguments_are_not_what_the_link_was_made_for() {
    let desk = Desk::open(managers(true, 2)).await;
    let before = desk.link(Some("mia")).await;
    let other = json!({ "approve": true, "digest": "other" });
    assert_eq!(desk.client().post(&before, other).await.code(), code(409, "stale"));
    desk.tokens.replace(tokens().into_iter().chain([Token::of_text("max-secret", "max").role("manager")]));
    let edited = json!({ "approve": true, "arguments": { "euro": 500 } });
    let max = desk.link(Some("max")).await;
    assert_eq!(desk.client().post(&max, edited).await.status, 200);
    assert_eq!(desk.approve(&before).await.code(), code(409, "stale"));
    let after = desk.link(Some("mia")).await;
    assert_eq!(desk.client().get(&after).await.json()["prompt"]["arguments"], json!({ "euro": 500 }));
    assert_eq!(desk.approve(&after).await.status, 200);
    desk.running.stopped().await;
}

#[tokio::test]
async fn a_link_lapses_with_its_question() {
    let desk = Desk::open(RoleAccess::default()).await;
    let link = desk.link(Some("ann")).await;
    assert_eq!(desk.client().get(&link).await.status, 200);
    desk.clock.advance(Duration::from_secs(400 * 24 * 60 * 60));
    assert_eq!(desk.client().get(&link).await.code(), code(404, "not_found"));
    assert_eq!(desk.approve(&link).await.code(), code(404, "not_found"));
    assert!(desk.of_type("tool_started").await.is_empty());
    desk.running.stopped().await;
}

#[tokio::test]
async fn without_a_token_of_its_user_a_link_is_void_and_roles_are_those_of_now() {
    let desk = Desk::open(managers(false, 1)).await;
    let link = desk.link(Some("mia")).await;
    desk.tokens.replace([Token::of_text("ann-secret", "ann")]);
    let gone = desk.approve(&link).await;
    assert_eq!(gone.code(), code(404, "not_found"));
    assert_eq!(gone.body, desk.client().get("/v1/answers/AAAA").await.body);
    desk.tokens.replace([Token::of_text("new-secret", "mia")]);
    assert_eq!(desk.approve(&link).await.code(), code(404, "not_found"), "she may not even read it any more");
    assert!(desk.is_open().await);
    desk.tokens.replace([Token::of_text("a", "mia"), Token::of_text("b", "mia").role("manager")]);
    assert_eq!(desk.approve(&link).await.status, 200, "a second token has the role");
    desk.running.stopped().await;
}

#[tokio::test]
async fn a_link_counts_as_its_user_and_no_more() {
    let desk = Desk::open(managers(false, 1)).await;
    // Ann owns the conversation, and is no manager. Bob may not read it.
    let (anns, bobs) = (desk.link(Some("ann")).await, desk.link(Some("bob")).await);
    let refused = desk.approve(&anns).await;
    assert_eq!(refused.code(), code(403, "forbidden"));
    assert!(refused.body.contains("manager"), "{}", refused.body);
    assert_eq!(desk.deny(&anns).await.code(), code(403, "forbidden"));
    assert_eq!(desk.approve(&bobs).await.code(), code(404, "not_found"));
    // A bearer token beside the link adds nothing to it.
    let with_token = desk.client().bearer("mia-secret").post(&anns, json!({ "approve": true })).await;
    assert_eq!(with_token.code(), code(403, "forbidden"));
    assert!(desk.is_open().await);
    assert_eq!(desk.approve(&desk.link(Some("mia")).await).await.status, 200);
    desk.running.stopped().await;
}

#[tokio::test]
async fn no_byte_of_a_link_can_be_changed() {
    let limits = {
        let mut limits = ServerLimits::default();
        limits.burst = 100_000;
        limits
    };
    let desk = Desk::with(json!({ "euro": 5 }), RoleAccess::default(), limits).await;
    let link = desk.link(Some("ann")).await;
    let signed = link.strip_prefix("/v1/answers/").unwrap();
    let void = desk.client().get("/v1/answers/AAAA").await.body;
    for place in 0..signed.len() {
        let old = signed.as_bytes()[place];
        let other = if old == b'A' { 'B' } else { 'A' };
        let changed = format!("/v1/answers/{}{other}{}", &signed[..place], &signed[place + 1..]);
        let answer = desk.client().get(&changed).await;
        assert_eq!((answer.status, &answer.body), (404, &void), "{place}");
    }
    let foreign = AnswerLinks::new(Keys::random().unwrap(), "");
    let view = desk.conversations.snapshot(&"c_1".into(), Scope::system()).await.unwrap();
    let foreign = foreign.link(&"c_1".into(), view.pending.values().next().unwrap(), Some("ann")).unwrap();
    let long = format!("/v1/answers/{}", "A".repeat(5_000));
    for bad in [foreign, long, format!("{link}A"), format!("{link}="), "/v1/answers/%FF".to_owned()] {
        let answer = desk.approve(&bad).await;
        assert!(matches!(answer.status, 400 | 404), "{answer:?}");
    }
    assert!(desk.is_open().await);
    assert_eq!(desk.approve(&link).await.status, 200);
    desk.running.stopped().await;
}

#[tokio::test]
async fn guesses_are_limited_and_hold_nobody_up() {
    let limits = {
        let mut limits = ServerLimits::default();
        (limits.burst, limits.requests_per_second) = (3, 1);
        limits
    };
    let desk = Desk::with(json!({ "euro": 5 }), RoleAccess::default(), limits).await;
    let link = desk.link(Some("ann")).await;
    let mut last = 0;
    for _ in 0..5 {
        last = desk.client().get("/v1/answers/AAAA").await.status;
    }
    assert_eq!(last, 429);
    assert_eq!(desk.client().get(&link).await.status, 200);
    assert_eq!(desk.approve(&link).await.status, 200);
    desk.running.stopped().await;
}

#[tokio::test]
async fn without_tokens_a_link_is_the_local_users_or_nobodys() {
    let (conversations, clock) = asking(json!({ "euro": 5 }), RoleAccess::default()).await;
    let keys = Keys::random().unwrap();
    let builder = Server::builder(conversations.clone()).local_user(Scope::user("ann")).keys(keys.clone());
    let running = Running::start(builder.clock(Arc::new(clock.clone())).build().unwrap()).await;
    let desk = Desk { running, conversations, links: AnswerLinks::new(keys, BASE), tokens: Tokens::default(), clock };
    assert_eq!(desk.approve(&desk.link(Some("mia")).await).await.code(), code(404, "not_found"));
    let anns = desk.link(Some("ann")).await;
    let rebound = desk.client().with("host: evil.example").post(&anns, json!({ "approve": true })).await;
    assert_eq!(rebound.code(), code(421, "misdirected"));
    assert_eq!(desk.client().get(&desk.link(None).await).await.status, 200);
    assert_eq!(desk.approve(&anns).await.status, 200);
    desk.running.stopped().await;
}

/// A form as browsers send it.
async fn send(desk: &Desk, link: &str, fields: &[(&str, &str)]) -> Answer {
    let body: String = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let head = format!("POST {link} HTTP/1.1\r\nhost: {}\r\naccept: text/html\r\n", desk.running.address);
    let length = body.len();
    let text = format!(
        "{head}content-type: application/x-www-form-urlencoded\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    desk.client().raw(text.as_bytes()).await
}

fn value_of<'a>(page: &'a str, name: &str) -> &'a str {
    page.split_once(&format!("name=\"{name}\" value=\"")).unwrap().1.split('"').next().unwrap()
}

#[tokio::test]
async fn looking_changes_nothing_and_a_form_needs_the_page_it_was_on() {
    let desk = Desk::open(RoleAccess::default()).await;
    let link = desk.link(Some("ann")).await;
    let browser = desk.client().with("accept: text/html,application/xhtml+xml");
    for _ in 0..3 {
        assert_eq!(browser.get(&link).await.status, 200);
        assert_eq!(browser.request("HEAD", &link, None).await.status, 200);
    }
    let page = browser.get(&link).await;
    assert!(page.headers.contains("script-src 'self'") && page.headers.contains("referrer-policy: same-origin"));
    assert!(page.headers.contains("cache-control: no-store"));
    assert!(page.body.contains("May <strong>pay</strong> run?") && page.body.contains("value=\"approve\""));
    assert!(!page.body.contains("<script"), "{}", page.body);
    assert!(desk.is_open().await);
    let blind = send(&desk, &link, &[("decision", "approve")]).await;
    assert_eq!(blind.status, 403);
    let wrong = send(&desk, &link, &[("decision", "approve"), ("csrf", "AAAA")]).await;
    assert_eq!(wrong.status, 403);
    assert!(desk.is_open().await, "a form that was not on the page answers nothing");
    let token = value_of(&page.body, "csrf").to_owned();
    let bad = send(&desk, &link, &[("decision", "edit"), ("arguments", "{"), ("csrf", &token)]).await;
    assert_eq!(bad.status, 400);
    assert!(bad.body.contains("that is not JSON") && bad.body.contains("value=\"approve\""), "{}", bad.body);
    let done = send(&desk, &link, &[("decision", "deny"), ("reason", "no"), ("csrf", &token)]).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert!(done.body.contains("Denied"), "{}", done.body);
    assert_eq!(desk.ended("resolution").await[0]["via"], "link");
    let again = send(&desk, &link, &[("decision", "approve"), ("csrf", &token)]).await;
    assert_eq!(again.status, 404);
    assert!(again.headers.contains("text/html") && again.body.contains("leads nowhere"), "{again:?}");
    desk.running.stopped().await;
}

#[tokio::test]
async fn the_page_of_a_link_for_nobody_has_no_way_to_approve_and_can_revoke() {
    let desk = Desk::open(RoleAccess::default()).await;
    let link = desk.link(None).await;
    let page = desk.client().with("accept: text/html").get(&link).await.body;
    assert!(page.contains("value=\"deny\"") && !page.contains("value=\"approve\"") && !page.contains("value=\"edit\""));
    let token = value_of(&page, "csrf").to_owned();
    let forced = send(&desk, &link, &[("decision", "approve"), ("csrf", &token)]).await;
    assert_eq!(forced.status, 403);
    let revoked = send(&desk, &link, &[("decision", "revoke"), ("csrf", &token)]).await;
    assert_eq!(revoked.status, 200);
    assert!(revoked.body.contains("Revoked"));
    assert_eq!(desk.deny(&link).await.code(), code(404, "not_found"));
    assert!(desk.is_open().await);
    desk.running.stopped().await;
}

#[tokio::test]
async fn whatever_is_asked_stays_text_on_the_page_of_a_link() {
    for hostile in HOSTILE {
        let arguments = json!({ "euro": hostile, *hostile: [hostile] });
        let desk = Desk::with(arguments, RoleAccess::default(), ServerLimits::default()).await;
        for user in [Some("ann"), None] {
            let page = desk.client().with("accept: text/html").get(&desk.link(user).await).await;
            assert_eq!(page.status, 200, "{page:?}");
            assert_eq!(offences(&page.body), [""; 0], "{hostile:?}");
        }
        desk.running.stopped().await;
    }
}
