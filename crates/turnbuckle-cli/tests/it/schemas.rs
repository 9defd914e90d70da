//! `run --schema`: an object on stdout, or a clear reason why not.

use crate::program::Folder;

fn folder(replies: &str) -> Folder {
    let folder = Folder::new();
    folder.file("talk.json", &format!("{{ \"replies\": [{replies}] }}"));
    folder.file("number.json", r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#);
    folder
}

const RUN: &[&str] = &["run", "--model", "script:talk.json", "--schema", "number.json", "how many?"];

#[test]
fn the_object_and_nothing_else_is_on_stdout() {
    folder(r#"{"text":"```json\n{ \"n\": 3 }\n```"}"#).run(RUN).exits(0).prints("{\"n\":3}\n");
}

#[test]
fn a_reply_that_does_not_fit_is_asked_for_once_more_and_then_rejected() {
    folder(r#"{"text":"three"},{"text":"{\"n\":3}"}"#).run(RUN).exits(0).prints("{\"n\":3}\n");
    let ran = folder(r#"{"text":"three"},{"text":"four"}"#).run(RUN).exits(3).prints("").says("must be JSON");
    assert!(ran.err.contains("build     1 message, 0 tools"), "{}", ran.err);
    assert!(ran.err.contains("simplify the schema") && !ran.err.contains("max_regenerations"), "{}", ran.err);
}

#[test]
fn a_schema_that_cannot_be_used_is_bad_usage() {
    let folder = folder(r#"{"text":"{}"}"#);
    folder.file("broken.json", "{");
    folder.file("wrong.json", r#"{"type":"nonsense"}"#);
    for (file, why) in [("none.json", "No such file"), ("broken.json", "not JSON"), ("wrong.json", "not a JSON schema")]
    {
        let run = ["run", "--model", "script:talk.json", "--schema", file, "how many?"];
        folder.run(&run).exits(2).prints("").says(&format!("the schema {file}")).says(why).says("hint: ");
    }
}
