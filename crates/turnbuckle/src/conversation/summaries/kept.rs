//! What stays word for word beside the notes: what users said and what hooks want to keep, as far as there is room.

use std::sync::Arc;

use crate::context::tokens;
use crate::event::{Event, EventKind};
use crate::message::Text;
use crate::store::KeptMessage;

/// What a user said, if it has any text.
pub(super) fn user_message(event: &Arc<Event>) -> Option<KeptMessage> {
    let EventKind::UserMessage { content, .. } = &event.kind else { return None };
    let text = content.text();
    (!text.trim().is_empty()).then(|| KeptMessage { seq: event.seq, text: text.into(), missing: 0 })
}

/// How much is quoted of messages that there is no room for, in bytes: as much as all of them have room for together.
const QUOTED: [usize; 3] = [160, 80, 40];

/// What a message takes beside its text, in tokens.
const AROUND: u64 = 8;

fn size_of(message: &KeptMessage) -> u64 {
    tokens::of_text(&message.text) + AROUND
}

/// Keeps messages word for word as far as they fit: the first one, which says what it is all about, then the newest ones. Room for a
/// short quotation of each of the others is kept back from that, and what is left in the end makes the quotations longer, in the
/// same order. Where not even the shortest quotations fit, the oldest go. Returns how many these are.
pub(super) fn fit_messages(messages: &mut Vec<KeptMessage>, room: u64) -> u32 {
    if messages.is_empty() || messages.iter().map(size_of).sum::<u64>() <= room {
        return 0;
    }
    let whole = std::mem::take(messages);
    let quoted = |message: &KeptMessage, bytes: usize| match message.text.len() > bytes {
        true => beginning(message, bytes),
        false => message.clone(),
    };
    // The first one may have three quarters, and the others have the rest.
    let mut shown: Vec<Option<KeptMessage>> = Vec::with_capacity(whole.len());
    let first = match size_of(&whole[0]) <= room / 4 * 3 {
        true => whole[0].clone(),
        false => quoted(&whole[0], QUOTED[0]),
    };
    let mut left = room.saturating_sub(size_of(&first));
    shown.push(Some(first));
    let all_of = |bytes: usize| whole[1..].iter().map(|message| size_of(&quoted(message, bytes))).sum::<u64>();
    // A third is for messages that stay whole.
    let mut for_quotes = left / 3 * 2;
    let bytes = QUOTED.into_iter().find(|bytes| all_of(*bytes) <= for_quotes).unwrap_or(QUOTED[QUOTED.len() - 1]);
    shown.extend(whole[1..].iter().map(|message| Some(quoted(message, bytes))));
    for message in shown[1..].iter_mut().rev() {
        let size = message.as_ref().map_or(0, size_of);
        match size <= for_quotes {
            true => (left, for_quotes) = (left - size, for_quotes - size),
            false => *message = None,
        }
    }
    let newest_first = || std::iter::once(0).chain((1..whole.len()).rev());
    for is_last in [false, true] {
        for place in newest_first() {
            let Some(message) = shown[place].as_mut().filter(|message| message.missing > whole[place].missing) else {
                continue;
            };
            let size = size_of(message);
            let all = size_of(&whole[place]) <= left + size;
            let end = match (all, is_last) {
                (true, _) => whole[place].text.len(),
                (false, false) => continue,
                (false, true) => fitting(&whole[place].text, (left + size).saturating_sub(AROUND)),
            };
            if end > message.text.len() {
                *message = beginning(&whole[place], end);
                left = (left + size).saturating_sub(size_of(message));
            }
        }
    }
    messages.extend(shown.into_iter().flatten());
    u32::try_from(whole.len() - messages.len()).unwrap_or(u32::MAX)
}

/// At most so many bytes of a message.
fn beginning(message: &KeptMessage, bytes: usize) -> KeptMessage {
    let end = message.text.floor_char_boundary(bytes);
    let missing = message.missing + (message.text.len() - end) as u64;
    KeptMessage { seq: message.seq, text: message.text[..end].into(), missing }
}

/// How many bytes are looked at for each token that fits. More fit only of long runs of spaces.
const BYTES_FOR_TOKEN: u64 = 8;

/// How many bytes of the beginning of a text have at most so many tokens.
pub(super) fn fitting(text: &str, most: u64) -> usize {
    let bytes = usize::try_from(most.saturating_mul(BYTES_FOR_TOKEN)).unwrap_or(usize::MAX);
    let fits = |end: usize| tokens::of_text(&text[..end]) <= most;
    let (mut low, mut high) = (0, text.floor_char_boundary(bytes));
    if fits(high) {
        return high;
    }
    // `low` fits, `high` does not.
    loop {
        let middle = text.floor_char_boundary(low + (high - low) / 2);
        match middle {
            middle if middle <= low => return low,
            middle if fits(middle) => low = middle,
            middle => high = middle,
        }
    }
}

/// Less than this of a text is not worth showing, in tokens.
const LEAST_KEPT: u64 = 24;
/// What a text takes beside its words, in tokens.
const AROUND_KEPT: u64 = 4;
/// Stands behind what is left of a text, with the number of bytes that are missing between these.
const MISSING: (&str, &str) = ("… [", " more bytes]");

/// What was not kept as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NotKept {
    /// Texts that are gone.
    pub(super) gone: u32,
    /// Texts that were shortened, not counted those that had been shortened before.
    pub(super) shortened: u32,
}

/// Keeps the newest texts that fit. One that is larger than half of the room does not push the others out: it has half of the room
/// and what these leave.
pub(super) fn fit_kept(kept: &mut Vec<Text>, room: u64) -> NotKept {
    let size_of = |text: &str| tokens::of_text(text) + AROUND_KEPT;
    let whole = std::mem::take(kept);
    let is_large: Vec<bool> = whole.iter().map(|text| size_of(text) > room / 2).collect();
    let newest_first = || (0..whole.len()).rev();
    let reserved = if is_large.contains(&true) { room / 2 } else { 0 };
    let mut shown: Vec<Option<Text>> = vec![None; whole.len()];
    let (mut left, mut shortened) = (room, 0);
    for place in newest_first().filter(|place| !is_large[*place]) {
        let size = size_of(&whole[place]);
        if size + reserved <= left {
            shown[place] = Some(whole[place].clone());
            left -= size;
        }
    }
    for place in newest_first().filter(|place| is_large[*place]) {
        let text = &whole[place];
        let fits = match size_of(text) <= left {
            true => Some(text.clone()),
            false if left >= LEAST_KEPT => {
                let is_first = parts(text).1 == 0;
                let short = shortened_to(text, left - AROUND_KEPT);
                shortened += u32::from(is_first && short.is_some());
                short
            }
            false => None,
        };
        left = left.saturating_sub(fits.as_ref().map_or(0, |text| size_of(text)));
        shown[place] = fits;
    }
    kept.extend(shown.into_iter().flatten());
    NotKept { gone: u32::try_from(whole.len() - kept.len()).unwrap_or(u32::MAX), shortened }
}

/// A text without the note about what is missing, and how many bytes that is.
fn parts(text: &str) -> (&str, usize) {
    let missing = |text: &str| text.strip_suffix(MISSING.1)?.parse().ok();
    let note = text.rsplit_once(MISSING.0).and_then(|(before, note)| Some((before, missing(note)?)));
    note.unwrap_or((text, 0))
}

/// The beginning of a text and how much is missing; `None` if there is no room for any of it.
fn shortened_to(text: &str, most: u64) -> Option<Text> {
    let (text, missing) = parts(text);
    let note = |end: usize| format!("{}{}{}", MISSING.0, missing + text.len() - end, MISSING.1);
    let end = fitting(text, most.saturating_sub(tokens::of_text(&note(0)) + 1));
    (end > 0).then(|| format!("{}{}", &text[..end], note(end)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64, text: &str) -> KeptMessage {
        KeptMessage { seq, text: text.into(), missing: 0 }
    }

    #[test]
    fn the_first_message_and_the_newest_ones_stay_word_for_word_and_others_are_quoted() {
        let long = "word ".repeat(100);
        let mut messages: Vec<_> = (1..=10).map(|seq| message(seq, &format!("{seq} {long}"))).collect();
        fit_messages(&mut messages, 450);
        assert_eq!(messages[0].seq, 1);
        assert_eq!((messages[0].missing, messages.last().unwrap().missing), (0, 0));
        assert!(messages.iter().any(|message| message.missing > 0), "{messages:?}");
        assert!(messages.iter().map(|message| tokens::of_text(&message.text)).sum::<u64>() <= 450);
        let again = messages.clone();
        fit_messages(&mut messages, 450);
        assert_eq!(messages, again, "what fits is not cut again");
    }

    #[test]
    fn of_messages_that_do_not_fit_beginnings_are_quoted_and_those_that_are_missing_are_counted() {
        let long = "word ".repeat(60);
        for (count, room) in [(18, 700), (60, 900), (200, 900), (200, 60)] {
            let mut messages: Vec<_> = (1..=count).map(|seq| message(seq, &format!("{seq} {long}"))).collect();
            let missing = fit_messages(&mut messages, room);
            assert_eq!(messages.len() as u64 + u64::from(missing), count);
            assert_eq!(missing == 0, count == 18, "{missing} of {count} are missing");
            assert_eq!(messages[0].seq, 1);
            if room > 100 {
                assert!(messages[0].missing == 0 && messages.last().unwrap().missing == 0, "{messages:?}");
                let used: u64 = messages.iter().map(size_of).sum();
                assert!(used <= room, "{used} of {room}");
            }
            let again = messages.clone();
            assert_eq!(fit_messages(&mut messages, room.max(200)), 0);
            assert_eq!(messages, again, "what fits is not cut again");
        }
    }

    #[test]
    fn a_message_that_does_not_fit_has_the_room_that_is_left() {
        let long = "word ".repeat(1_000);
        let mut messages = vec![message(1, "hello"), message(5, &long), message(9, "and now?")];
        fit_messages(&mut messages, 450);
        let sizes: Vec<_> = messages.iter().map(|message| (message.text.len(), message.missing)).collect();
        assert_eq!((sizes[0], sizes[2]), ((5, 0), (8, 0)));
        assert_eq!(sizes[1].0 as u64 + sizes[1].1, long.len() as u64);
        let used: u64 = messages.iter().map(|message| tokens::of_text(&message.text) + AROUND).sum();
        assert!((440..=450).contains(&used), "{used}");
        let again = messages.clone();
        fit_messages(&mut messages, 450);
        assert_eq!(messages, again, "what fits is not cut again");
        fit_messages(&mut messages, 300);
        assert_eq!(messages[1].text.len() as u64 + messages[1].missing, long.len() as u64);
    }

    #[test]
    fn what_fits_of_a_text_is_cut_between_characters() {
        for text in ["é".repeat(900), "日本語".repeat(300), " ".repeat(5_000), "a b".into(), String::new()] {
            for most in [0, 1, 7, 200] {
                let end = fitting(&text, most);
                assert!(tokens::of_text(&text[..end]) <= most, "{end} of {}", text.len());
            }
        }
    }

    #[test]
    fn of_what_hooks_keep_the_newest_stays_and_what_is_gone_is_counted() {
        let mut kept: Vec<Text> = (0..50).map(|n| format!("fact number {n}").into()).collect();
        let not_kept = fit_kept(&mut kept, 60);
        assert!(kept.len() < 20 && &**kept.last().unwrap() == "fact number 49", "{kept:?}");
        assert_eq!(not_kept, NotKept { gone: 50 - kept.len() as u32, shortened: 0 });
    }

    #[test]
    fn a_text_that_is_too_large_to_be_kept_is_shortened_and_pushes_no_other_out() {
        let long = "word ".repeat(2_000);
        for place in 0..4 {
            let mut kept: Vec<Text> = (0..3).map(|n| format!("fact number {n}").into()).collect();
            kept.insert(place, long.as_str().into());
            assert_eq!(fit_kept(&mut kept, 300), NotKept { gone: 0, shortened: 1 });
            assert_eq!(kept.iter().filter(|text| text.starts_with("fact number")).count(), 3);
            let used: u64 = kept.iter().map(|text| tokens::of_text(text) + AROUND_KEPT).sum();
            assert!((250..=300).contains(&used), "{used}");
            // What is missing is counted once, however often it is shortened.
            assert_eq!(fit_kept(&mut kept, 200), NotKept::default());
            let (shown, missing) = parts(&kept[place]);
            assert_eq!(shown.len() + missing, long.len());
            assert_eq!(kept[place].matches("more bytes").count(), 1);
        }
        let mut two: Vec<Text> = vec![long.as_str().into(), long.as_str().into()];
        assert_eq!(fit_kept(&mut two, 300), NotKept { gone: 1, shortened: 1 });
    }
}
