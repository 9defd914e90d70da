//! Templates with placeholders: `{user}`, `{/path}`. Double braces are literal braces.

use std::borrow::Cow;

use super::OptionError;

/// A text with placeholders, checked when it is parsed.
///
/// ```
/// use turnbuckle::hooks::Template;
/// let template = Template::parse("text", "Hello, {user}!", &["user"])?;
/// assert_eq!(template.fill(|_| "ann".into()), "Hello, ann!");
/// # Ok::<(), turnbuckle::hooks::OptionError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Place(String),
}

impl Template {
    /// Parses the text of an option. Every placeholder must be one of `places`, or begin with `/` if `"/"` is among them.
    pub fn parse(option: &'static str, text: &str, places: &[&str]) -> Result<Self, OptionError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, behind) = rest.split_at(at);
            plain.push_str(before);
            if behind.starts_with("{{") || behind.starts_with("}}") {
                plain.push_str(&behind[..1]);
                rest = &behind[2..];
                continue;
            }
            let place = behind.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let Some((place, after)) = place else {
                return Err(OptionError::new(
                    option,
                    "has a brace without its partner; write it double to mean itself",
                ));
            };
            let pointer = place.starts_with('/') && places.contains(&"/");
            if !pointer && !places.contains(&place) {
                let known = places.iter().map(|place| format!("{{{place}}}")).collect::<Vec<_>>().join(", ");
                return Err(OptionError::new(option, format!("has {{{place}}}, which is none of: {known}")));
            }
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            pieces.push(Piece::Place(place.to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces))
    }

    /// Fills every placeholder. Braces in the values are not interpreted.
    pub fn fill<'v>(&self, value: impl Fn(&str) -> Cow<'v, str>) -> String {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Place(place) => out.push_str(&value(place)),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_once_and_doubled_braces_stand_for_themselves() {
        let template = Template::parse("t", "{{{a}}} and {/x/y}", &["a", "/"]).unwrap();
        let filled = template.fill(|place| Cow::Owned(format!("<{place}{{a}}>")));
        assert_eq!(filled, "{<a{a}>} and </x/y{a}>");
    }

    #[test]
    fn unknown_places_and_lone_braces_are_refused() {
        assert!(Template::parse("t", "{usr}", &["user"]).unwrap_err().to_string().contains("none of: {user}"));
        assert!(Template::parse("t", "{/x}", &["user"]).is_err());
        for lone in ["{", "a }", "{a"] {
            assert!(Template::parse("t", lone, &["a"]).is_err(), "{lone}");
        }
    }
}
