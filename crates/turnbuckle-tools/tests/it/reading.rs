//! `read_file`.

use serde_json::json;

use crate::desk::Desk;

#[tokio::test]
async fn a_file_is_read_as_it_is() {
    let desk = Desk::new().await;
    desk.put("src/a.txt", "one\r\ntwo\n");
    assert_eq!(desk.ok("read_file", json!({"path": "./src//a.txt"})).await, "one\r\ntwo\n");
    desk.put("empty", "");
    assert_eq!(desk.ok("read_file", json!({"path": "empty"})).await, "[the file is empty]");
}

#[tokio::test]
async fn a_long_file_is_read_piece_by_piece_and_nothing_is_lost() {
    let desk = Desk::new().await;
    let whole: String = (0..20_000).map(|line| format!("line {line} é\n")).collect();
    desk.put("long", &whole);
    let (mut read, mut offset) = (String::new(), 0);
    loop {
        let piece = desk.ok("read_file", json!({"path": "long", "offset": offset})).await;
        assert!(piece.len() <= 65 * 1024);
        let Some((text, note)) = piece.rsplit_once("\n[bytes ") else {
            read += &piece;
            break;
        };
        read += text;
        offset = note.trim_end_matches(']').rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    }
    assert_eq!(read, whole);
    let beyond = desk.refused("read_file", json!({"path": "long", "offset": 9_999_999})).await;
    assert!(beyond.contains("smaller offset"), "{beyond}");
}

#[tokio::test]
async fn what_is_not_text_is_said_to_be_so() {
    let desk = Desk::new().await;
    desk.put("picture", [0x89, b'P', 0xff]);
    let text = desk.ok("read_file", json!({"path": "picture"})).await;
    assert!(text.starts_with("[not UTF-8"), "{text}");
}

#[tokio::test]
async fn a_refusal_says_what_to_do() {
    let desk = Desk::new().await;
    desk.put("src/a", "");
    let missing = desk.refused("read_file", json!({"path": "b"})).await;
    assert_eq!(missing, "there is no b; list_files shows what there is");
    let folder = desk.refused("read_file", json!({"path": "src"})).await;
    assert_eq!(folder, "src is a folder; give the path of a file");
    let through = desk.refused("read_file", json!({"path": "src/a/b"})).await;
    assert!(through.contains("not a folder"), "{through}");
}
