//! Questions that are asked while a call runs: they are in no log, so they have a place of their own behind it.

use maud::{Markup, html};

use super::question::{self, Forms};
use super::safe::{Name, Shown};
use super::words;
use crate::waits::{Live, Waiting};

/// All of them.
pub(super) fn all(asked: &[Waiting], forms: Forms<'_>) -> Markup {
    html! {
        section id="asked" aria-label="Questions of tools that run" {
            @for waiting in asked { (one(waiting, forms)) }
        }
    }
}

/// One of them.
pub(super) fn one(waiting: &Waiting, forms: Forms<'_>) -> Markup {
    // We make these ids, and not the model.
    let id = format!("q-{}", waiting.pending.call);
    html! {
        @if let Some(live) = &waiting.live {
            article.card id=(id) data-in="asked" data-state="ask" data-announce {
                header { span.dot aria-hidden="true" {} h3 { "A question" } span.badge { "waits for an answer" } }
                (question(waiting, live, &id, forms))
            }
        }
    }
}

/// The question, and the form if it may be answered. The words are those of whoever asks, and say nothing that we vouch for.
pub(super) fn question(waiting: &Waiting, live: &Live, id: &str, forms: Forms<'_>) -> Markup {
    let words = match &waiting.pending.question {
        turnbuckle::event::Question::Elicitation { question, .. } => question,
        _ => "",
    };
    html! {
        div.question {
            p.why { (Shown(&live.asker)) " asks, while its tool " strong { (Name(&live.tool)) } " runs. The words are its own, and what you answer goes to it." }
            div.ask { (words::verbatim(words)) }
            (question::conditions(&waiting.pending))
            @if forms.answers { (question::answer_form(&waiting.pending, id, forms)) }
            @else { p.soft { "You may not answer this." } }
        }
    }
}
