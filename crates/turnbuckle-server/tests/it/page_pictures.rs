//! Writes pages as files, to be looked at in a browser: `cargo test -p turnbuckle-server --test it -- --ignored pages_as_files`. The folder
//! is `PAGES_DIR`.

use std::path::Path;

use turnbuckle::hook::{OnStop, stop};
use turnbuckle::models::Script;
use turnbuckle::store::{ConversationStatus, ConversationSummary};
use turnbuckle::{Actor, Agent, Timestamp};
use turnbuckle_server::page::{self, ConversationPage, HookLine, ListPage, Listed, Queued, TurnPage};

use crate::page_story::{NOON, records, rights, tell, viewer};

#[test]
#[ignore = "writes files for a person to look at"]
fn pages_as_files() {
    let Ok(folder) = std::env::var("PAGES_DIR") else { panic!("PAGES_DIR is not set") };
    let write = |name: &str, html: &str| {
        // Files have no root to begin a path with.
        let html = html.replace("\"/page/page-", "\"page-");
        std::fs::write(Path::new(&folder).join(name), html).unwrap();
    };
    for asset in page::assets() {
        write(asset.path.trim_start_matches("/page/"), asset.content);
    }
    let say = str::to_owned;
    let (viewer, story) = (viewer("token"), tell(&say));
    let mut view = story.view();
    view.set_queue(vec![Queued { id: "i".into(), text: "And then tag it as 1.2.".into(), steers: false }]);
    let about =
        ConversationPage { title: Some("Fix the total".into()), agent: Some("coder".into()), ..Default::default() };
    write("conversation.html", &page::conversation(&viewer, &rights(), &view, &about).0);
    // The same page from its beginning, and the stream that makes it what it is.
    let mut live = page::View::new("c_1".into(), Default::default());
    write("live.html", &page::conversation(&viewer, &rights(), &live, &about).0);
    let mut stream = String::new();
    for event in &story.events {
        let patches: String =
            live.apply(event).iter().filter_map(|patch| patch.html_for(&rights())).map(|html| &**html).collect();
        if !patches.is_empty() {
            stream += &format!("id: {}\nevent: patch\ndata: {}\n\n", event.cursor, patches.replace('\n', "\ndata: "));
        }
    }
    write("events.txt", &stream);
    let events: Vec<_> = story.logged().into_iter().filter(|event| event.turn.as_str() == "t_1").collect();
    let hook = |name: &str| stop(name, async |_| Ok(OnStop::Accept));
    let agent = Agent::builder("coder", Script::says(["hi"])).hook(hook("lint")).hook(hook("critic")).build().unwrap();
    let (conversation, turn, records) = ("c_1".into(), "t_1".into(), records(&say));
    let turn = TurnPage {
        conversation: &conversation,
        title: Some("Fix the total"),
        turn: &turn,
        events: &events,
        records: &records,
        hooks: &HookLine::of_agent(&agent),
    };
    write("turn.html", &page::turn(&viewer, &turn).0);
    let listed = |id: &str, title: Option<&str>, status, ago: u64, waits_for: Option<&str>| Listed {
        summary: ConversationSummary {
            id: id.into(),
            owner: Actor::User { id: "ann".into(), roles: [].into() },
            opened: Timestamp::from_millis(NOON),
            written: Timestamp::from_millis(NOON - ago * 60_000),
            seq: 30,
            status,
            claimed_until: None,
            hold: None,
            title: title.map(Into::into),
        },
        first_words: title.is_none().then(|| "Please fix the total in the invoice".to_owned()),
        cost: Some(0.0312),
        waits_for: waits_for.map(Into::into),
    };
    let until = Timestamp::from_millis(NOON + 7_200_000);
    let conversations = vec![
        listed("c_1", Some("Fix the total"), ConversationStatus::Waiting { until }, 1, Some("you")),
        listed("c_2", Some("Refunds of January"), ConversationStatus::Running, 4, None),
        listed("c_01kexample", None, ConversationStatus::Idle, 3_000, None),
    ];
    let list = ListPage { conversations, search: String::new(), older: Some("/?before=c".into()), can_begin: true };
    write("list.html", &page::list(&viewer, &list, Timestamp::from_millis(NOON)).0);
    write("login.html", &page::login(&page::Viewer::default(), Some("This token is not known.")).0);
}
