//! What `turnbuckle serve` logs without being asked.

use std::process::Stdio;

use serde_json::json;

use crate::program::Folder;
use crate::serving::Serving;

#[test]
fn each_request_is_a_line_without_content_and_the_variable_turns_it_off() {
    let folder = Folder::with_script(r#"{ "text": "a private answer" }"#);
    let serving = Serving::start(&folder, &[]);
    serving.post("/v1/conversations", json!({ "id": "secret-id" }));
    serving.post("/v1/conversations/secret-id/messages", json!({ "content": "a private message" }));
    serving.until_so("the requests are logged", |serving| {
        serving
            .later()
            .lines()
            .any(|line| line.contains("INFO") && line.contains("path=\"/v1/conversations/{id}/messages\""))
    });
    let log = serving.later();
    for part in ["method=POST", "status=202", "user="] {
        assert!(log.contains(part), "{part}: {log}");
    }
    let requests = log.lines().filter(|line| line.contains(": request ")).collect::<String>();
    assert!(!requests.contains("secret-id") && !log.contains("a private"), "{log}");

    let mut command = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    let child = command.env("TURNBUCKLE_LOG", "off").stderr(Stdio::piped()).spawn().unwrap();
    let quiet = Serving::of(child);
    assert!(!quiet.said.contains("INFO"), "{}", quiet.said);
    quiet.ask("GET", "/healthz", "", None);
    assert_eq!(quiet.later(), "");
}
