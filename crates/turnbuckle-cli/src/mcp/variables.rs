//! `${NAME}` and `${NAME:-default}` in what a file says about a server, so that no secret has to stand in the file.

/// A variable without a value or a default.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unset {
    pub(super) name: String,
}

/// The text with the values of the variables of this process.
pub(super) fn put_in(text: &str) -> Result<String, Unset> {
    with(text, |name| std::env::var(name).ok())
}

fn with(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, Unset> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${") {
        out += before;
        let Some((inner, after)) = behind.split_once('}') else {
            out += "${";
            rest = behind;
            continue;
        };
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (inner, None),
        };
        out += &value(name).or(default).ok_or_else(|| Unset { name: name.to_owned() })?;
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_and_what_is_missing_is_named() {
        let value = |name: &str| (name == "A").then(|| "x".to_owned());
        for (text, expected) in
            [("plain", "plain"), ("a${A}b${A}", "axbx"), ("${B:-y}", "y"), ("${A:-y}", "x"), ("${", "${"), ("$A", "$A")]
        {
            assert_eq!(with(text, value).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(with("${B}", value), Err(Unset { name: "B".to_owned() }));
    }
}
