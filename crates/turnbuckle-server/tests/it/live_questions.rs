//! Questions that are asked while a call runs: seen, answered and withdrawn like those that are stored, by the same people.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use turnbuckle::access::RoleAccess;
use turnbuckle::clock::Timestamp;
use turnbuckle::models::Script;
use turnbuckle::scope::Author;
use turnbuckle::stores::MemoryStore;
use turnbuckle::{Agent, Conversations, Scope};
use turnbuckle_server::{ClientIds, LiveAnswer, LiveQuestion, LiveQuestions, Server, Token, Tokens};

use crate::client::{Answer, Client, Events, PATIENCE, Running};

/// A server with ann's conversation `c`, the questions that can stand in it, and people: `boss` answers for others, `sue` reads,
/// and `eve` may nothing.
struct Desk {
    running: Running,
    questions: LiveQuestions,
}

impl Desk {
    async fn new() -> Self {
        let agent = Agent::builder("a", Script::says(["hello"])).build().unwrap();
        let access =
            RoleAccess { read: vec!["support".into()], answer: vec!["manager".into()], ..RoleAccess::default() };
        let conversations = Conversations::builder(agent, MemoryStore::default()).access(access).build();
        let turn = conversations.send(&"c".into(), "hi", Scope::user("ann")).await.unwrap();
        turn.wait().await.unwrap();
        let tokens = Tokens::new([
            Token::of_text("ann-secret", "ann"),
            Token::of_text("boss-secret", "boss").role("manager"),
            Token::of_text("sue-secret", "sue").role("support"),
            Token::of_text("eve-secret", "eve"),
        ]);
        let questions = LiveQuestions::default();
        let server = Server::builder(conversations).tokens(tokens).client_ids(ClientIds::Allowed);
        let server = server.live_questions(questions.clone()).build().unwrap();
        Self { running: Running::start(server).await, questions }
    }

    fn who(&self, user: &str) -> Client {
        self.running.client().bearer(&format!("{user}-secret"))
    }

    /// What ann is told from now on.
    async fn watch(&self) -> Events {
        let ann = self.who("ann");
        let view = ann.get("/v1/conversations/c").await.json();
        ann.events("c", view["cursor"].as_str()).await
    }

    /// As a tool asks whose call runs in this conversation.
    fn ask_in(&self, conversation: &str) -> JoinHandle<Option<LiveAnswer>> {
        tokio::spawn(self.questions.ask(LiveQuestion {
            conversation: conversation.into(),
            call: "c7".into(),
            tool: "mcp__time__set".into(),
            agent: "a".into(),
            requester: Author::User("ann".into()),
            asker: "the MCP server time".into(),
            question: "Which colour?".into(),
            schema: json!({ "type": "object", "properties": { "p": { "type": "string" } }, "required": ["p"] }),
            expires: Timestamp::from_millis(4_000_000_000_000),
        }))
    }

    /// The id under which the only question stands.
    async fn asked(&self) -> String {
        let pending = self.pending("ann").await;
        pending[0]["call"].as_str().unwrap_or_else(|| panic!("nothing is asked: {pending}")).to_owned()
    }

    async fn pending(&self, user: &str) -> Value {
        self.who(user).get("/v1/pending").await.json()["pending"].clone()
    }

    async fn answer(&self, user: &str, call: &str, body: Value) -> Answer {
        self.who(user).post(&format!("/v1/conversations/c/calls/{call}"), body).await
    }
}

async fn answered(asking: JoinHandle<Option<LiveAnswer>>) -> Option<LiveAnswer> {
    timeout(PATIENCE, asking).await.expect("an answer").unwrap()
}

/// The payload of the next progress of a tool.
async fn progress(events: &mut Events) -> Value {
    loop {
        let told = events.next().await.expect("an event");
        if told.event == "tool_progress" {
            assert_eq!((&told.data["call"], &told.data["plane"]), (&json!("c7"), &json!("live")));
            return told.data["payload"].clone();
        }
    }
}

#[tokio::test]
async fn a_live_question_stands_in_every_list_until_the_first_of_two_answers() {
    let desk = Desk::new().await;
    let mut events = desk.watch().await;
    let asking = desk.ask_in("c");
    let told = progress(&mut events).await;
    let listed = desk.pending("ann").await[0].clone();
    let call = listed["call"].as_str().unwrap().to_owned();
    assert!(call.starts_with("live-") && call.len() > 30, "{call}");
    let expected = json!({ "kind": "elicitation", "live": { "call": "c7", "tool": "mcp__time__set", "asker": "the MCP server time" } });
    for shown in [&listed, &told["asked"], &desk.who("ann").get("/v1/conversations/c").await.json()["pending"][0]] {
        assert_eq!((&shown["call"], &shown["kind"]), (&json!(call), &expected["kind"]), "{shown}");
        assert_eq!(shown["live"], expected["live"], "{shown}");
        assert_eq!(shown["prompt"]["question"], "Which colour?");
        assert_eq!(shown["prompt"]["schema"]["required"], json!(["p"]));
        assert!(shown["expires"].as_str().unwrap().starts_with("2096-"), "{shown}");
    }
    assert_eq!((&listed["conversation"], &listed["agent"]), (&json!("c"), &json!("a")));
    assert_eq!(listed["requester"], json!({ "user": "ann" }));
    for (filter, count) in
        [("tool=mcp__time__*", 1), ("tool=shell", 0), ("agent=a", 1), ("agent=b", 0), ("older=1h", 0)]
    {
        let found = desk.who("ann").get(&format!("/v1/pending?{filter}")).await.json()["pending"].clone();
        assert_eq!(found.as_array().unwrap().len(), count, "{filter}: {found}");
    }
    let (blue, red) = (json!({ "answer": { "p": "blue" } }), json!({ "answer": { "p": "red" } }));
    let (first, second) = tokio::join!(desk.answer("ann", &call, blue), desk.answer("boss", &call, red));
    let mut statuses = [first.status, second.status];
    let given = if first.status == 200 { "blue" } else { "red" };
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{first:?} {second:?}");
    let (won, late) = if first.status == 200 { (&first, &second) } else { (&second, &first) };
    assert!(won.json()["turn"].is_string() && late.code().1 == "stale");
    assert_eq!(answered(asking).await, Some(LiveAnswer::Given(json!({ "p": given }))));
    assert_eq!(progress(&mut events).await, json!({ "closed": call }));
    assert_eq!(desk.pending("ann").await, json!([]));
    assert_eq!(desk.who("ann").get("/v1/conversations/c").await.json()["pending"], json!([]));
    // It is in no log.
    assert!(!desk.who("ann").get("/v1/conversations/c/history").await.body.contains("colour"));
    desk.running.stopped().await;
}

#[tokio::test]
async fn whoever_may_not_answer_does_not_and_learns_no_more_than_they_may_read() {
    let desk = Desk::new().await;
    let asking = desk.ask_in("c");
    let call = desk.asked().await;
    let yes = json!({ "answer": { "p": "blue" } });
    assert_eq!(desk.answer("sue", &call, yes.clone()).await.code(), (403, "forbidden".to_owned()));
    assert_eq!(desk.answer("eve", &call, yes.clone()).await.code(), (404, "not_found".to_owned()));
    assert_eq!((desk.pending("sue").await, desk.pending("eve").await), (json!([]), json!([])));
    // Sue may read the conversation, and so the question.
    assert_eq!(desk.who("sue").get("/v1/conversations/c").await.json()["pending"][0]["call"], json!(call));
    // It is a question of its conversation alone.
    let other = desk.who("eve").post("/v1/conversations", json!({ "id": "e" })).await;
    assert_eq!(other.status, 201);
    assert_eq!(desk.who("eve").post(&format!("/v1/conversations/e/calls/{call}"), yes).await.code().1, "stale");
    assert_eq!(desk.answer("boss", &call, json!({ "approve": false })).await.status, 200);
    assert_eq!(answered(asking).await, Some(LiveAnswer::Declined));
    desk.running.stopped().await;
}

#[tokio::test]
async fn an_answer_that_means_nothing_is_refused_and_the_question_stands() {
    let desk = Desk::new().await;
    let asking = desk.ask_in("c");
    let call = desk.asked().await;
    for (body, code) in [
        (json!({ "answer": { "p": 7 } }), "bad_request"),
        (json!({ "answer": {} }), "bad_request"),
        (json!({ "approve": true }), "bad_request"),
        (json!({ "approve": true, "arguments": {} }), "bad_request"),
        (json!({ "approve": false, "reason": "no" }), "bad_request"),
        (json!({ "error": "no" }), "bad_request"),
        (json!({ "approve": false, "digest": "d" }), "stale"),
        (json!({ "answer": { "p": "x".repeat(1 << 20) } }), "too_large"),
    ] {
        assert_eq!(desk.answer("ann", &call, body.clone()).await.code().1, code, "{body:.80}");
    }
    assert_eq!(desk.asked().await, call);
    assert_eq!(desk.answer("ann", &call, json!({ "answer": { "p": "blue" } })).await.status, 200);
    assert!(answered(asking).await.is_some());
    desk.running.stopped().await;
}

#[tokio::test]
async fn when_nobody_waits_for_the_answer_any_more_the_question_is_gone() {
    let desk = Desk::new().await;
    let mut events = desk.watch().await;
    let asking = desk.ask_in("c");
    let call = progress(&mut events).await["asked"]["call"].as_str().unwrap().to_owned();
    asking.abort();
    assert_eq!(progress(&mut events).await, json!({ "closed": call }));
    assert_eq!(desk.pending("ann").await, json!([]));
    assert_eq!(desk.answer("ann", &call, json!({ "approve": false })).await.code().1, "stale");
    desk.running.stopped().await;
}

#[tokio::test]
async fn a_viewer_that_comes_back_is_told_what_it_missed() {
    let desk = Desk::new().await;
    let cursor = desk.who("ann").get("/v1/conversations/c").await.json()["cursor"].as_str().unwrap().to_owned();
    let asking = desk.ask_in("c");
    let mut events = desk.who("ann").events("c", Some(&cursor)).await;
    let call = progress(&mut events).await["asked"]["call"].as_str().unwrap().to_owned();
    let seen = events.last_id.clone().unwrap();
    drop(events);
    assert_eq!(desk.answer("ann", &call, json!({ "approve": false })).await.status, 200);
    let mut events = desk.who("ann").events("c", Some(&seen)).await;
    // It may be told again that the question stood.
    let mut told = progress(&mut events).await;
    if told["asked"]["call"] == json!(call) {
        told = progress(&mut events).await;
    }
    assert_eq!(told, json!({ "closed": call }));
    assert_eq!(answered(asking).await, Some(LiveAnswer::Declined));
    desk.running.stopped().await;
}

#[tokio::test]
async fn what_a_sub_agents_tool_asks_stands_in_the_conversation_of_the_main_agent() {
    let desk = Desk::new().await;
    let asking = desk.ask_in("c/call-1/call-2");
    let listed = desk.pending("ann").await[0].clone();
    assert_eq!((&listed["conversation"], &listed["live"]["call"]), (&json!("c"), &json!("call-1")), "{listed}");
    let call = listed["call"].as_str().unwrap();
    assert_eq!(desk.answer("ann", call, json!({ "answer": { "p": "blue" } })).await.status, 200);
    assert!(answered(asking).await.is_some());
    desk.running.stopped().await;
}

#[tokio::test]
async fn only_so_many_are_asked_and_none_while_the_server_shuts_down() {
    let desk = Desk::new().await;
    let asking: Vec<_> = (0..16).map(|_| desk.ask_in("c")).collect();
    while desk.pending("ann").await.as_array().unwrap().len() < 16 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(answered(desk.ask_in("c")).await, None, "one too many here");
    let other = desk.ask_in("d");
    let questions = desk.questions.clone();
    desk.running.stopped().await;
    for asking in asking.into_iter().chain([other]) {
        assert_eq!(answered(asking).await, None, "a call must not wait for what nobody can answer");
    }
    let desk = Desk { questions, ..Desk::new().await };
    assert_eq!(answered(desk.ask_in("c")).await, None);
    desk.running.stopped().await;
}

/// Logs in, and is a browser from then on, with the token for its forms.
async fn browser(desk: &Desk, user: &str) -> (Client, String) {
    let client = desk.running.client();
    let token = client.get("/login").await.field("csrf");
    let answer = client.form("/login", &[("csrf", &token), ("token", &format!("{user}-secret"))]).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let client = client.with(&format!("cookie: {}", answer.cookie()));
    let page = client.get("/page/c/c").await;
    let (_, rest) = page.body.split_once("name=\"csrf\" content=\"").unwrap();
    (client, rest.split_once('"').unwrap().0.to_owned())
}

#[tokio::test]
async fn on_the_page_it_has_a_form_for_those_who_may_answer() {
    let desk = Desk::new().await;
    let (ann, token) = browser(&desk, "ann").await;
    let (sue, _) = browser(&desk, "sue").await;
    let page = ann.get("/page/c/c").await;
    let stream = page.body.split_once("data-events=\"").unwrap().1.split_once('"').unwrap().0.to_owned();
    let asking = desk.ask_in("c");
    let (for_ann, for_sue) =
        tokio::join!(ann.text_of_stream(&stream, "Which colour?"), sue.text_of_stream(&stream, "Which colour?"));
    assert!(for_ann.contains("data-in=\"asked\"") && for_sue.contains("data-in=\"asked\""), "{for_ann}");
    let call = desk.asked().await;
    let page = ann.get("/page/c/c").await;
    let shown = page.body.split_once("id=\"asked\"").unwrap().1.split_once("</section>").unwrap().0.to_owned();
    assert!(shown.contains("the MCP server time asks, while its tool <strong>mcp__time__set</strong> runs"), "{shown}");
    assert!(shown.contains("name=\"f0\"") && shown.contains(&format!("value=\"{call}\"")), "{shown}");
    let waiting = ann.get("/page/waiting").await;
    assert!(waiting.body.contains("Which colour?") && waiting.body.contains("name=\"f0\""), "{}", waiting.body);
    assert!(waiting.body.contains("id=\"waiting-count\">1<"), "{}", waiting.body);
    assert!(ann.get("/").await.body.contains("you"), "the list says for whom it waits");
    let read_only = sue.get("/page/c/c").await.body;
    assert!(read_only.contains("Which colour?") && read_only.contains("You may not answer this."), "{read_only}");
    assert!(!read_only.contains(&format!("value=\"{call}\"")), "{read_only}");
    let send = |fields: Vec<(&'static str, &'static str)>| {
        let (ann, token, call) = (ann.clone(), token.clone(), call.clone());
        async move {
            let fields: Vec<_> = [("csrf", &*token), ("call", &*call)].into_iter().chain(fields).collect();
            ann.form("/page/c/c/answer", &fields).await
        }
    };
    let missing = send(vec![("decision", "answer")]).await;
    assert_eq!(missing.status, 400);
    assert!(missing.body.contains("p is needed"), "{}", missing.body);
    assert_eq!(send(vec![("decision", "answer"), ("f0", "blue")]).await.status, 303);
    assert_eq!(answered(asking).await, Some(LiveAnswer::Given(json!({ "p": "blue" }))));
    assert_eq!(send(vec![("decision", "deny")]).await.status, 409);
    assert!(!ann.get("/page/c/c").await.body.contains("Which colour?"));
    desk.running.stopped().await;
}
