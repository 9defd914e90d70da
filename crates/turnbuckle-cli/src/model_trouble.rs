//! What to do about a model that does not answer, by the way in which the call failed.

use turnbuckle::event::ModelErrorKind;

/// What to look at, if it is something that a person can set right. `words` are what the provider or the client said; only
/// what a provider tells in no other way is looked for in them.
pub(crate) fn advice(status: Option<u16>, error: ModelErrorKind, words: &str) -> Option<&'static str> {
    Some(match (status, error) {
        // Providers have no code for this: they name the other API in their message.
        (Some(_), _) if words.contains("/v1/responses") => {
            "this model calls tools only over a wire that is not spoken here: choose another, or offer none (`builtin = []` in [tools])"
        }
        (_, ModelErrorKind::TextShown) => {
            "`after_text = true` in the `fallback` hook asks the other models also then, and takes the text back"
        }
        (Some(401 | 403), _) => "is the key right, and may it use this model?",
        (Some(404), _) => "does the provider know the model, and is the base URL right (most end in /v1)?",
        (Some(301 | 302 | 307 | 308), _) => "use that address as the base URL",
        (Some(429), _) => "the provider wants to be asked less often, or the account is used up",
        (_, ModelErrorKind::Protocol) => {
            "is the base URL right? Most base URLs of chat completions end in /v1, those of Anthropic's wire do not"
        }
        (_, ModelErrorKind::Transport | ModelErrorKind::Stalled) => "is the server there, and the way to it free?",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnbuckle::model::ModelError;

    fn of(error: &ModelError) -> Option<&'static str> {
        advice(error.status(), error.kind(), &error.to_string())
    }

    fn of_status(status: u16, message: &str) -> Option<&'static str> {
        of(&ModelError::Status { status, message: message.into(), retry_after: None })
    }

    #[test]
    fn what_a_person_can_set_right_is_named() {
        assert!(of_status(401, "bad key").is_some_and(|advice| advice.contains("key")));
        assert!(of_status(404, "no such model").is_some_and(|advice| advice.contains("know the model")));
        assert!(of_status(400, "use /v1/responses").is_some_and(|advice| advice.contains("tools")));
        assert!(of_status(308, "elsewhere").is_some_and(|advice| advice.contains("base URL")));
        assert!(of_status(500, "oops").is_none());
        let broken = ModelError::Transport { message: "asking h: no connection".into(), source: None };
        assert!(of(&broken).is_some_and(|advice| advice.contains("server")));
        assert!(of(&ModelError::Stalled { idle: std::time::Duration::from_secs(3) }).is_some());
        assert!(of(&ModelError::Protocol("a web page".into())).is_some_and(|advice| advice.contains("/v1")));
        assert!(of(&ModelError::Exhausted { limit: "max_cost".into() }).is_none());
    }

    #[test]
    fn of_several_models_the_last_status_decides() {
        let refused = ModelError::Status { status: 401, message: "no".into(), retry_after: None };
        let all = ModelError::ModelsFailed { errors: vec![("a".into(), refused)], not_asked: Vec::new() };
        assert!(of(&all).is_some_and(|advice| advice.contains("key")));
    }

    #[test]
    fn models_that_were_not_asked_because_text_was_shown_are_a_matter_of_an_option() {
        let broken = ModelError::Transport { message: "cut".into(), source: None };
        let (errors, not_asked) = (vec![("a".into(), broken)], vec!["b".into()]);
        let half = ModelError::ModelsFailed { errors, not_asked };
        assert!(of(&half).is_some_and(|advice| advice.contains("after_text = true")));
    }

    #[test]
    fn words_that_look_like_a_status_are_not_taken_for_one() {
        assert!(of_status(500, "the model answered with status 401").is_none());
    }
}
