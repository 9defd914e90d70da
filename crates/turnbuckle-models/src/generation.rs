//! The generation of a model, by the number in its name. What a provider's API accepts changes from one to the next.

/// Major and minor number, which compare in this order.
pub(crate) type Generation = (u32, u32);

/// `claude-sonnet-4-5-20250929` is 4.5, `claude-opus-5` is 5.0, `gpt-6.1-terra` is 6.1; `family` is `claude` or `gpt`. Gateways
/// put the maker's name and a slash in front.
pub(crate) fn generation(family: &str, model: &str) -> Option<Generation> {
    let name = model.rsplit('/').next().unwrap_or(model);
    let mut words = name.strip_prefix(family)?.split(['-', '.']).skip_while(|word| number(word).is_none());
    let major = number(words.next()?)?;
    Some((major, words.next().and_then(number).unwrap_or(0)))
}

/// A number of one or two digits. Years and dates have more, and are no generation.
fn number(word: &str) -> Option<u32> {
    (1..=2).contains(&word.len()).then(|| word.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_read_from_every_way_of_writing_it() {
        for (model, expected) in [
            ("claude-sonnet-4-5-20250929", Some((4, 5))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("claude-3-7-sonnet-latest", Some((3, 7))),
            ("claude-3-haiku-20240307", Some((3, 0))),
            ("claude-opus-5", Some((5, 0))),
            ("anthropic/claude-sonnet-5.5", Some((5, 5))),
            ("claude", None),
            ("claude-test", None),
            ("gpt-5.6", None),
            ("", None),
        ] {
            assert_eq!(generation("claude", model), expected, "{model}");
        }
        for (model, expected) in [
            ("gpt-6.1-terra", Some((6, 1))),
            ("gpt-5-2025-08-07", Some((5, 0))),
            ("openai/gpt-5.6-luna", Some((5, 6))),
            ("gpt-4.1-mini", Some((4, 1))),
            ("gpt-4o", None),
            ("gpt-oss-120b", None),
            ("o3", None),
        ] {
            assert_eq!(generation("gpt", model), expected, "{model}");
        }
    }
}
