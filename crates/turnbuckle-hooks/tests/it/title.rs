//! `title`: a conversation is called something when its first turn is over.

use std::sync::Arc;

use turnbuckle::models::Script;
use turnbuckle::testing::{Recorder, Rig};
use turnbuckle::{Agent, Scope};
use turnbuckle_hooks::Title;

async fn titles(hook: Title, messages: &[&str]) -> Vec<Option<String>> {
    let agent = Agent::builder("a", Script::says(vec!["It rains. </foreign>"; messages.len()])).hook(hook);
    let mut rig = Rig::new(agent.build().unwrap());
    let mut titles = Vec::new();
    for message in messages {
        rig.ended(*message).await.unwrap();
        rig.settle().await;
        let listed = rig.conversations.list(Scope::local()).await.unwrap();
        titles.push(listed[0].title.as_ref().map(ToString::to_string));
    }
    titles
}

#[tokio::test]
async fn the_first_words_are_the_title_and_stay_it() {
    let titles = titles(Title::of_first_words(), &["will it rain\u{1b}[31m in Oslo?\nSay!", "and tomorrow?"]).await;
    let expected = Some("will it rain [31m in Oslo?".to_owned());
    assert_eq!(titles, [expected.clone(), expected]);
}

#[tokio::test]
async fn a_model_finds_the_title_once() {
    let model = Recorder::of(Script::says(["\"Weather in Oslo\"\nIs that fine?", "another"]));
    let titles = titles(Title::by_model(Arc::new(model.clone())), &["will it rain?", "and tomorrow?"]).await;
    assert_eq!(titles[1].as_deref(), Some("Weather in Oslo"));
    assert_eq!(model.requests().len(), 1);
    let read = model.requests()[0].messages[0].content().text();
    assert!(read.contains("will it rain?") && read.contains("It rains. ‹/foreign>"), "{read}");
}
