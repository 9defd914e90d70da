//! The page of a link that answers one call.

use maud::{Markup, html};
use turnbuckle::ConversationId;
use turnbuckle::projection::Pending;

use super::layout;
use super::question::{self, Forms, LinkForms};
use super::safe::{Name, Shown};

/// What the page of a link shows.
#[derive(Clone, Copy, Debug)]
pub struct LinkPage<'a> {
    /// Whose call it is.
    pub conversation: &'a ConversationId,
    /// What is asked.
    pub asked: &'a Pending,
    /// In whose name it is answered; `None` for nobody in particular, who can only deny.
    pub user: Option<&'a str>,
    /// The path of the link, to which the forms are sent.
    pub path: &'a str,
    /// What the forms carry as `csrf`.
    pub token: &'a str,
    /// Why the last try did not work.
    pub alert: Option<&'a str>,
}

/// The page. Looking at it changes nothing.
pub fn link(page: &LinkPage<'_>) -> Markup {
    let LinkPage { conversation, asked, user, path, token, alert } = *page;
    let link = LinkForms { path, only_denies: user.is_none() };
    let forms = Forms { conversation, csrf: Some(token), answers: true, link: Some(link) };
    let main = html! {
        div.narrow {
            h1 { "A question for you" }
            @if let Some(alert) = alert { p.alert role="alert" { (Shown(alert)) } }
            article.card id="asked" data-state="ask" {
                header { span.dot aria-hidden="true" {} h2 { (question::title(&asked.question)) } }
                p.soft {
                    "In the conversation " (Name(conversation.as_str())) ". "
                    @match user {
                        Some(user) => { "Your answer is recorded as one of " strong { (Name(user)) } "." }
                        None => { "This link names nobody, so it can deny and not approve." }
                    }
                }
                (question::question(asked, "asked", forms))
            }
            form.answer method="post" action=(path) {
                (forms.token())
                p.soft { "The link works once. Without an answer it can also be given up: " button.plain name="decision" value="revoke" { "Revoke the link" } }
            }
        }
    };
    layout::alone("A question for you", &main)
}

/// What there is to say when a link was used, or cannot be.
pub fn link_over(title: &str, text: &str) -> Markup {
    layout::alone(title, &html! { div.narrow { h1 { (Shown(title)) } p { (Shown(text)) } } })
}
