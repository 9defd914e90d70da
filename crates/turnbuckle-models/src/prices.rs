//! What models cost: a table in TOML, which the caller may replace.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use turnbuckle::message::Usage;

/// The built-in table. It is part of the program and a test parses it, so it cannot fail to parse here.
static BUILTIN: LazyLock<Arc<Prices>> =
    LazyLock::new(|| Arc::new(Prices::parse(include_str!("prices.toml")).unwrap_or_default()));

/// The price of a model, in dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For input tokens.
    pub input: f64,
    /// For output tokens.
    pub output: f64,
    /// For input that is read from the cache. The price of input if not given.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// For input that is written to the cache. The price of input if not given.
    #[serde(default)]
    pub cache_write: Option<f64>,
    /// The longest reply of the model, in tokens.
    #[serde(default)]
    pub max_output: Option<u32>,
    /// How many tokens a request may have.
    #[serde(default)]
    pub context: Option<u64>,
    /// The price of a whole request whose input is long.
    #[serde(default)]
    pub long: Option<LongPrice>,
}

/// The price of a request whose input is long, in dollars for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrice {
    /// It applies to a request with more input tokens than this.
    pub above: u64,
    /// For input tokens.
    pub input: f64,
    /// For output tokens.
    pub output: f64,
    /// For input that is read from the cache. The price of input if not given.
    #[serde(default)]
    pub cache_read: Option<f64>,
    /// For input that is written to the cache. The price of input if not given.
    #[serde(default)]
    pub cache_write: Option<f64>,
}

impl Price {
    /// The price of a model that costs nothing.
    pub const FREE: Self = Self {
        input: 0.0,
        output: 0.0,
        cache_read: None,
        cache_write: None,
        max_output: None,
        context: None,
        long: None,
    };

    /// The cost of one request, in dollars.
    pub fn cost(&self, usage: &Usage) -> f64 {
        let price = self.at(usage.input);
        let fresh = usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        // Numbers of tokens are far below 2^53, up to which a float is exact.
        let of = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        of(fresh, price.input)
            + of(usage.cache_read, price.cache_read.unwrap_or(price.input))
            + of(usage.cache_write, price.cache_write.unwrap_or(price.input))
            + of(usage.output, price.output)
    }

    /// The prices that apply to a request with this many input tokens.
    fn at(&self, input: u64) -> LongPrice {
        let Self { input: fresh, output, cache_read, cache_write, .. } = *self;
        let usual = LongPrice { above: 0, input: fresh, output, cache_read, cache_write };
        self.long.filter(|long| input > long.above).unwrap_or(usual)
    }

    fn numbers(&self) -> impl Iterator<Item = f64> {
        let given = |price: LongPrice| [Some(price.input), Some(price.output), price.cache_read, price.cache_write];
        given(self.at(0)).into_iter().chain(self.long.into_iter().flat_map(given)).flatten()
    }
}

/// Prices by the name of the model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    models: BTreeMap<String, Price>,
}

/// Why a table of prices cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// The text is not TOML of this form.
    #[error("the prices are not valid: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A price is negative, infinite or not a number. Holds the name of the model.
    #[error("the price of {0} is not a number of dollars")]
    Number(String),
}

impl Prices {
    /// The built-in prices.
    pub fn builtin() -> Arc<Self> {
        BUILTIN.clone()
    }

    /// Parses a table: `[models]`, and for each name `{ input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }`.
    pub fn parse(text: &str) -> Result<Self, PricesError> {
        let prices: Self = toml::from_str(text)?;
        let sound = |number: f64| number.is_finite() && number >= 0.0;
        for (name, price) in &prices.models {
            if !price.numbers().all(sound) {
                return Err(PricesError::Number(name.clone()));
            }
        }
        Ok(prices)
    }

    /// Adds the prices of `other` for models that have none here.
    pub fn over(mut self, other: &Self) -> Self {
        for (name, price) in &other.models {
            self.models.entry(name.clone()).or_insert(*price);
        }
        self
    }

    /// The price of a model, by its name or by the name without its date. Gateways put the maker in front and write version numbers
    /// with a dot: `anthropic/claude-sonnet-5.5`.
    pub fn of(&self, model: &str) -> Option<&Price> {
        let exact = |model: &str| self.models.get(model).or_else(|| self.models.get(undated(model)));
        exact(model).or_else(|| {
            let (_, name) = model.rsplit_once('/')?;
            exact(name).or_else(|| exact(&name.replace('.', "-")))
        })
    }
}

/// The name without its date or `-latest`: `claude-sonnet-4-5-20250929`, `gpt-4o-2024-08-06`, `claude-3-7-sonnet-latest`.
fn undated(model: &str) -> &str {
    if let Some(name) = model.strip_suffix("-latest") {
        return name;
    }
    let name = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    let date: Vec<&str> = model[name.len()..].split('-').filter(|word| !word.is_empty()).collect();
    let words = match date.as_slice() {
        [.., day] if day.len() == 8 => 1,
        [.., year, month, day] if (year.len(), month.len(), day.len()) == (4, 2, 2) => 3,
        _ => return model,
    };
    let cut = model.rmatch_indices('-').nth(words - 1).map_or(model.len(), |(at, _)| at);
    &model[..cut]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_that_comes_along_can_be_read() {
        let prices = Prices::parse(include_str!("prices.toml")).unwrap();
        assert!(prices.models.len() > 20);
        assert_eq!(*Prices::builtin(), prices);
        for (name, price) in &prices.models {
            assert!(price.context.is_some_and(|tokens| tokens >= 100_000), "{name} has no `context`");
        }
    }

    #[test]
    fn a_name_stands_for_its_dated_versions_and_for_nothing_else() {
        let prices = Prices::builtin();
        for known in [
            "claude-sonnet-4-5",
            "claude-sonnet-4-5-20250929",
            "gpt-4o-2024-08-06",
            "openai/gpt-5",
            "claude-3-7-sonnet-latest",
            "claude-opus-4-20250514",
            "anthropic/claude-haiku-4-5-20251001",
            "anthropic/claude-sonnet-5.5",
        ] {
            assert!(prices.of(known).is_some(), "{known}");
        }
        for unknown in ["claude-sonnet-4-9", "gpt-5.9", "gpt-4o-audio", "gpt", "", "-", "2024-01-01"] {
            assert!(prices.of(unknown).is_none(), "{unknown}");
        }
        assert_eq!(prices.of("gpt-5-2025-08-07"), prices.of("gpt-5"));
    }

    #[test]
    fn cached_tokens_are_part_of_the_input_and_have_prices_of_their_own() {
        let usage = Usage { input: 1_000_000, output: 100_000, cache_read: 600_000, cache_write: 200_000 };
        let cost = Prices::builtin().of("claude-sonnet-4-5").unwrap().cost(&usage);
        assert!((cost - (0.2 * 3.0 + 0.6 * 0.3 + 0.2 * 3.75 + 0.1 * 15.0)).abs() < 1e-9, "{cost}");
        assert!(Price::FREE.cost(&usage).abs() < f64::EPSILON);
    }

    #[test]
    fn a_long_input_makes_the_whole_request_dearer() {
        let price = *Prices::builtin().of("claude-haiku-5-5").unwrap();
        let of = |input| price.cost(&Usage { input, output: 1_000_000, ..Usage::default() });
        assert!((of(100_000) - 0.51).abs() < 1e-9, "{}", of(100_000));
        assert!((of(200_000) - 2.6).abs() < 1e-9, "{}", of(200_000));
    }

    #[test]
    fn an_own_table_wins_and_a_bad_one_is_refused() {
        let own = Prices::parse("[models]\ngpt-5 = { input = 1.0, output = 2.0 }").unwrap().over(&Prices::builtin());
        assert_eq!(own.of("gpt-5").map(|price| price.output), Some(2.0));
        assert!(own.of("gpt-4o").is_some());
        for bad in [
            "[models]\nx = 1",
            "[models]\nx = { input = 1.0 }",
            "[modles]",
            "[models]\nx = { input = -1.0, output = 0.0 }",
            "[models]\nx = { input = nan, output = 0.0 }",
            "[models]\nx = { input = 1.0, output = 1.0, ouput = 2.0 }",
            "[models]\nx = { input = 1.0, output = 1.0, long = { above = 9, input = -1.0, output = 1.0 } }",
            "[models]\nx = { input = 1.0, output = 1.0, long = { input = 1.0, output = 1.0 } }",
        ] {
            assert!(Prices::parse(bad).is_err(), "{bad}");
        }
    }
}
