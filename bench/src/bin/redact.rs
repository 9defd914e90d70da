//! Redaction of a stream, in MB/s, against running its regexes once over the whole text.

use cpu_time::ThreadTime;
use regex::Regex;
use turnbuckle::hook::{TransformOutput, Transformer};
use turnbuckle_bench::BoxError;
use turnbuckle_bench::measure::median;
use turnbuckle_hooks::Redact;

const ROUNDS: usize = 15;

/// A megabyte of prose with a secret in about every second kilobyte.
fn prose() -> String {
    let words = "The quick brown fox jumps over the lazy dog, 42 times a day; nobody knows why it does so. ";
    let secrets = ["ann@example.com", "4111 1111 1111 1111", "sk-ant-REDACTED"];
    let mut text = String::new();
    for secret in secrets.iter().cycle() {
        text.push_str(&words.repeat(22));
        text.push_str(secret);
        text.push(' ');
        if text.len() > 1_000_000 {
            return text;
        }
    }
    text
}

/// As a stream of pieces of so many bytes.
fn streamed(redact: &Redact, text: &str, size: usize) -> Result<usize, BoxError> {
    let (mut redactor, mut passed, mut notes) = (redact.redactor(), String::new(), serde_json::Map::new());
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.floor_char_boundary(size.min(rest.len())));
        redactor.chunk(piece, &mut TransformOutput::new(&mut passed, &mut notes))?;
        rest = more;
    }
    redactor.finish(&mut TransformOutput::new(&mut passed, &mut notes))?;
    Ok(passed.len())
}

/// CPU seconds of the work, in the middle of many rounds.
fn seconds(mut work: impl FnMut() -> Result<usize, BoxError>) -> Result<f64, BoxError> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let began = ThreadTime::try_now()?;
        std::hint::black_box(work()?);
        rounds.push(began.try_elapsed()?.as_secs_f64());
    }
    Ok(median(rounds))
}

#[allow(clippy::print_stdout, reason = "a measurement prints")]
fn main() -> Result<(), BoxError> {
    let (text, redact) = (prose(), Redact::standard()?);
    let mb = text.len() as f64 / 1e6;
    let all = redact.patterns().map(|pattern| format!("(?:{pattern})")).collect::<Vec<_>>().join("|");
    let regex = Regex::new(&all)?;
    let whole = seconds(|| Ok(regex.find_iter(&text).count()))?;
    println!("its regexes once over the whole text: {:.0} MB/s", mb / whole);
    for size in [5, 20, 100, 1_000_000] {
        let stream = seconds(|| streamed(&redact, &text, size))?;
        println!("a stream of pieces of {size} bytes: {:.0} MB/s, {:.2} x", mb / stream, stream / whole);
    }
    Ok(())
}
