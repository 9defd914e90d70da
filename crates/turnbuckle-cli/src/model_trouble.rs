//! What to do about a model that does not answer, by what its error says.

/// What to look at, if it is something that a person can set right. The words are those of
/// [`ModelError`](turnbuckle::model::ModelError), which is all that the log keeps of it.
pub(crate) fn advice(error: &str) -> Option<&'static str> {
    let has = |words: &str| error.contains(words);
    let status = |status: u16| has(&format!("answered with status {status}"));
    Some(if has("not asked, because text had been shown") {
        "`after_text = true` in the `fallback` hook asks the other models also then, and takes the text back"
    } else if has("/v1/responses") {
        "this model calls tools only over a wire that is not spoken here: choose another, or offer none (`builtin = []` in [tools])"
    } else if status(401) || status(403) {
        "is the key right, and may it use this model?"
    } else if status(404) {
        "does the provider know the model, and is the base URL right (most end in /v1)?"
    } else if [301, 302, 307, 308].into_iter().any(status) {
        "use that address as the base URL"
    } else if status(429) {
        "the provider wants to be asked less often, or the account is used up"
    } else if has("is the base URL right") {
        "most base URLs of chat completions end in /v1, those of Anthropic's wire do not"
    } else if has("the connection to the model broke") || has("the model said nothing for") {
        "is the server there, and the way to it free?"
    } else {
        return None;
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle::model::ModelError;

    fn of_status(status: u16, message: &str) -> Option<&'static str> {
        advice(&ModelError::Status { status, message: message.into(), retry_after: None }.to_string())
    }

    #[test]
    fn what_a_person_can_set_right_is_named() {
        assert!(of_status(401, "bad key").is_some_and(|advice| advice.contains("key")));
        assert!(of_status(404, "no such model").is_some_and(|advice| advice.contains("know the model")));
        assert!(of_status(400, "use /v1/responses").is_some_and(|advice| advice.contains("tools")));
        assert!(of_status(308, "elsewhere").is_some_and(|advice| advice.contains("base URL")));
        assert!(of_status(500, "oops").is_none());
        let broken = ModelError::Transport { message: "asking h: no connection".into(), source: None };
        assert!(advice(&broken.to_string()).is_some_and(|advice| advice.contains("server")));
        let stalled = ModelError::Stalled { idle: std::time::Duration::from_secs(3) };
        assert!(advice(&stalled.to_string()).is_some());
        let (errors, not_asked) = (vec![("a".into(), broken)], vec!["b".into()]);
        let half = ModelError::ModelsFailed { errors, not_asked };
        assert!(advice(&half.to_string()).is_some_and(|advice| advice.contains("after_text = true")));
        assert!(advice("the turn has used its max_cost").is_none());
    }
}
