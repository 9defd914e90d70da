//! `[[serve.tokens]]` of a server that runs: what a change of the files gives and takes.

use crate::program::Folder;
use crate::serving::{Serving, sha256};

fn token(user: &str) -> String {
    let digest = sha256(&format!("{user}-secret"));
    format!("[[serve.tokens]]\nsha256 = \"{digest}\"\nuser = \"{user}\"\n")
}

/// The configuration with tokens of these users alone.
fn with_tokens(config: &str, users: &[&str]) -> String {
    let base = config.split("[[serve.tokens]]").next().unwrap();
    users.iter().fold(base.to_owned(), |config, user| config + &token(user))
}

fn may(serving: &Serving, user: &str) -> bool {
    let header = format!("authorization: Bearer {user}-secret\r\n");
    match serving.ask("GET", "/v1/pending", &header, None).0 {
        200 => true,
        401 => false,
        status => panic!("{status}"),
    }
}

#[test]
fn an_unaccepted_change_of_a_projects_tokens_ends_those_it_removes_and_gives_none_until_it_is_accepted() {
    let folder = Folder::cloned(r#"{ "text": "hi" }"#, &(token("ann") + &token("eve")));
    folder.run(&["trust", "--yes"]).exits(0);
    let serving = Serving::start(&folder, &[]);
    assert!(may(&serving, "ann") && may(&serving, "eve") && !may(&serving, "bob"));
    let config = folder.read("turnbuckle.toml");
    folder.file("turnbuckle.toml", &with_tokens(&config, &["ann", "bob"]));
    serving.until_so("eve is out", |serving| !may(serving, "eve"));
    assert!(may(&serving, "ann"), "whoever was accepted stays");
    assert!(!may(&serving, "bob"), "nobody accepted bob");
    serving.until_so("it says so", |serving| serving.later().contains("turnbuckle trust"));
    folder.run(&["trust", "--yes"]).exits(0);
    serving.until_so("bob is in", |serving| may(serving, "bob"));
    assert!(may(&serving, "ann") && !may(&serving, "eve"));
}

#[test]
fn one_token_for_two_users_is_an_error_at_the_start_in_check_and_while_it_runs() {
    let twice = token("ann") + &token("ann").replace("\"ann\"", "\"bob\"");
    let folder = Folder::with_config(r#"{ "text": "hi" }"#, &twice);
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["check"]] {
        let ran = folder.run(command);
        assert_eq!(ran.code, 2, "{ran:?}");
        let said = ran.out.clone() + &ran.err;
        assert!(
            said.contains("the token of bob is the one of ann, too") && said.contains("turnbuckle.toml:"),
            "{said}"
        );
    }
    let config = folder.read("turnbuckle.toml");
    folder.file("turnbuckle.toml", &with_tokens(&config, &["ann"]));
    let serving = Serving::start(&folder, &[]);
    folder.file("turnbuckle.toml", &config);
    serving.until_so("it says so", |serving| serving.later().contains("the tokens stay as they were"));
    assert!(may(&serving, "ann"));
}
