//! Empty conversations, titles, and lists and logs page by page.

use turnbuckle::conversation::{CreateError, SendError};
use turnbuckle::models::Script;
use turnbuckle::{Agent, ConversationId, Conversations, Scope};

fn conversations() -> Result<Conversations, turnbuckle::BuildError> {
    Ok(Conversations::in_memory(Agent::builder("a", Script::says(["one", "two", "three"])).build()?))
}

fn id(text: &str) -> ConversationId {
    text.into()
}

#[tokio::test]
async fn an_id_is_given_once_whoever_asks_and_also_after_a_deletion() -> Result<(), Box<dyn std::error::Error>> {
    let (all, ann, bob) = (conversations()?, Scope::user("ann"), Scope::user("bob"));
    assert_eq!(all.create(Some(id("x")), &ann).await?, id("x"));
    for scope in [&ann, &bob] {
        assert!(matches!(all.create(Some(id("x")), scope).await, Err(CreateError::Exists { .. })));
    }
    assert!(matches!(all.create(Some(id("x/c1")), &ann).await, Err(CreateError::Exists { .. })));
    all.delete(&id("x"), ann.clone()).await?;
    assert!(matches!(all.create(Some(id("x")), &ann).await, Err(CreateError::Exists { .. })));
    let minted = all.create(None, &ann).await?;
    assert!(all.snapshot(&minted, ann).await?.events.is_empty());
    assert!(matches!(all.snapshot(&minted, bob).await, Err(SendError::NotFound { .. })));
    Ok(())
}

#[tokio::test]
async fn a_title_is_cleaned_and_only_for_those_who_may_speak() -> Result<(), Box<dyn std::error::Error>> {
    let (all, ann) = (conversations()?, Scope::user("ann"));
    let one = all.create(None, &ann).await?;
    assert!(all.set_title(&one, "a\nb\u{7}  c", &ann).await?);
    assert_eq!(all.list(ann.clone()).await?[0].title.as_deref(), Some("a b c"));
    assert!(!all.set_title(&one, "---", &ann).await?);
    assert_eq!(all.list(ann).await?[0].title.as_deref(), Some("a b c"));
    let others = all.set_title(&one, "mine", &Scope::user("bob")).await;
    assert!(matches!(others, Err(SendError::NotFound { .. })));
    Ok(())
}

#[tokio::test]
async fn pages_of_the_list_hold_every_conversation_once() -> Result<(), Box<dyn std::error::Error>> {
    let (all, ann) = (conversations()?, Scope::user("ann"));
    for number in 0..7 {
        all.create(Some(id(&format!("c{number}"))), &ann).await?;
        all.create(Some(id(&format!("b{number}"))), &Scope::user("bob")).await?;
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = all.list_page(before.as_ref(), 3, &ann).await?;
        seen.extend(page.items.iter().map(|one| one.id.to_string()));
        before = page.items.last().map(|one| one.id.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]);
    assert!(all.list_page(Some(&id("b0")), 3, &ann).await?.items.is_empty(), "another's id says nothing");
    Ok(())
}

#[tokio::test]
async fn a_page_of_the_list_is_full_however_many_of_others_stand_between() -> Result<(), Box<dyn std::error::Error>> {
    let (all, ann, bob) = (conversations()?, Scope::user("ann"), Scope::user("bob"));
    for number in 0..450 {
        let (name, owner) = if number % 150 == 0 { ("c", &ann) } else { ("b", &bob) };
        all.create(Some(id(&format!("{name}{number}"))), owner).await?;
    }
    let of = async |before: Option<&str>, most| {
        let page = all.list_page(before.map(id).as_ref(), most, &ann).await?;
        let ids: Vec<_> = page.items.iter().map(|one| one.id.to_string()).collect();
        Ok::<_, Box<dyn std::error::Error>>((ids.join(" "), page.more))
    };
    assert_eq!(of(None, 2).await?, ("c300 c150".to_owned(), true));
    assert_eq!(of(None, 3).await?, ("c300 c150 c0".to_owned(), false));
    assert_eq!(of(Some("c300"), 1).await?, ("c150".to_owned(), true));
    assert_eq!(of(Some("c0"), 1).await?, (String::new(), false));
    assert_eq!(all.summary(&id("c150"), &ann).await?.id, id("c150"));
    assert!(all.summary(&id("b1"), &ann).await.is_err());
    Ok(())
}

#[tokio::test]
async fn pages_of_the_log_hold_every_event_once() -> Result<(), Box<dyn std::error::Error>> {
    let (all, ann) = (conversations()?, Scope::user("ann"));
    for message in ["1", "2", "3"] {
        all.turn(&id("c"), message, ann.clone()).await?;
    }
    let whole: Vec<u64> = all.log(&id("c"), ann.clone()).await?.iter().map(|event| event.seq).collect();
    for most in [1, 2, 4, 100] {
        let (mut before, mut seen) = (None, Vec::new());
        loop {
            let page = all.history(&id("c"), before, most, &ann).await?;
            let seqs: Vec<u64> = page.items.iter().map(|event| event.seq).collect();
            before = seqs.first().copied();
            seen.splice(0..0, seqs);
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, whole, "{most} at once");
    }
    assert!(all.history(&id("c"), Some(1), 5, &ann).await?.items.is_empty());
    let beyond = all.history(&id("c"), Some(u64::MAX), 2, &ann).await?;
    assert_eq!(beyond, all.history(&id("c"), None, 2, &ann).await?, "there is nothing behind the end");
    assert!(beyond.more);
    let log = all.log(&id("c"), ann.clone()).await?;
    let turn = log[0].turn.clone();
    let own = all.turn_log(&id("c"), &turn, &ann).await?;
    assert_eq!(own, log.into_iter().filter(|event| event.turn == turn).collect::<Vec<_>>());
    Ok(())
}
