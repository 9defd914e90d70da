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
    assert_eq!(pieces(&desk, "long", "offset", "\n[lines ", 1).await, whole);
    assert_eq!(pieces(&desk, "long", "byte_offset", "\n[bytes ", 0).await, whole);
    let beyond = desk.refused("read_file", json!({"path": "long", "offset": 9_999_999})).await;
    assert_eq!(beyond, "long has 20000 lines; give a smaller offset");
    let behind = desk.refused("read_file", json!({"path": "long", "offset": 20_001})).await;
    assert_eq!(behind, "long has 20000 lines; give a smaller offset");
    let beyond = desk.refused("read_file", json!({"path": "long", "byte_offset": 9_999_999})).await;
    assert!(beyond.contains("smaller byte_offset"), "{beyond}");
    let both = desk.refused("read_file", json!({"path": "long", "offset": 1, "byte_offset": 1})).await;
    assert!(both.contains("give one of them"), "{both}");
}

/// Reads a file as the notes at the end of each piece say.
async fn pieces(desk: &Desk, path: &str, unit: &str, note: &str, first: u64) -> String {
    let (mut read, mut offset) = (String::new(), first);
    loop {
        let piece = desk.ok("read_file", json!({"path": path, unit: offset})).await;
        assert!(piece.len() <= 65 * 1024);
        let Some((text, note)) = piece.rsplit_once(note) else {
            read += &piece;
            return read;
        };
        read += text;
        offset = note.trim_end_matches(']').rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    }
}

#[tokio::test]
async fn lines_are_counted_from_one() {
    let desk = Desk::new().await;
    desk.put("a", "one\r\ntwo\nthree");
    assert_eq!(desk.ok("read_file", json!({"path": "a", "offset": 2})).await, "two\nthree");
    let middle = desk.ok("read_file", json!({"path": "a", "offset": 2, "limit": 1})).await;
    assert_eq!(middle, "two\n\n[lines 2 to 2, 4 of 14 bytes; to go on: offset 3]");
    assert_eq!(desk.ok("read_file", json!({"path": "a", "offset": 3, "limit": 9})).await, "three");
    let behind = desk.refused("read_file", json!({"path": "a", "offset": 4})).await;
    assert_eq!(behind, "a has 3 lines; give a smaller offset");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_read_by_bytes() {
    let desk = Desk::new().await;
    let line = "é".repeat(50_000);
    desk.put("long", format!("first\n{line}\nlast"));
    let piece = desk.ok("read_file", json!({"path": "long", "offset": 2})).await;
    let (text, note) = piece.rsplit_once("\n[bytes 6 to ").unwrap();
    let next: u64 = note.trim_end_matches(']').rsplit(' ').next().unwrap().parse().unwrap();
    let rest = desk.ok("read_file", json!({"path": "long", "byte_offset": next})).await;
    assert_eq!(format!("{text}{rest}"), format!("{line}\nlast"));
}

#[tokio::test]
async fn a_line_behind_a_huge_one_is_found() {
    let desk = Desk::new().await;
    // Sparse: a line of zero bytes that takes no room.
    let file = std::fs::File::create(desk.inside("huge")).unwrap();
    file.set_len(256 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"\nneedle\n", (256 << 20) - 8).unwrap();
    assert_eq!(desk.ok("read_file", json!({"path": "huge", "offset": 2})).await, "needle\n");
}

#[tokio::test]
async fn a_file_of_a_gigabyte_is_read_in_parts_and_never_held_in_memory() {
    const SIZE: u64 = 1 << 30;
    let desk = Desk::new().await;
    let file = std::fs::File::create(desk.inside("huge")).unwrap();
    file.set_len(SIZE).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"\nneedle\n", SIZE - 8).unwrap();
    let began = std::time::Instant::now();
    let head = desk.ok("read_file", json!({"path": "huge"})).await;
    assert!(head.len() < 200_000, "{} bytes", head.len());
    assert_eq!(desk.ok("read_file", json!({"path": "huge", "byte_offset": SIZE - 7})).await, "needle\n");
    assert_eq!(desk.ok("read_file", json!({"path": "huge", "offset": 2})).await, "needle\n");
    let large = desk.refused("edit_file", json!({"path": "huge", "old": "needle", "new": "x"})).await;
    assert!(large.contains("1073741824"), "{large}");
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "it took {:?}", began.elapsed());
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        let peak: u64 = peak.unwrap().parse().unwrap();
        assert!(peak < 512 << 10, "the most that was held at once: {peak} KiB");
    }
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
