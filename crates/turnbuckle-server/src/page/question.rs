//! What is asked of a person, in full, and the form that answers it.

use maud::{Markup, html};
use serde_json::Value;
use turnbuckle::ConversationId;
use turnbuckle::event::Question;
use turnbuckle::projection::Pending;
use turnbuckle::store::Answer;

use super::form::{self, BadAnswer, Sent};
use super::safe::{Name, Shown, segment, visible_json};
use super::{card, markdown, words};

/// What the forms of a rendering need to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forms<'a> {
    pub(super) conversation: &'a ConversationId,
    /// Of the one viewer that the HTML is for. None where it goes to many: their script adds their own.
    pub(super) csrf: Option<&'a str>,
    /// Whether questions have a form.
    pub(super) answers: bool,
    /// The link that answers go through, if they go through one.
    pub(super) link: Option<LinkForms<'a>>,
}

/// What forms on the page of a link need to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkForms<'a> {
    /// Where they are sent to.
    pub(super) path: &'a str,
    /// Whether the link can only deny.
    pub(super) only_denies: bool,
}

impl Forms<'_> {
    /// The page of the conversation.
    pub(super) fn page(&self) -> String {
        format!("/page/c/{}", segment(self.conversation.as_str()))
    }

    /// Where a form of this conversation is sent to.
    pub(super) fn action(&self, what: &str) -> String {
        format!("{}/{what}", self.page())
    }

    /// Where an answer is sent to.
    fn answer_action(&self) -> String {
        self.link.map_or_else(|| self.action("answer"), |link| link.path.to_owned())
    }

    pub(super) fn token(&self) -> Markup {
        html! { input type="hidden" name="csrf" value=(self.csrf.unwrap_or_default()); }
    }
}

/// The question, and the form if it may be answered. `id` is of the element around it.
pub(super) fn question(pending: &Pending, id: &str, forms: Forms<'_>) -> Markup {
    html! {
        div.question {
            @match &pending.question {
                Question::Approval { tool: Some(tool), arguments, why, again, redacted, .. } => {
                    p.ask { "May " strong { (Name(tool)) } " run" @if *again { " once more" } "?" }
                    p.why { "Why it is asked: " @match why {
                        Some(why) => { (Shown(why)) }
                        // What asks without words of its own is no hook.
                        None if pending.rule.as_ref().is_some_and(|rule| rule.required) => {
                            "a rule of " code { "[access]" } " says who must approve calls of this tool."
                        }
                        None => { "the configuration asks before this tool runs." }
                    } }
                    (card::arguments(arguments))
                    @if *redacted { p.warn { "Redacted: parts of this are placeholders, and the call runs with what the model wrote in their place." } }
                    @if *again { p.warn { "It was started before, and may have happened already." } }
                }
                Question::Approval { tool: None, arguments, why, .. } => {
                    p.ask { "May this reply stand?" }
                    @if let Some(why) = why { p.why { "Why it is asked: " (Shown(why)) } }
                    (card::arguments(arguments))
                }
                Question::Elicitation { question, .. } => { div.ask.md { (markdown::render(question)) } }
                Question::ClientExec { tool, arguments } => {
                    p.ask { "What is the result of " strong { (Name(tool)) } "? A client runs it." }
                    (card::arguments(arguments))
                }
                Question::Pause { hook, reason } => {
                    p.ask { "May the turn end? The hook " strong { (Name(hook)) } " wants a person to look." }
                    div.why { (words::verbatim(reason)) }
                }
                _ => { p.ask { "This call waits for an answer." } }
            }
            (conditions(pending))
            @if forms.answers { (answer_form(pending, id, forms)) }
            @else { p.soft { "You may not answer this." } }
        }
    }
}

/// Who may answer, how many must, and until when.
pub(super) fn conditions(pending: &Pending) -> Markup {
    html! {
        p.soft.conditions {
            "Lapses " time datetime=(pending.expires) data-age { (pending.expires.to_string().get(..16).unwrap_or_default().replace('T', " ")) }
            @if let Some(rule) = &pending.rule {
                @if !rule.who().is_empty() { ". Who may answer: " (Shown(&rule.who())) }
                @if rule.n > 1 {
                    ". "
                    @if pending.approvals.is_empty() { "Nobody has approved so far" }
                    @else { "Approved so far by " @for (number, by) in pending.approvals.iter().enumerate() { @if number > 0 { ", " } (card::author(by)) } }
                }
                @if rule.second_look { ". A second look: these are the arguments that would run now, and nothing changes them again" }
            }
            "."
        }
    }
}

/// Each decision has a form of its own: the Enter key in the field for a reason presses the first button of its form, and must
/// not approve.
pub(super) fn answer_form(pending: &Pending, id: &str, forms: Forms<'_>) -> Markup {
    let form = |content: Markup| {
        html! {
            form.answer method="post" action=(forms.answer_action()) {
                (forms.token())
                input type="hidden" name="call" value=(Raw(pending.call.as_str()));
                @if let Some(digest) = pending.question.digest() { input type="hidden" name="digest" value=(Raw(digest)); }
                (content)
            }
        }
    };
    let approve = |text: &str| form(html! { button.yes name="decision" value="approve" { (text) } });
    let deny = |text: &str, about: &str| {
        let reason = format!("{id}-reason");
        form(html! {
            span.deny {
                label.hidden for=(reason) { (about) }
                input type="text" id=(reason) name="reason" placeholder=(about) autocomplete="off";
                button.no name="decision" value="deny" { (text) }
            }
        })
    };
    let answer = |schema: Option<&Value>, send: &str, decline: &str| {
        form(html! {
            (form::fields(schema, id))
            div.row {
                button.yes name="decision" value="answer" { (send) }
                button.no name="decision" value="deny" formnovalidate { (decline) }
            }
        })
    };
    html! {
        @match &pending.question {
            _ if forms.link.is_some_and(|link| link.only_denies) => {
                div.row.answers { (deny("Deny", "Why not (the model reads it)")) }
            }
            Question::Approval { tool, arguments, redacted, .. } => {
                // What is redacted cannot be edited: the placeholders would run.
                @if tool.is_some() && !redacted { (edit(arguments, id, form)) }
                div.row.answers { (approve("Approve")) (deny("Deny", "Why not (the model reads it)")) }
            }
            Question::Pause { .. } => { div.row.answers { (approve("Let it end")) (deny("Go on", "What is still to be done")) } }
            Question::Elicitation { schema, .. } => { (answer(schema.as_deref(), "Send the answer", "Decline")) }
            _ => { (answer(Some(&Value::Bool(true)), "Send the result", "There is none")) }
        }
    }
}

fn edit(arguments: &Value, id: &str, form: impl Fn(Markup) -> Markup) -> Markup {
    let field = format!("{id}-arguments");
    html! {
        details.fold id=(format!("{id}-edit")) {
            summary { "Edit the arguments" }
            (form(html! {
                label for=(field) { "Arguments, as JSON" }
                textarea.mono id=(field) name="arguments" rows="6" spellcheck="false" { "\n" (Raw(&visible_json(arguments))) }
                div.row { button name="decision" value="edit" { "Approve as edited" } }
            }))
        }
    }
}

/// A value that a form sends back. It is escaped and otherwise as it is: a changed digest or id would not be found.
struct Raw<'a>(&'a str);

impl maud::Render for Raw<'_> {
    fn render_to(&self, out: &mut String) {
        self.0.render_to(out);
    }
}

/// The answer that a question's form sent: names and values, as browsers send them.
///
/// # Errors
/// If the form has no decision, or what was typed is not what the question asks for.
pub fn read_answer(question: &Question, sent: &Sent) -> Result<Answer, BadAnswer> {
    let get = |name: &str| sent.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim());
    let reason = || get("reason").filter(|reason| !reason.is_empty());
    match (get("decision"), question) {
        (Some("approve"), Question::Approval { .. } | Question::Pause { .. }) => Ok(Answer::Approve),
        (Some("edit"), Question::Approval { arguments, .. }) => {
            let edited = form::parse(get("arguments").unwrap_or_default())?;
            // Nothing was edited: then the approval is of what was shown, digest included.
            Ok(if edited == **arguments { Answer::Approve } else { Answer::ApproveWith(edited.into()) })
        }
        (Some("deny"), _) => Ok(Answer::Deny(reason().map(Into::into))),
        (Some("answer"), Question::Elicitation { schema, .. }) => {
            form::read(schema.as_deref(), sent).map(Answer::Result)
        }
        (Some("answer"), Question::ClientExec { .. }) => form::read(Some(&Value::Bool(true)), sent).map(Answer::Result),
        _ => Err(BadAnswer::NoDecision),
    }
}

/// A line for a list: what is asked.
pub(super) fn title(question: &Question) -> Markup {
    html! {
        @match question {
            Question::Approval { tool: Some(tool), .. } => { "Approval of " strong { (Name(tool)) } }
            Question::Approval { tool: None, .. } => { "Approval of a reply" }
            Question::Elicitation { .. } => { "A question" }
            Question::ClientExec { tool, .. } => { "A result of " strong { (Name(tool)) } }
            Question::Pause { hook, .. } => { "A turn held by " strong { (Name(hook)) } }
            _ => { "A question" }
        }
    }
}

/// Since when it waits.
pub(super) fn since(asked: turnbuckle::Timestamp, now: turnbuckle::Timestamp) -> Markup {
    html! { "asked " (words::age(asked, now)) }
}
