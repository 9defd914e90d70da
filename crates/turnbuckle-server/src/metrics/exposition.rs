//! The text format of Prometheus, version 0.0.4.

use std::collections::HashSet;

/// What the answer is.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of numbers a family has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// A number that a program adds to the metrics of its server.
pub(crate) struct Gauge {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) value: Box<dyn Fn() -> Option<f64> + Send + Sync>,
}

impl Gauge {
    /// A name has letters, digits, `_` and `:` only, and does not begin with a digit: other characters become `_`.
    pub(crate) fn new(name: &str, help: String, value: Box<dyn Fn() -> Option<f64> + Send + Sync>) -> Self {
        let is_good = |(place, one): (usize, char)| {
            let is_good = one.is_ascii_alphabetic() || matches!(one, '_' | ':') || (place > 0 && one.is_ascii_digit());
            if is_good { one } else { '_' }
        };
        let name: String = name.chars().enumerate().map(is_good).collect();
        Self { name: if name.is_empty() { "_".to_owned() } else { name }, help, value }
    }
}

/// The text, as it is written. A family is written in one piece.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    text: String,
    families: HashSet<String>,
}

impl Exposition {
    /// Begins a family. False if there is one of this name already: two would make the whole text invalid.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) -> bool {
        if !self.families.insert(name.to_owned()) {
            return false;
        }
        self.text.push_str("# HELP ");
        self.text.push_str(name);
        self.text.push(' ');
        escape(&mut self.text, help, false);
        self.text.push_str(&format!("\n# TYPE {name} {}\n", kind.name()));
        true
    }

    /// One line of the family that was begun last.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.text.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, value, true);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let written = match value {
            value if value == f64::INFINITY => "+Inf".to_owned(),
            value if value == f64::NEG_INFINITY => "-Inf".to_owned(),
            value => value.to_string(),
        };
        self.text.push(' ');
        self.text.push_str(&written);
        self.text.push('\n');
    }

    /// A family of one number.
    pub(crate) fn single(&mut self, name: &str, kind: Kind, help: &str, value: f64) {
        if self.family(name, kind, help) {
            self.sample(name, &[], value);
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

fn escape(text: &mut String, value: &str, is_quoted: bool) {
    for one in value.chars() {
        match one {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if is_quoted => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hooks_cannot_break_out_of_their_label() {
        let mut out = Exposition::default();
        out.family("a", Kind::Gauge, "one\\ntwo\nthree");
        out.sample("a", &[("hook", "x\"} 1\na 2 \\"), ("point", "p")], f64::INFINITY);
        let text = out.into_text();
        assert_eq!(
            text,
            "# HELP a one\\\\ntwo\\nthree\n# TYPE a gauge\na{hook=\"x\\\"} 1\\na 2 \\\\\",point=\"p\"} +Inf\n"
        );
    }

    #[test]
    fn a_family_is_written_once_and_a_name_is_made_valid() {
        let mut out = Exposition::default();
        out.single("a", Kind::Gauge, "", 1.0);
        out.single("a", Kind::Gauge, "", 2.0);
        assert_eq!(out.into_text(), "# HELP a \n# TYPE a gauge\na 1\n");
        let gauge = |name| Gauge::new(name, String::new(), Box::new(|| None)).name;
        assert_eq!([gauge("9 lives\n"), gauge(""), gauge("ok:9")], ["__lives_", "_", "ok:9"]);
    }
}
