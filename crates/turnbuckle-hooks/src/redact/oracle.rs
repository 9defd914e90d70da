//! What redaction is measured by: the rules without automata and without chunks.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind, Look};

use super::Redact;
use super::patterns::Pattern;

/// Tries every start and every end.
pub(super) fn oracle(redact: &Redact, text: &str) -> String {
    let (mut out, mut at) = (String::new(), 0);
    while let Some(c) = text[at..].chars().next() {
        match longest(redact, text, at) {
            Some((end, pattern)) => {
                out.push_str(&pattern.label);
                at = end + pattern.tail.take(&text[end..]).0;
            }
            None => {
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

fn longest<'r>(redact: &'r Redact, text: &str, at: usize) -> Option<(usize, &'r Pattern)> {
    let bytes = text.as_bytes();
    let before = at.checked_sub(1).map(|at| bytes[at]);
    let mut best: Option<(usize, &Pattern)> = None;
    for pattern in &redact.engine.patterns {
        if !before.is_none_or(pattern.follows) {
            continue;
        }
        let counts = |end: &usize| (pattern.guard)(&bytes[at..*end], bytes.get(*end).copied());
        if let Some(end) = ends(&pattern.hir, text, at).into_iter().rev().find(counts)
            && best.is_none_or(|(longest, _)| end > longest)
        {
            best = Some((end, pattern));
        }
    }
    best
}

/// Where a match of `hir` that begins at `from` may end.
fn ends(hir: &Hir, text: &str, from: usize) -> BTreeSet<usize> {
    let each = |hir: &Hir, from: BTreeSet<usize>| from.into_iter().flat_map(|at| ends(hir, text, at)).collect();
    let word = |at: Option<usize>| {
        at.and_then(|at| text.as_bytes().get(at)).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    };
    let here = BTreeSet::from([from]);
    let ok = match hir.kind() {
        HirKind::Empty => true,
        HirKind::Literal(literal) => {
            let hit = text.as_bytes()[from..].starts_with(&literal.0);
            return hit.then_some(from + literal.0.len()).into_iter().collect();
        }
        HirKind::Class(class) => {
            let next = text[from..].chars().next();
            let hit = next.filter(|c| match class {
                Class::Unicode(class) => class.iter().any(|range| (range.start()..=range.end()).contains(c)),
                Class::Bytes(class) => {
                    class.iter().any(|range| (char::from(range.start())..=char::from(range.end())).contains(c))
                }
            });
            return hit.map(|c| from + c.len_utf8()).into_iter().collect();
        }
        HirKind::Look(Look::WordAscii) => word(from.checked_sub(1)) != word(Some(from)),
        HirKind::Look(Look::Start) => from == 0,
        HirKind::Look(Look::End) => from == text.len(),
        HirKind::Look(other) => panic!("{other:?}"),
        HirKind::Capture(capture) => return ends(&capture.sub, text, from),
        HirKind::Concat(parts) => return parts.iter().fold(here, |from, part| each(part, from)),
        HirKind::Alternation(parts) => return parts.iter().flat_map(|part| ends(part, text, from)).collect(),
        HirKind::Repetition(repetition) => {
            let (mut all, mut now) = (BTreeSet::new(), here);
            for count in 0..=repetition.max.unwrap() {
                if count >= repetition.min {
                    all.extend(&now);
                }
                now = each(&repetition.sub, now);
            }
            return all;
        }
    };
    if ok { here } else { BTreeSet::new() }
}
