//! Webhooks: signed, in the background, and one that hangs harms nobody.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use turnbuckle::hooks::{HumanDuration, LinkMaker, OptionError};
use turnbuckle::models::Script;
use turnbuckle::projection::Pending;
use turnbuckle::store::Answer;
use turnbuckle::testing::Rig;
use turnbuckle::{Agent, BoxError, ConversationId, Scope};
use turnbuckle_hooks::Notify;
use turnbuckle_hooks::notify::NotifyOptions;

use super::kit::{add, adding, built, notices};

struct Got {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }
}

/// A receiver on loopback that answers with these statuses, one after the other.
fn receiver(statuses: impl IntoIterator<Item = u16>) -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    (url, accepting(listener, statuses))
}

fn accepting(listener: TcpListener, statuses: impl IntoIterator<Item = u16>) -> Receiver<Got> {
    let (send, got) = channel();
    let statuses: Vec<u16> = statuses.into_iter().collect();
    std::thread::spawn(move || {
        for status in statuses {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let request = read(&mut stream);
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = send.send(request);
        }
    });
    got
}

fn read(stream: &mut TcpStream) -> Got {
    let mut reader = BufReader::new(stream);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(": ") {
            headers.push((name.to_owned(), value.to_owned()));
        }
    }
    let length =
        headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length")).unwrap().1.parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Got { headers, body }
}

async fn a_turn(url: String, tries: u32) {
    let options = NotifyOptions { url, tries, give_up_after: HumanDuration::millis(500), ..Default::default() };
    let hook = Notify::new(options, "whsec_c2VjcmV0").unwrap();
    let agent = Agent::builder("a", Script::says(["fine"])).hook(hook).build().unwrap();
    let mut rig = Rig::new(agent);
    assert_eq!(rig.ended("hi").await.unwrap().text(), "fine");
    rig.conversations.drain(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_chosen_event_is_posted_once_with_a_signature_that_checks_out() {
    let (url, got) = receiver([200, 200, 200]);
    a_turn(url, 3).await;
    let post = got.recv_timeout(Duration::from_secs(5)).unwrap();
    let event: Value = serde_json::from_slice(&post.body).unwrap();
    assert_eq!((&event["type"], &event["outcome"]), (&json!("turn_ended"), &json!("completed")));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"secret").unwrap();
    mac.update(format!("{}.{}.", post.header("webhook-id"), post.header("webhook-timestamp")).as_bytes());
    mac.update(&post.body);
    let signature = format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()));
    assert_eq!(post.header("webhook-signature"), signature);
    assert!(got.try_recv().is_err(), "and nothing else");
}

#[tokio::test]
async fn a_receiver_that_stumbles_is_tried_again_with_the_same_id() {
    let (url, got) = receiver([503, 200]);
    a_turn(url, 2).await;
    let [first, second] = [(); 2].map(|()| got.recv_timeout(Duration::from_secs(5)).unwrap());
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
}

#[tokio::test]
async fn a_receiver_that_says_no_is_not_asked_again() {
    let (url, got) = receiver([400, 200]);
    a_turn(url, 3).await;
    got.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(got.recv_timeout(Duration::from_millis(50)).is_err());
}

#[tokio::test]
async fn a_receiver_that_hangs_harms_nobody() {
    // It takes connections and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let options = NotifyOptions { url, queue: 1, give_up_after: HumanDuration::secs(600), ..Default::default() };
    let hook = Notify::new(options, "secret").unwrap();
    let agent = Agent::builder("a", Script::says(["fine"])).hook(hook).build().unwrap();
    let began = Instant::now();
    let conversations = turnbuckle::Conversations::in_memory(agent);
    for _ in 0..50 {
        let ended = conversations.run("hi", turnbuckle::Scope::local()).await.unwrap();
        assert_eq!(ended.text(), "fine");
    }
    assert!(began.elapsed() < Duration::from_secs(3), "turns waited for a webhook");
    drop(conversations);
    assert!(began.elapsed() < Duration::from_secs(10), "the end waits a little, not for ever");
}

/// An address on which nobody listens.
fn deserted() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}/hook", listener.local_addr().unwrap())
}

fn asking(url: &str, reminders: &[f64]) -> Agent {
    let options = NotifyOptions { url: url.into(), tries: 1, reminders: reminders.to_vec(), ..Default::default() };
    let hook = Notify::new(options, "secret").unwrap();
    Agent::builder("a", adding(1, "done")).tool(add()).approve(["add"]).hook(hook).build().unwrap()
}

async fn later(rig: &mut Rig, passed: Duration) {
    rig.clock.advance(passed);
    rig.conversations.recover_due().await.unwrap();
    rig.conversations.drain(Duration::from_secs(1)).await;
    rig.settle().await;
}

#[tokio::test]
async fn a_question_that_reaches_nobody_is_told_kept_and_posted_again() {
    let url = deserted();
    let mut rig = Rig::new(asking(&url, &[]));
    rig.run("add").await.unwrap();
    rig.conversations.drain(Duration::from_secs(1)).await;
    rig.settle().await;
    let told = notices(rig.told());
    assert!(told[0].starts_with("notify: an event was not delivered: 127.0.0.1 did not answer: "), "{told:?}");
    assert!(told[0].ends_with("; it is kept and tried again (try 1 of 8)"), "{told:?}");
    let jobs = rig.conversations.jobs(&rig.id, Scope::local()).await.unwrap();
    assert_eq!(jobs.len(), 1);
    // Somebody listens now.
    let listener = TcpListener::bind(url.trim_start_matches("http://").trim_end_matches("/hook")).unwrap();
    let got = accepting(listener, [200]);
    later(&mut rig, Duration::from_secs(5)).await;
    let post = got.recv_timeout(Duration::from_secs(5)).unwrap();
    let event: Value = serde_json::from_slice(&post.body).unwrap();
    assert_eq!(
        (&event["type"], &event["call"], &event["conversation"]),
        (&json!("suspension"), &json!("c1"), &json!("c_1"))
    );
    assert_eq!(event.get("reminder"), None);
    assert!(rig.conversations.jobs(&rig.id, Scope::local()).await.unwrap().is_empty());
}

#[tokio::test]
async fn reminders_are_posted_with_an_id_of_their_own_until_there_is_an_answer() {
    let (url, got) = receiver([200, 200, 200]);
    let mut rig = Rig::new(asking(&url, &[0.5, 0.9]));
    rig.run("add").await.unwrap();
    rig.conversations.drain(Duration::from_secs(1)).await;
    later(&mut rig, Duration::from_secs(12 * 3600)).await;
    let [asked, reminded] = [(); 2].map(|()| got.recv_timeout(Duration::from_secs(5)).unwrap());
    let event: Value = serde_json::from_slice(&reminded.body).unwrap();
    assert_eq!((&event["type"], &event["call"], &event["reminder"]), (&json!("suspension"), &json!("c1"), &json!(0.5)));
    assert_ne!(asked.header("webhook-id"), reminded.header("webhook-id"));
    let seconds = |post: &Got| post.header("webhook-timestamp").parse::<u64>().unwrap();
    assert_eq!(seconds(&reminded) - seconds(&asked), 12 * 3600, "a late post is not signed for the past");
    rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
    rig.conversations.drain(Duration::from_secs(1)).await;
    later(&mut rig, Duration::from_secs(11 * 3600)).await;
    let ended: Value = serde_json::from_slice(&got.recv_timeout(Duration::from_secs(5)).unwrap().body).unwrap();
    assert_eq!(ended["type"], "turn_ended");
    assert!(got.try_recv().is_err(), "no second reminder");
}

#[test]
fn what_cannot_work_is_refused_and_no_secret_is_shown() {
    let refusal = |options: Value| built::<Notify>(options).unwrap_err();
    assert!(refusal(json!({"url": "https://x.example/"})).contains("secret_env"));
    assert!(
        refusal(json!({"url": "https://x.example/", "secret_env": "NOT_SET_ANYWHERE"})).contains("NOT_SET_ANYWHERE")
    );
    assert!(refusal(json!({"uri": "x"})).contains("uri"));
    let new = |url: &str, secret: &str, events: &[&str]| {
        let events = events.iter().map(|event| event.to_string()).collect();
        Notify::new(NotifyOptions { url: url.into(), events, ..Default::default() }, secret).map_err(|e| e.to_string())
    };
    assert!(new("ftp://x.example/", "s", &["notice"]).unwrap_err().contains("url"));
    assert!(new("https://x.example/", "", &["notice"]).unwrap_err().contains("no secret"));
    assert!(new("https://x.example/", "whsec_!top-secret!", &["notice"]).unwrap_err().contains("base64"));
    assert!(!new("https://x.example/", "whsec_!top-secret!", &["notice"]).unwrap_err().contains("top"));
    assert!(new("https://x.example/", "s", &["suspenssion"]).unwrap_err().contains("suspension"));
    let reminders = |parts: &[f64], event: &str| {
        let (url, events) = ("https://x.example/".into(), vec![event.to_owned()]);
        let options = NotifyOptions { url, events, reminders: parts.to_vec(), ..Default::default() };
        Notify::new(options, "s").map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(reminders(&[0.5, 0.9], "suspension"), Ok(()));
    for bad in [&[0.0][..], &[1.0], &[50.0], &[0.5, 0.5], &[f64::NAN], &[0.005]] {
        assert!(reminders(bad, "suspension").unwrap_err().contains("reminders"), "{bad:?}");
    }
    assert!(reminders(&[0.5], "turn_ended").unwrap_err().contains("suspension"));
    let hook = new("https://token@x.example/", "top-secret", &["notice"]).unwrap();
    assert!(!format!("{hook:?}").contains("top-secret") && !format!("{hook:?}").contains("token"));
}

/// Says in the link what it was asked for.
#[derive(Debug)]
struct Maker;

impl LinkMaker for Maker {
    fn link(&self, conversation: &ConversationId, asked: &Pending, user: Option<&str>) -> Result<String, BoxError> {
        let digest = asked.question.digest().map_or(0, |digest| digest.len());
        Ok(format!("https://x.example/{conversation}/{}/{}/{}", asked.call, user.unwrap_or("-"), digest > 0))
    }
}

#[tokio::test]
async fn a_question_is_posted_with_a_link_for_the_user_or_for_nobody() {
    for (link_for, expected) in [("ann", "ann"), ("nobody", "-"), ("", "-")] {
        let (url, got) = receiver([200, 200]);
        let link_for = Some(link_for.to_owned());
        let options = NotifyOptions { url, link_for, ..Default::default() };
        let hook = Notify::with_links(options, "secret", Arc::new(Maker)).unwrap();
        let agent = Agent::builder("a", adding(1, "done")).tool(add()).approve(["add"]).hook(hook).build().unwrap();
        let mut rig = Rig::new(agent);
        rig.run("add").await.unwrap();
        rig.conversations.drain(Duration::from_secs(5)).await;
        let post = got.recv_timeout(Duration::from_secs(5)).unwrap();
        let event: Value = serde_json::from_slice(&post.body).unwrap();
        assert_eq!(event["type"], "suspension");
        assert_eq!(event["link"], format!("https://x.example/{}/c1/{expected}/true", rig.id));
        rig.conversations.resolve(&rig.id, &"c1".into(), Answer::Approve, None, Scope::local()).await.unwrap();
        rig.conversations.drain(Duration::from_secs(5)).await;
        let ended = got.recv_timeout(Duration::from_secs(5)).unwrap();
        let ended: Value = serde_json::from_slice(&ended.body).unwrap();
        assert_eq!((&ended["type"], &ended["link"]), (&json!("turn_ended"), &Value::Null));
    }
}

#[test]
fn links_need_questions_and_somebody_who_makes_them() {
    let with = |link_for: &str, events: &[&str]| NotifyOptions {
        url: "https://x.example/".into(),
        link_for: Some(link_for.to_owned()),
        events: events.iter().map(|event| (*event).to_owned()).collect(),
        ..Default::default()
    };
    let option = |made: Result<Notify, OptionError>| made.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(option(Notify::new(with("ann", &["suspension"]), "secret")).contains("link_for"));
    let made =
        |link_for: &str, events: &[&str]| option(Notify::with_links(with(link_for, events), "s", Arc::new(Maker)));
    assert!(made("ann", &["turn_ended"]).contains("suspension"));
    assert!(made("an\nn", &["suspension"]).contains("link_for"));
    assert_eq!(made("ann", &["suspension"]), "");
}
