//! The page as browsers ask for it: who sees what, forms with and without the script, sessions, and the stream.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use turnbuckle::access::RoleAccess;
use turnbuckle::models::{OnExhausted, Script, ScriptReply};
use turnbuckle::stores::MemoryStore;
use turnbuckle::testing::PausedClock;
use turnbuckle::tool::Effect;
use turnbuckle::tools::function_with_schema;
use turnbuckle::{Agent, Conversations};
use turnbuckle_server::{ClientIds, Keys, Server, Token, Tokens};

use crate::client::{Answer, Client, Running};

fn agent() -> Agent {
    let write =
        function_with_schema("write", "Writes.", json!({ "type": "object" }), Effect::Never, |_, _: Value| async {
            Ok("written")
        });
    let replies = [
        ScriptReply::says("Hello **there**"),
        ScriptReply::says("I write.").and_calls("c1", "write", json!({ "path": "a.txt" })),
        ScriptReply::says("Written."),
    ];
    Agent::builder("a", Script::of(replies)).tool(write.requires_approval()).build().unwrap()
}

fn tokens() -> Tokens {
    Tokens::new([
        Token::of_text("ann-secret", "ann"),
        Token::of_text("bob-secret", "bob"),
        Token::of_text("sue-secret", "sue").role("support"),
    ])
}

async fn local() -> Running {
    Running::start(Server::builder(Conversations::in_memory(agent())).build().unwrap()).await
}

async fn with_tokens(tokens: Tokens, keys: Keys) -> Running {
    let access = RoleAccess { read: vec!["support".into()], ..RoleAccess::default() };
    let conversations = Conversations::builder(agent(), MemoryStore::default()).access(access).build();
    let server = Server::builder(conversations).tokens(tokens).keys(keys).client_ids(ClientIds::Allowed);
    Running::start(server.build().unwrap()).await
}

/// The token for forms, as a page has it.
fn csrf(page: &Answer) -> String {
    let (_, rest) = page.body.split_once("name=\"csrf\" content=\"").unwrap_or_else(|| panic!("no token: {page:?}"));
    rest.split_once('"').unwrap().0.to_owned()
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Logs in, and is a browser from then on.
async fn logged_in(running: &Running, token: &str) -> Client {
    let client = running.client();
    let page = client.get("/login").await;
    let answer = client.form("/login", &[("csrf", &csrf(&page)), ("token", token)]).await;
    assert_eq!((answer.status, header(&answer, "location")), (303, Some("/")), "{answer:?}");
    let cookie = answer.cookie();
    for part in ["httponly", "samesite=strict", "path=/"] {
        assert!(answer.headers.contains(part), "{part}: {answer:?}");
    }
    client.with(&format!("cookie: {cookie}"))
}

#[tokio::test]
async fn without_tokens_the_page_is_there_and_forms_work_without_a_script() {
    let running = local().await;
    let client = running.client();
    let list = client.get("/").await;
    assert_eq!(list.status, 200);
    assert!(header(&list, "content-security-policy").unwrap().contains("script-src 'self'"), "{list:?}");
    // With `no-referrer`, browsers would send the page's forms with the origin `null`.
    assert_eq!(header(&list, "referrer-policy"), Some("same-origin"));
    assert!(!list.body.contains("name=\"referrer\""), "{}", list.body);
    let token = csrf(&list);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    assert_eq!(begun.status, 303);
    let sent = client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", "hi\r\nyou")]).await;
    assert_eq!((sent.status, header(&sent, "location")), (303, Some(&*path)));
    let page = client.until(&path, "Turn completed").await;
    assert!(page.body.contains("<strong>there</strong>") && page.body.contains("hi\nyou"), "{}", page.body);
    let empty = client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", " ")]).await;
    assert_eq!(empty.status, 400);
    assert!(empty.body.contains("role=\"alert\""), "the page says what went wrong: {}", empty.body);
    for asset in turnbuckle_server::page::assets() {
        let file = client.get(&asset.path).await;
        assert_eq!((file.status, file.body.as_str()), (200, asset.content));
        assert!(header(&file, "cache-control").unwrap().contains("immutable"));
    }
    running.stopped().await;
}

#[tokio::test]
async fn a_form_without_its_token_or_from_another_site_changes_nothing() {
    let running = local().await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    for fields in [&[][..], &[("csrf", "")], &[("csrf", "guessed")], &[("other", &*token)]] {
        assert_eq!(client.form("/page/c", fields).await.status, 403, "{fields:?}");
    }
    let right = [("csrf", &*token)];
    for foreign in ["origin: http://evil.example", "origin: null", "sec-fetch-site: cross-site", "host: evil.example"] {
        let answer = client.with(foreign).form("/page/c", &right).await;
        assert!([403, 421].contains(&answer.status), "{foreign}: {answer:?}");
    }
    let json = client.with(&format!("x-csrf-token: {token}")).post("/page/c", json!({})).await;
    assert_eq!(json.status, 400, "only forms are taken");
    assert!(client.get("/").await.body.contains("There are no conversations yet"));
    assert_eq!(client.form("/page/c", &right).await.status, 303);
    running.stopped().await;
}

#[tokio::test]
async fn a_question_is_answered_with_a_form_once() {
    let running = local().await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    for text in ["hi", "write it"] {
        client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", text)]).await;
        client.until(&path, if text == "hi" { "Turn completed" } else { "May " }).await;
    }
    let waiting = client.get("/page/waiting").await;
    assert!(
        waiting.body.contains("Approval of") && waiting.body.contains("id=\"waiting-count\">1<"),
        "{}",
        waiting.body
    );
    let digest = waiting.field("digest");
    let answer = |digest: String| {
        let (client, token, path) = (client.clone(), token.clone(), format!("{path}/answer"));
        async move {
            let fields = [("csrf", &*token), ("call", "c1"), ("digest", &*digest), ("decision", "approve")];
            client.with("accept: application/json").form(&path, &fields).await
        }
    };
    assert_eq!(answer("0000".into()).await.code(), (409, "stale".to_owned()));
    assert_eq!(answer(digest.clone()).await.status, 204);
    assert_eq!(answer(digest).await.status, 409);
    let page = client.until(&path, "Written.").await;
    assert!(page.body.contains("local"), "who approved is named: {}", page.body);
    running.stopped().await;
}

#[tokio::test]
async fn with_tokens_a_person_logs_in_and_out_and_a_copied_cookie_ends_with_the_session() {
    let running = with_tokens(tokens(), Keys::random().unwrap()).await;
    let stranger = running.client();
    let answer = stranger.get("/").await;
    assert_eq!((answer.status, header(&answer, "location")), (303, Some("/login")));
    let page = stranger.get("/login").await;
    let wrong = stranger.form("/login", &[("csrf", &csrf(&page)), ("token", "guess")]).await;
    assert_eq!(wrong.status, 401);
    assert!(!wrong.headers.contains("set-cookie") && !wrong.body.contains("guess"), "{wrong:?}");
    let unsigned = stranger.form("/login", &[("token", "ann-secret")]).await;
    assert_eq!(unsigned.status, 403, "also the login has a token in its form");
    let ann = logged_in(&running, "ann-secret").await;
    let list = ann.get("/").await;
    assert!(list.status == 200 && list.body.contains("ann"));
    assert_eq!(ann.get("/v1/conversations").await.status, 401, "the API takes bearer tokens alone");
    let out = ann.form("/logout", &[("csrf", &csrf(&list))]).await;
    assert_eq!((out.status, header(&out, "location")), (303, Some("/login")));
    assert_eq!(ann.get("/").await.status, 303, "the cookie is worth nothing any more");
    running.stopped().await;
}

#[tokio::test]
async fn a_session_ends_with_its_token_and_outlives_the_process_that_began_it() {
    let folder = tempfile::tempdir().unwrap();
    let known = tokens();
    let running = with_tokens(known.clone(), Keys::in_folder(folder.path()).unwrap()).await;
    let ann = logged_in(&running, "ann-secret").await;
    running.stopped().await;
    let running = with_tokens(known.clone(), Keys::in_folder(folder.path()).unwrap()).await;
    let ann = ann.at(running.address);
    assert_eq!(ann.get("/").await.status, 200);
    known.replace([Token::of_text("bob-secret", "bob")]);
    assert_eq!(ann.get("/").await.status, 303);
    running.stopped().await;
}

#[tokio::test]
async fn a_session_whose_token_was_removed_stays_over_when_the_token_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let (known, clock) = (tokens(), PausedClock::default());
    let serving = async || {
        let server = Server::builder(Conversations::in_memory(agent())).tokens(known.clone());
        let server = server.keys(Keys::in_folder(folder.path()).unwrap()).clock(Arc::new(clock.clone()));
        Running::start(server.build().unwrap()).await
    };
    let all = || ["ann", "bob"].map(|user| Token::of_text(&format!("{user}-secret"), user));
    let running = serving().await;
    let (ann, bob) = (logged_in(&running, "ann-secret").await, logged_in(&running, "bob-secret").await);
    known.replace([Token::of_text("bob-secret", "bob").role("support")]);
    known.replace(all());
    assert_eq!(ann.get("/").await.status, 303);
    assert_eq!(bob.get("/").await.status, 200, "another role is no other token");
    clock.advance(Duration::from_secs(1));
    let again = logged_in(&running, "ann-secret").await;
    assert_eq!(again.get("/").await.status, 200);
    known.replace([Token::of_text("ann-secret", "eve"), Token::of_text("bob-secret", "bob")]);
    assert_eq!(again.get("/").await.status, 303, "nobody becomes another user by a cookie");
    known.replace(all());
    running.stopped().await;
    let running = serving().await;
    assert_eq!(ann.at(running.address).get("/").await.status, 303, "nor does a restart bring it back");
    assert_eq!(bob.at(running.address).get("/").await.status, 200);
    running.stopped().await;
}

#[tokio::test]
async fn what_somebody_may_not_read_does_not_exist_on_the_page_and_who_may_only_read_has_no_forms() {
    let running = with_tokens(tokens(), Keys::random().unwrap()).await;
    let (ann, bob) = (logged_in(&running, "ann-secret").await, logged_in(&running, "bob-secret").await);
    let sue = logged_in(&running, "sue-secret").await;
    let token = csrf(&ann.get("/").await);
    let begun = ann.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    assert_eq!(ann.get(&path).await.status, 200);
    let (hidden, missing) = (bob.get(&path).await, bob.get("/page/c/nothing").await);
    assert_eq!((hidden.status, hidden.body), (missing.status, missing.body));
    let bobs = csrf(&bob.get("/").await);
    for what in ["messages", "cancel", "title", "delete", "answer", "queue"] {
        let fields =
            [("csrf", &*bobs), ("content", "x"), ("title", "x"), ("confirm", path.trim_start_matches("/page/c/"))];
        assert_eq!(bob.form(&format!("{path}/{what}"), &fields).await.status, 404, "{what}");
    }
    assert_eq!(bob.form(&format!("{path}/messages"), &[("csrf", &token), ("content", "x")]).await.status, 403);
    let read = sue.get(&path).await;
    assert!(read.status == 200 && !read.body.contains("id=\"composer\""), "{}", read.body);
    let sues = csrf(&read);
    assert_eq!(sue.form(&format!("{path}/messages"), &[("csrf", &sues), ("content", "x")]).await.status, 403);
    running.stopped().await;
}

#[tokio::test]
async fn the_stream_of_a_page_brings_pieces_that_go_on_where_the_page_was_rendered() {
    let running = local().await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    let page = client.get(&path).await;
    let (_, rest) = page.body.split_once("data-events=\"").unwrap();
    let stream = rest.split_once('"').unwrap().0.replace("&amp;", "&");
    // What happens between the page and its stream is not lost.
    client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", "hi")]).await;
    client.until(&path, "Turn completed").await;
    let told = client.text_of_stream(&stream, "Turn completed").await;
    assert!(
        told.contains("event: patch") && told.contains("id=\"m-1\"") && told.contains("<strong>there</strong>"),
        "{told}"
    );
    let last = told.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();
    let again = client.with(&format!("last-event-id: {last}"));
    client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", "write it")]).await;
    let told = again.text_of_stream(&stream, "name=\"decision\"").await;
    assert!(!told.contains("id=\"m-1\""), "nothing is sent twice: {told}");
    let gone = client.with("last-event-id: 7-7").text_of_stream(&stream, "event: lagged").await;
    assert!(gone.contains("event: lagged"));
    running.stopped().await;
}

#[tokio::test]
async fn a_form_for_a_message_that_is_sent_twice_is_one_message() {
    let running = local().await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    let key = client.get(&path).await.field("key");
    let send = async |text: &str| {
        let fields = [("csrf", &*token), ("key", &*key), ("content", text)];
        client.form(&format!("{path}/messages"), &fields).await.status
    };
    assert_eq!(send("hi").await, 303);
    client.until(&path, "Turn completed").await;
    assert_eq!(send("hi").await, 303);
    // Somebody who went back to the page has the same form, and says something else.
    assert_eq!(send("write it").await, 303);
    let page = client.until(&path, "May ").await;
    assert_eq!(page.body.matches("class=\"msg user\"").count(), 2, "{}", page.body);
    assert_ne!(page.field("key"), key);
    running.stopped().await;
}

#[tokio::test]
async fn the_stream_of_a_page_says_how_many_questions_wait_for_its_viewer() {
    let running = local().await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    for text in ["hi", "write it"] {
        client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", text)]).await;
        client.until(&path, if text == "hi" { "Turn completed" } else { "May " }).await;
    }
    let stream = format!("{path}/events");
    let told = client.text_of_stream(&stream, "waiting-count").await;
    assert!(told.contains("id=\"waiting-count\">1</span>"), "{told}");
    running.stopped().await;
}

#[tokio::test]
async fn a_busy_conversation_is_not_deleted_and_the_question_is_asked_again() {
    let slow = json!({ "replies": [{ "chunks": ["a", "b"], "delay_ms": 60_000 }] }).to_string();
    let agent = Agent::builder("slow", Script::from_json(&slow).unwrap()).build().unwrap();
    let running = Running::start(Server::builder(Conversations::in_memory(agent)).build().unwrap()).await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    client.form(&format!("{path}/messages"), &[("csrf", &token), ("content", "hi")]).await;
    client.until(&path, "id=\"m-1\"").await;
    let fields = [("csrf", &*token), ("confirm", path.trim_start_matches("/page/c/"))];
    let answer = client.form(&format!("{path}/delete"), &fields).await;
    assert_eq!(answer.status, 409);
    assert!(
        answer.body.contains("Cancel it first") && answer.body.contains("Delete this conversation?"),
        "{}",
        answer.body
    );
    assert!(!answer.body.contains("data-events"), "{}", answer.body);
    running.stopped().await;
}

#[tokio::test]
async fn a_conversation_without_a_title_is_listed_by_its_first_words_to_its_owner_alone() {
    let running = with_tokens(tokens(), Keys::random().unwrap()).await;
    let (ann, sue) = (logged_in(&running, "ann-secret").await, logged_in(&running, "sue-secret").await);
    let token = csrf(&ann.get("/").await);
    let begun = ann.form("/page/c", &[("csrf", &token)]).await;
    let path = header(&begun, "location").unwrap().to_owned();
    ann.form(&format!("{path}/messages"), &[("csrf", &token), ("content", "What is  the\nplan?")]).await;
    ann.until(&path, "Turn completed").await;
    assert!(ann.get("/").await.body.contains(">What is the plan?</a>"));
    let list = sue.get("/").await.body;
    assert!(list.contains(&*path) && !list.contains("the plan"), "a list does not show what others said: {list}");
    assert!(ann.get("/?q=THE+plan").await.body.contains(&*path), "it is found by what it is called");
    assert!(ann.get("/?q=other").await.body.contains("Nothing matches."));
    assert!(!sue.get("/?q=plan").await.body.contains(&*path), "and tells others nothing about what was said");
    running.stopped().await;
}

#[tokio::test]
async fn a_person_is_told_by_a_page_that_nothing_is_there_and_a_program_by_json() {
    let running = local().await;
    let client = running.client();
    let page = client.with("accept: text/html,*/*;q=0.8").get("/nothing").await;
    assert_eq!(page.status, 404);
    assert!(header(&page, "content-type").unwrap().starts_with("text/html"), "{page:?}");
    assert!(page.body.contains("there is nothing here"), "{page:?}");
    assert_eq!(header(&page, "x-dns-prefetch-control"), Some("off"));
    assert_eq!(client.get("/nothing").await.code(), (404, "not_found".to_owned()));
    let person = client.with("accept: text/html,*/*;q=0.8");
    for (path, status) in [
        ("/page/c/a%2fb", 404),
        ("/page/c/%2e%2e", 404),
        ("/page/c/%ff", 400),
        ("/page/c/a%2fb/delete", 404),
        ("/page/c/c/turns/%00", 404),
        ("/?q=one&q=two", 400),
    ] {
        let page = person.get(path).await;
        assert_eq!(page.status, status, "{path}");
        assert!(header(&page, "content-type").unwrap().starts_with("text/html"), "{path}: {page:?}");
        assert!(client.with("accept: application/json").get(path).await.json()["error"]["code"].is_string());
    }
    running.stopped().await;
}

#[tokio::test]
async fn messages_that_wait_are_shown_and_taken_back() {
    let slow = json!({ "replies": [{ "chunks": ["a", "b"], "delay_ms": 60_000 }, { "text": "second" }] }).to_string();
    let agent = Agent::builder("slow", Script::from_json(&slow).unwrap()).build().unwrap();
    let running = Running::start(Server::builder(Conversations::in_memory(agent)).build().unwrap()).await;
    let client = running.client();
    let token = csrf(&client.get("/").await);
    let begun = client.form("/page/c", &[("csrf", &token)]).await;
    let path = Arc::<str>::from(header(&begun, "location").unwrap());
    let send = |text: &'static str| {
        let (client, token, path) = (client.clone(), token.clone(), format!("{path}/messages"));
        async move { client.form(&path, &[("csrf", &token), ("content", text)]).await }
    };
    send("first").await;
    client.until(&path, "id=\"m-1\"").await;
    send("the second one").await;
    let page = client.until(&path, "Take back").await;
    assert!(page.body.contains("the second one"));
    let item = page.field("item");
    let taken = client.form(&format!("{path}/queue"), &[("csrf", &token), ("item", &item)]).await;
    assert_eq!(taken.status, 303, "{taken:?}");
    client.form(&format!("{path}/cancel"), &[("csrf", &token)]).await;
    let page = client.until(&path, "Turn cancelled").await;
    assert!(!page.body.contains("the second one"), "{}", page.body);
    running.stopped().await;
}

#[tokio::test]
async fn what_the_page_of_a_conversation_does_not_hold_any_more_is_on_pages_of_earlier_parts() {
    const TURNS: u32 = 500;
    let script = Script::of([ScriptReply::says("yes")]).when_exhausted(OnExhausted::Repeat);
    let agent = Agent::builder("a", script).build().unwrap();
    let conversations = Conversations::builder(agent, MemoryStore::default()).build();
    let (id, ann) = ("long".into(), turnbuckle::Scope::user("ann"));
    for number in 0..TURNS {
        conversations.turn(&id, format!("message {number}."), ann.clone()).await.unwrap();
    }
    let running = Running::start(Server::builder(conversations).tokens(tokens()).build().unwrap()).await;
    let (ann, bob) = (logged_in(&running, "ann-secret").await, logged_in(&running, "bob-secret").await);
    let newest = ann.get("/page/c/long").await;
    assert!(newest.body.contains("<h1>message 0.</h1>"), "it is called by its first words: {}", newest.body);
    let mut link = older(&newest);
    let (mut said, mut pages) = (messages(&newest), 0);
    while let Some(path) = link {
        let page = ann.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        assert!(page.body.contains("<h1>message 0.</h1>") && !page.body.contains("data-events"), "{}", page.body);
        let earlier = messages(&page);
        assert_eq!(earlier.last().map(|last| last + 1), said.first().copied(), "no message is missing or there twice");
        assert_eq!(page.body.matches("Turn completed").count(), earlier.len(), "each turn is there whole");
        said.splice(..0, earlier);
        assert_eq!(bob.get(&path).await.status, 404);
        (link, pages) = (older(&page), pages + 1);
    }
    assert!(pages >= 2, "{pages}");
    assert_eq!(said, (0..TURNS).collect::<Vec<_>>());
    for (before, status) in [("0", 404), ("1", 404), ("18446744073709551615", 200), ("x", 400)] {
        assert_eq!(ann.get(&format!("/page/c/long?before={before}")).await.status, status, "{before}");
    }
    running.stopped().await;
}

/// Where a page says that older messages are.
fn older(page: &Answer) -> Option<String> {
    let (before, _) = page.body.split_once("\">Older messages")?;
    before.rsplit('"').next().map(str::to_owned)
}

/// The numbers of the messages that a page shows.
fn messages(page: &Answer) -> Vec<u32> {
    let said = page.body.split("<p>message ").skip(1);
    said.map(|rest| rest.split('.').next().unwrap().parse().unwrap()).collect()
}
