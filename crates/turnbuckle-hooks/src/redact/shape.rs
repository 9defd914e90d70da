//! What the shape of a pattern says: its longest match, its tail, and a looser twin of it that does not count.

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};

/// Up to which count the looser pattern keeps a repetition exact.
const COUNTED: u32 = 32;

/// Regex syntax, with captures dropped and word boundaries made ASCII (the automata know no others).
pub(super) fn parse(pattern: &str) -> Result<Hir, Box<regex_syntax::Error>> {
    let hir = ParserBuilder::new().build().parse(pattern).map_err(Box::new)?;
    Ok(plain(&hir))
}

fn plain(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Look(look) => Hir::look(match look {
            Look::WordUnicode => Look::WordAscii,
            Look::WordUnicodeNegate => Look::WordAsciiNegate,
            Look::WordStartUnicode => Look::WordStartAscii,
            Look::WordEndUnicode => Look::WordEndAscii,
            Look::WordStartHalfUnicode => Look::WordStartHalfAscii,
            Look::WordEndHalfUnicode => Look::WordEndHalfAscii,
            other => *other,
        }),
        HirKind::Capture(capture) => plain(&capture.sub),
        HirKind::Repetition(r) => repeat(plain(&r.sub), r.min, r.max, r.greedy),
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(plain).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(plain).collect()),
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) => hir.clone(),
    }
}

fn repeat(sub: Hir, min: u32, max: Option<u32>, greedy: bool) -> Hir {
    Hir::repetition(Repetition { min, max, greedy, sub: Box::new(sub) })
}

/// A looser pattern that matches wherever `hir` does, and in more places: long repetitions are not counted to their end.
/// Its automaton is small even for high bounds.
pub(super) fn loosen(hir: &Hir) -> Hir {
    fresh(&uncounted(hir))
}

fn uncounted(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Repetition(r) => {
            let exact = r.max.is_some_and(|max| max <= 1 || (max == r.min && max <= COUNTED));
            let (min, max) = if exact { (r.min, r.max) } else { (r.min.min(COUNTED), None) };
            repeat(uncounted(&r.sub), min, max, r.greedy)
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(uncounted).collect()),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(uncounted).collect()),
        _ => hir.clone(),
    }
}

/// The same language, written so that the states in which a match begins are not reached again: `a+b` as `aa*b`, `-?a`
/// as `-a|a`. Then an automaton in its first state has not begun a match.
fn fresh(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Repetition(r) if r.min == 0 => Hir::alternation(vec![begun(r), Hir::empty()]),
        HirKind::Repetition(r) => begun(r),
        HirKind::Alternation(parts) => Hir::alternation(parts.iter().map(fresh).collect()),
        HirKind::Concat(parts) => fresh_concat(parts),
        _ => hir.clone(),
    }
}

fn begun(r: &Repetition) -> Hir {
    let rest = repeat((*r.sub).clone(), r.min.saturating_sub(1), r.max.map(|max| max.saturating_sub(1)), r.greedy);
    Hir::concat(vec![fresh(&r.sub), rest])
}

fn fresh_concat(parts: &[Hir]) -> Hir {
    let Some((first, rest)) = parts.split_first() else { return Hir::empty() };
    let then = |head: Hir| Hir::concat(std::iter::once(head).chain(rest.iter().cloned()).collect());
    match first.kind() {
        HirKind::Look(_) | HirKind::Empty => Hir::concat(vec![first.clone(), fresh_concat(rest)]),
        HirKind::Repetition(r) if r.min == 0 => Hir::alternation(vec![then(begun(r)), fresh_concat(rest)]),
        _ => then(fresh(first)),
    }
}

/// The characters that extend a match when they follow it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tail {
    ascii: u128,
    wide: Vec<(char, char)>,
    /// A character that extends the match only if one of the others follows it.
    joint: Option<char>,
}

impl Tail {
    /// The characters of the last repetition in a pattern.
    pub(super) fn of(hir: &Hir) -> Self {
        let mut tail = Self::default();
        tail.add_end(hir);
        tail
    }

    /// Adds a character that joins two runs.
    pub(super) fn joined_by(mut self, joint: char) -> Self {
        self.joint = Some(joint);
        self
    }

    /// All characters of a class.
    pub(super) fn all(hir: &Hir) -> Self {
        let mut tail = Self::default();
        tail.add_class(hir);
        tail
    }

    fn add_end(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Repetition(r) if r.max.is_none_or(|max| max > 1) && is_character(&r.sub) => self.add_class(&r.sub),
            HirKind::Repetition(r) => self.add_end(&r.sub),
            HirKind::Alternation(parts) => parts.iter().for_each(|part| self.add_end(part)),
            HirKind::Concat(parts) => {
                for part in parts.iter().rev() {
                    self.add_end(part);
                    if part.properties().minimum_len() != Some(0) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }

    fn add_class(&mut self, hir: &Hir) {
        match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => class.iter().for_each(|r| self.add(r.start(), r.end())),
            HirKind::Class(Class::Bytes(class)) => {
                class.iter().for_each(|r| self.add(r.start().into(), r.end().into()));
            }
            HirKind::Literal(literal) => {
                let mut chars = std::str::from_utf8(&literal.0).unwrap_or_default().chars();
                if let (Some(only), None) = (chars.next(), chars.next()) {
                    self.add(only, only);
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, first: char, last: char) {
        (u32::from(first)..=u32::from(last).min(127)).for_each(|at| self.ascii |= 1 << at);
        if last > '\x7f' {
            self.wide.push((first.max('\u{80}'), last));
        }
    }

    fn has(&self, c: char) -> bool {
        if c.is_ascii() {
            return (self.ascii >> u32::from(c)) & 1 == 1;
        }
        self.wide.iter().any(|(first, last)| (*first..=*last).contains(&c))
    }

    /// How many bytes of `text` extend the match, and whether further text could extend it as well.
    pub(super) fn take(&self, text: &str) -> (usize, bool) {
        let mut taken = 0;
        let mut chars = text.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if self.has(c) {
                taken = at + c.len_utf8();
            } else if Some(c) == self.joint {
                match chars.peek() {
                    Some((_, next)) if self.has(*next) => {}
                    Some(_) => return (taken, false),
                    None => return (taken, true),
                }
            } else {
                return (taken, false);
            }
        }
        (taken, self.ascii != 0 || !self.wide.is_empty())
    }
}

fn is_character(hir: &Hir) -> bool {
    matches!(hir.kind(), HirKind::Class(_) | HirKind::Literal(_))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn take(pattern: &str, text: &str) -> (usize, bool) {
        Tail::of(&parse(pattern).unwrap()).take(text)
    }

    #[test]
    fn the_tail_is_what_the_last_repetition_repeats() {
        assert_eq!(take("TCK-[0-9]{6}", "78 "), (2, false));
        assert_eq!(take("TCK-[0-9]{6}", "78"), (2, true));
        assert_eq!(take("x[0-9]{2,4}(?:y[a-z]{2})?", "7a9-"), (3, false));
        assert_eq!(take("(é{2,3}|[а-я]{2})", "ééжx"), (6, false));
        assert_eq!(take("v[0-9]", "1"), (0, false), "one character is no repetition");
    }

    #[test]
    fn a_joint_is_taken_only_between() {
        let tail = Tail::of(&parse("[a-z]{2,3}").unwrap()).joined_by('.');
        assert_eq!(tail.take(".ab. "), (3, false));
        assert_eq!(tail.take(".ab."), (3, true));
        assert_eq!(tail.take("..ab"), (0, false));
    }

    #[test]
    fn a_looser_pattern_never_comes_back_to_its_beginning() {
        for (pattern, loose) in [("a{1,9}b", "aa*b"), ("-?[0-9]{3}", "-[0-9]{3}|[0-9][0-9]{2}"), ("x{2,5}", "xx+")] {
            assert_eq!(loosen(&parse(pattern).unwrap()), parse(loose).unwrap(), "{pattern}");
        }
    }
}
