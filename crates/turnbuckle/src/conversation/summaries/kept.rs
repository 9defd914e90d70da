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

/// How much is quoted of a message that there is no room for, in bytes.
const QUOTED: usize = 160;

/// What a message takes beside its text, in tokens.
const AROUND: u64 = 8;

/// Keeps messages word for word as far as they fit: the first one, which says what it is all about, then the newest ones. Of the
/// others the beginning is quoted, and what room is left then makes the quotations longer, in the same order. Where even a
/// short quotation does not fit, the oldest go.
pub(super) fn fit_messages(messages: &mut Vec<KeptMessage>, room: u64) {
    let Some(first) = messages.first().map(|first| first.seq) else { return };
    let mut left = room;
    let mut order: Vec<usize> = (0..messages.len()).rev().collect();
    order.sort_by_key(|place| messages[*place].seq != first);
    let mut keeps = vec![true; messages.len()];
    let mut quoted = Vec::new();
    for place in order {
        let message = &mut messages[place];
        let mut size = tokens::of_text(&message.text) + AROUND;
        let whole = message.clone();
        let is_quoted = size > left && message.text.len() > QUOTED;
        if is_quoted {
            *message = beginning(&whole, QUOTED);
            size = tokens::of_text(&message.text) + AROUND;
        }
        keeps[place] = size <= left || message.seq == first;
        if keeps[place] {
            left = left.saturating_sub(size);
            if is_quoted {
                quoted.push((place, whole, size));
            }
        }
    }
    for (place, whole, size) in quoted {
        let end = fitting(&whole.text, (left + size).saturating_sub(AROUND));
        if end > messages[place].text.len() {
            messages[place] = beginning(&whole, end);
            left = (left + size).saturating_sub(tokens::of_text(&messages[place].text) + AROUND);
        }
    }
    let mut place = 0;
    messages.retain(|_| {
        place += 1;
        keeps[place - 1]
    });
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

/// Keeps the newest texts that fit.
pub(super) fn fit_kept(kept: &mut Vec<Text>, room: u64) {
    let mut left = room;
    let mut from = kept.len();
    for (place, text) in kept.iter().enumerate().rev() {
        let size = tokens::of_text(text) + 4;
        if size > left {
            break;
        }
        left -= size;
        from = place;
    }
    kept.drain(..from);
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
    fn of_what_hooks_keep_the_newest_stays() {
        let mut kept: Vec<Text> = (0..50).map(|n| format!("fact number {n}").into()).collect();
        fit_kept(&mut kept, 60);
        assert!(kept.len() < 20 && &**kept.last().unwrap() == "fact number 49", "{kept:?}");
    }
}
