//! What redaction promises.

use std::sync::LazyLock;

use proptest::prelude::{Strategy as Strategy_, prop, prop_assert_eq, proptest};

use super::oracle::oracle;
use super::*;

const CARD: &str = "4111 1111 1111 1111";
const EMAIL: &str = "ann.lee+x@mail.example.co.uk";
const KEYS: [&str; 10] = [
    "sk-abcdefghijklmnopqrstuvwx0123",
    "sk-ant-api03-AbCdEf_0123456789-abcdefghijkl",
    "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
    "github_pat_11AAAAAAA0123456789_abcdefghijklmnop",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefGHIJKL",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    "sk_live_0123456789abcdefABCDEF",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0Z3\n+/abc==\n",
];

fn standard() -> Redact {
    Redact::standard().unwrap()
}

fn full() -> Redact {
    Redact::builder()
        .emails()
        .cards()
        .keys()
        .pattern("ticket", "TCK-[0-9]{6}")
        .pattern("word", r"\bzeb(?:ra)?\b")
        .pattern("phone", r"(?:\+49 ?)?0[0-9]{5,9}")
        .pattern("пароль", "(?i)пароль: [а-я]{3,8}")
        .build()
        .unwrap()
}

/// The chunks one after the other, and what was out after each.
fn steps<'t>(redact: &Redact, chunks: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let (mut text, mut annotations) = (String::new(), Map::new());
    let mut redactor = redact.redactor();
    let mut told = Vec::new();
    for chunk in chunks {
        redactor.chunk(chunk, &mut TransformOutput::new(&mut text, &mut annotations)).unwrap();
        told.push(text.clone());
    }
    redactor.finish(&mut TransformOutput::new(&mut text, &mut annotations)).unwrap();
    told.push(text);
    told
}

fn stream<'t>(redact: &Redact, chunks: impl IntoIterator<Item = &'t str>) -> String {
    steps(redact, chunks).pop().unwrap()
}

fn chars(text: &str) -> impl Iterator<Item = &str> {
    text.char_indices().map(|(at, c)| &text[at..at + c.len_utf8()])
}

#[test]
fn everything_built_in_is_found() {
    let redact = standard();
    assert_eq!(redact.apply(&format!("Mail {EMAIL}, pay {CARD}.")), "Mail [email], pay [card].");
    for key in KEYS {
        let rest = if key.starts_with('-') { "-----END" } else { ", ok" };
        assert_eq!(redact.apply(&format!("key={key}{rest}")), format!("key=[key]{rest}"));
    }
}

#[test]
fn what_only_looks_like_it_passes() {
    let redact = standard();
    for text in [
        "npm i react@18.2.0 at 5 @ home, a@b, @ann, ann@",
        "task-management-for-everything-we-know and risk-assessment-frameworks",
        "4111 1111 1111 1112, 41111111111111111111111111, 4111  1111  1111  1111, 411111111111",
        "sk-short AKIA eyJ.x.y ghp_ xoxb-1 d2c8ab5f00d2c8ab5f00d2c8ab5f00d2c8ab5f00d2c8ab5f00d2c8ab5f00abcdef",
        "Grüße aus Köln – 東京で会いましょう 🙂",
        "",
    ] {
        assert!(matches!(redact.apply(text), Cow::Borrowed(same) if same == text), "{text}: {}", redact.apply(text));
        assert_eq!(stream(&redact, chars(text)), text);
    }
}

#[test]
fn a_match_split_at_any_boundary_is_found() {
    let redact = full();
    let others = [CARD, EMAIL, "TCK-123456", "zebra", "+49 030123456", "пароль: тайна"];
    for secret in KEYS.into_iter().chain(others) {
        let text = format!("so: {secret} and");
        let whole = redact.apply(&text).into_owned();
        assert_eq!(whole, oracle(&redact, &text), "{text}");
        assert!(whole.starts_with("so: [") && whole.len() < text.len() + 3, "{whole}");
        let cuts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for (nth, a) in cuts.iter().enumerate() {
            assert_eq!(stream(&redact, [&text[..*a], &text[*a..]]), whole);
            for b in &cuts[nth..] {
                assert_eq!(stream(&redact, [&text[..*a], &text[*a..*b], "", &text[*b..]]), whole);
            }
        }
        assert_eq!(stream(&redact, chars(&text)), whole);
    }
}

#[test]
fn ten_thousand_chunks_of_one_character_equal_one_chunk() {
    let redact = full();
    let words = ["plain", "2024", EMAIL, "an 0 é", KEYS[1], CARD, "🙂", KEYS[7], "TCK-12", "zebras zeb", "x@y"];
    let text: String = words.iter().cycle().flat_map(|word| [*word, " "]).flat_map(str::chars).take(10_000).collect();
    let whole = redact.apply(&text);
    assert_eq!(whole, oracle(&redact, &text));
    assert_eq!(stream(&redact, chars(&text)), whole);
}

#[test]
fn in_prose_no_more_than_the_current_word_is_held_back() {
    let redact = full();
    let text = "In 2024 we met - 3 of us, at 5 pm - near TCTCK Köln; task-ask (or so). Then 4111 111 went zebra-ish.";
    for (told, at) in steps(&redact, chars(text)).iter().zip(text.char_indices().map(|(at, c)| at + c.len_utf8())) {
        let held = &text[told.len()..at];
        let spaced = held.trim_end().contains(' ') && !held.chars().all(|c| c.is_ascii_digit() || " -".contains(c));
        assert!(!spaced, "{held:?} is held back");
    }
}

#[test]
fn text_after_a_match_is_not_kept_waiting() {
    let told = steps(&standard(), ["ann@example.com", " a", "nd", " b"]);
    assert_eq!(told, ["", "[email] ", "[email] ", "[email] and ", "[email] and b"]);
}

#[test]
fn nothing_of_a_secret_longer_than_its_bound_leaks() {
    let redact = full();
    let long = "a1B2".repeat(3000);
    for (head, label) in [
        ("sk-ant-", "[key]"),
        ("ghp_", "[key]"),
        ("eyJ", "[key]"),
        ("eyJhbGciOi.", "[key]"),
        ("eyJhbGciOi.eyJzdWIi.", "[key]"),
        ("AIza", "[key]"),
        ("xoxp-", "[key]"),
        ("ann@example.com", "[email]"),
    ] {
        let text = format!("<{head}{long}>");
        assert_eq!(redact.apply(&text), format!("<{label}>"), "{head}");
        assert_eq!(stream(&redact, chars(&text)), format!("<{label}>"), "{head}");
    }
    assert_eq!(redact.apply("AKIAIOSFODNN7EXAMPLEMORE TCK-12345678901"), "[key] [ticket]");
    assert_eq!(redact.apply(&format!("ann@{}example.com.", "sub.".repeat(500))), "[email].");
}

#[test]
fn of_overlapping_matches_the_leftmost_then_the_longest_then_the_first_declared_counts() {
    let build = |patterns: &[(&str, &str)]| {
        patterns.iter().fold(Redact::builder(), |all, (name, pattern)| all.pattern(name, pattern)).build().unwrap()
    };
    let redact = build(&[("inner", "bc"), ("outer", "abcd")]);
    assert_eq!(redact.apply("abcd abc"), "[outer] a[inner]");
    let redact = build(&[("short", "ab"), ("long", "abc"), ("twin", "abc")]);
    assert_eq!(redact.apply("abc ab"), "[long] [short]");
    let redact = build(&[("text", "^a"), ("end", "z$")]);
    assert_eq!(stream(&redact, ["a", "az", "az"]), "[text]aza[end]");
}

#[test]
fn a_card_that_does_not_check_out_hides_none_that_does() {
    let redact = standard();
    assert_eq!(redact.apply("12 4111-1111-1111-1111 123"), "12 [card] 123");
    assert_eq!(redact.apply("4111111111111111x 5500 0000 0000 0004"), "[card]x [card]");
}

#[test]
fn a_mask_keeps_the_last_four_characters_and_nothing_of_short_matches() {
    let masked = Redact::builder().cards().keys().pattern("pin", "PIN[0-9]{4}").pattern("ü", "ü[a-zß]{7,9}");
    let redact = masked.strategy(Strategy::Mask).build().unwrap();
    let text = format!("{CARD}, PIN1234, sk-{}WXYZ. üabcdefßß", "a".repeat(1000));
    let whole = format!("{}1111, *******, {}WXYZ. *****efßß", "*".repeat(15), "*".repeat(1003));
    assert_eq!(redact.apply(&text), whole);
    assert_eq!(stream(&redact, chars(&text)), whole);
}

#[test]
fn patterns_without_a_longest_match_are_refused() {
    let refused = |pattern: &str| Redact::builder().pattern("mine", pattern).build().unwrap_err();
    assert!(matches!(refused("a+"), RedactError::Unbounded { name, pattern } if name == "mine" && pattern == "a+"));
    assert!(matches!(refused("a{0,3}"), RedactError::MatchesNothing { .. }));
    assert!(matches!(refused("[a&&b]"), RedactError::MatchesNothing { .. }));
    assert!(matches!(refused("a{2,5000}"), RedactError::TooLong { longest: 5000, limit: 4096, .. }));
    assert!(matches!(refused("a("), RedactError::Syntax { .. }));
    assert!(matches!(refused(r"\w{1,1000}"), RedactError::TooComplex { .. }));
    assert_eq!(refused("a+").to_string(), "pattern `mine` has no longest match; give `a+` bounds, as in `[0-9]{1,20}`");
}

#[test]
fn without_patterns_everything_passes_at_once() {
    let redact = Redact::builder().build().unwrap();
    assert_eq!(steps(&redact, ["ann@", "example.com"]), ["ann@", "ann@example.com", "ann@example.com"]);
}

#[test]
fn debug_output_tells_no_text() {
    let redact = standard();
    let (mut text, mut annotations) = (String::new(), Map::new());
    let mut redactor = redact.redactor();
    redactor.chunk("secret", &mut TransformOutput::new(&mut text, &mut annotations)).unwrap();
    assert_eq!(format!("{redactor:?}"), "Redactor { held: 6, found: 0 }");
    assert_eq!(
        format!("{redact:?}"),
        r#"Redact { patterns: ["email", "card", "key", "password"], strategy: Replace }"#
    );
}

#[test]
fn what_is_held_is_bounded_however_long_the_text_is() {
    let redact = full();
    for piece in ["a", "1 ", "eyJa", "a@a.", "ann@a.bc", "sk-", "-----BEGIN ", "+49 0"] {
        let (mut text, mut annotations) = (String::new(), Map::new());
        let mut redactor = redact.redactor();
        let chunk = piece.repeat(50);
        for _ in 0..1000 {
            redactor.chunk(&chunk, &mut TransformOutput::new(&mut text, &mut annotations)).unwrap();
            assert!(redactor.scan.waiting() <= 4096, "{piece}");
            text.clear();
        }
        assert!(redactor.scan.held.capacity() <= 4 * 8192);
    }
}

/// Text made of pieces of secrets.
fn text() -> impl Strategy_<Value = String> {
    let pieces = prop::sample::select(vec![
        "a",
        "1",
        "4111",
        " ",
        "-",
        ".",
        "@",
        "sk-",
        "ask-",
        "eyJ",
        "ghp_",
        "abcde12345",
        "1111 1111 1111",
        "example.com",
        "TCK-",
        "123456",
        "zeb",
        "ra",
        "+49",
        " 0",
        "é",
        "🙂",
        "\n",
        "пароль: ",
        "тайна",
        EMAIL,
        CARD,
        KEYS[0],
        KEYS[7],
        KEYS[9],
        "AKIA",
        "_",
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

fn cut<'t>(text: &'t str, lengths: &[usize]) -> Vec<&'t str> {
    let (mut chunks, mut rest) = (Vec::new(), text);
    for length in lengths.iter().cycle().take_while(|_| !lengths.is_empty()) {
        let (chunk, after) = rest.split_at(rest.ceil_char_boundary((*length).min(rest.len())));
        chunks.push(chunk);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    chunks.push(rest);
    chunks
}

proptest! {
    #[test]
    fn any_chunking_gives_what_the_rules_say(text in text(), lengths in prop::collection::vec(1_usize..30, 0..8)) {
        let redact = shared();
        let whole = redact.apply(&text);
        prop_assert_eq!(&whole, &oracle(redact, &text));
        prop_assert_eq!(&stream(redact, cut(&text, &lengths)), &whole);
        prop_assert_eq!(&stream(redact, chars(&text)), &whole);
    }

    #[test]
    fn patterns_that_share_their_beginning_are_found_in_any_chunking(
        text in "[ab-]{0,60}", lengths in prop::collection::vec(1_usize..9, 0..5),
    ) {
        static AWKWARD: LazyLock<[Redact; 4]> = LazyLock::new(|| [
            &["-?a{2}b", "b{0,3}(?:ab){1,2}-", "(?:a|-?){2}bb"][..],
            &["(?:a{1,3}b){1,3}-", "a-|a-[ab]{3,5}a", r"\bab?\b"],
            &["a{1,40}-b", "(?:b?a?){3}-{2}", "^[ab]{1,9}--|b$"],
            &["(?:|-)a{0,3}b"],
        ].map(|all| {
            let named = all.iter().enumerate().map(|(nth, pattern)| (nth.to_string(), pattern));
            named.fold(Redact::builder(), |all, (name, pattern)| all.pattern(&name, pattern)).build().unwrap()
        }));
        for redact in AWKWARD.iter() {
            let whole = redact.apply(&text);
            prop_assert_eq!(&whole, &oracle(redact, &text));
            prop_assert_eq!(&stream(redact, cut(&text, &lengths)), &whole);
            prop_assert_eq!(&stream(redact, chars(&text)), &whole);
        }
    }
}

fn shared() -> &'static Redact {
    static FULL: LazyLock<Redact> = LazyLock::new(full);
    &FULL
}

#[test]
fn well_known_tokens_bearers_and_passwords_in_addresses_are_taken_out() {
    let redact = Redact::builder().keys().build().unwrap();
    let body = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let key = |text: &str| assert_eq!(redact.apply(&format!("it is {text}, so")), "it is [key], so", "{text}");
    for prefix in [
        "sk-",
        "sk-ant-",
        "sk_live_",
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "hf_",
        "npm_",
        "gsk_",
        "xoxb-",
        "xapp-",
        "AIza",
        "pypi-",
        "dckr_pat_",
        "ya29.",
        "dop_v1_",
        "shpat_",
        "r8_",
    ] {
        key(&format!("{prefix}{body}"));
    }
    key("AKIAABCDEFGHIJKLMNOP");
    key(&format!("SG.{body}.{body}"));
    key(&format!("Bearer {body}"));
    key(&format!("bearer  {}", "x1".repeat(2_000)));
    key("Authorization: Bearer opaque");
    key(&format!("Bearer\t{body}"));
    key("x-api-key: abc123def456");
    key("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
    key("authorization=Basic dXNlcjpwYXNz");
    key(&format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}=="));
    for (text, safe) in [
        ("postgres://ann:s3cret@db.example.com/x", "postgres:[password]db.example.com/x"),
        ("https://0123456789abcdef0123@git.example.com/a.git", "https:[password]git.example.com/a.git"),
        ("redis://:s3cret@localhost:6379", "redis:[password]localhost:6379"),
        ("https://x-access-token:p@ss:w0rd!@git.example.com/a.git", "https:[password]git.example.com/a.git"),
    ] {
        assert_eq!(redact.apply(&format!("<{text}>")), format!("<{safe}>"));
    }
    for text in [
        "the bearer responsibilities-and-such are many",
        "https://example.com:8080/a@b and http://[::1]:80/ and // note: a@b",
        "npm_config_registry_and_other_settings_of_npm npm_ hf_ glpat-x",
        "authorization: none",
        "x-api-key: required and aws_secret_access_key = $SECRET",
        "https://ann@example.com/ and ssh://somebody-with-a-long-name@example.com",
    ] {
        assert_eq!(redact.apply(text), text);
    }
}
