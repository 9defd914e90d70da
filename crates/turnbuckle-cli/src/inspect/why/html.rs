//! `why --html FILE`: the window over the conversation as one page. It loads nothing and runs no script: details are shown by
//! style sheets alone, so that no text of a conversation can become code.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use turnbuckle::ConversationId;
use turnbuckle::context::Segment;
use turnbuckle::message::Usage;
use turnbuckle::store::{BreakCause, CacheBreak};

use super::data::{Call, Conversation};
use super::quoted;
use crate::Stopped;
use crate::exit::Exit;
use crate::output;
use crate::problem::Problem;
use crate::show::{clean, count};

/// How much of a message is shown, in characters.
const SHOWN: usize = 160;

/// Writes the page. The page has text of the conversation, and only its user may read it: it is written to a new file beside
/// `file`, which then takes the place of whatever has that name, its mode and what it may be a link to included.
pub(super) fn write(conversation: &Conversation, id: &ConversationId, file: &Path) -> Result<Exit, Stopped> {
    let failed =
        |error: std::io::Error| Stopped::failed(Problem::error(format!("writing {}: {error}", file.display())));
    replace(file, page(conversation, id).as_bytes()).map_err(failed)?;
    output::say(&clean(&format!("the page is in {}", file.display())));
    Ok(Exit::Completed)
}

fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    // A folder, a pipe or a device is not replaced, also not behind a link such as /dev/stdout.
    if file.metadata().is_ok_and(|about| !about.is_file()) {
        return Err(std::io::Error::other("it is there, and it is not a file"));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Made with mode 0600, and removed if anything fails before it has its name.
    let mut new = tempfile::Builder::new().prefix(".why-").suffix(".html").tempfile_in(folder)?;
    new.write_all(bytes)?;
    new.as_file().sync_all()?;
    new.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Text that stands for itself in HTML, also inside an attribute.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for sign in clean(text).chars() {
        match sign {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// A number in groups of three digits.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number for an axis: `12k`.
fn short(value: u64) -> String {
    match value {
        0..1_000 => value.to_string(),
        1_000..10_000 if !value.is_multiple_of(1_000) => format!("{:.1}k", value as f64 / 1e3),
        1_000..1_000_000 => format!("{}k", value / 1_000),
        _ => format!("{:.1}M", value as f64 / 1e6),
    }
}

fn dollars(cost: f64) -> String {
    if cost >= 1.0 { format!("${cost:.2}") } else { format!("${cost:.4}") }
}

fn class(segment: Segment) -> &'static str {
    match segment {
        Segment::Tools => "tools",
        Segment::System => "system",
        Segment::Summary => "summary",
        Segment::History => "history",
        Segment::UserMessage => "message",
        Segment::TurnInjections => "turninj",
        Segment::Calls => "calls",
        Segment::CallInjections => "callinj",
    }
}

/// The top of the axis and the step between its lines: 1, 2 or 5 times a power of ten.
fn axis(most: u64) -> (u64, u64) {
    let most = most.max(10);
    let mut step = 1;
    while most.div_ceil(step) > 6 {
        step = match step.to_string().as_bytes().first() {
            Some(b'2') => step / 2 * 5,
            _ => step * 2,
        };
    }
    (most.div_ceil(step) * step, step)
}

fn page(conversation: &Conversation, id: &ConversationId) -> String {
    let mut out = String::new();
    let title = escaped(id.as_str());
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>why {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    out.push_str(&head(conversation, &title));
    if conversation.calls.is_empty() {
        out.push_str("<p class=\"empty\">No model call of this conversation has a reply in the log.</p>\n");
    } else {
        out.push_str(&chart(conversation));
        out.push_str(&events(conversation));
    }
    if conversation.has_uncorrected(conversation.calls.iter()) {
        let _ = writeln!(out, "<p class=\"foot\">Of sizes, {}.</p>", escaped(super::UNCORRECTED));
    }
    if let Some(not_known) = conversation.not_known(conversation.calls.iter()) {
        let _ = writeln!(out, "<p class=\"foot\">Sizes are estimates. Not known: {}.</p>", escaped(not_known));
    } else {
        out.push_str("<p class=\"foot\">Sizes are estimates. The audit has every call as it was sent.</p>\n");
    }
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// The name, what it came to, and the legend.
fn head(conversation: &Conversation, title: &str) -> String {
    let calls = &conversation.calls;
    let (mut usage, mut cost) = (Usage::default(), 0.0);
    for call in calls {
        usage += call.sent.usage;
        cost += call.sent.cost;
    }
    for (more, dollars) in conversation.turns().into_iter().filter_map(|turn| conversation.beside_replies(turn)) {
        usage += more;
        cost += dollars;
    }
    let answered: usize = calls.iter().map(|call| call.sent.cuts.len()).sum();
    let cuts = answered + conversation.unanswered_cuts.len();
    let breaks: Vec<&CacheBreak> = calls.iter().flat_map(|call| &call.breaks).collect();
    let lost: u64 = breaks.iter().map(|found| found.lost).sum();
    let lost_cost: f64 = breaks.iter().map(|found| found.cost).sum();
    let mut models: Vec<&str> = calls.iter().filter_map(|call| call.sent.model.as_deref()).collect();
    models.dedup();
    models.sort_unstable();
    models.dedup();
    let models = if models.is_empty() { String::new() } else { format!(" · {}", escaped(&models.join(", "))) };
    let since = conversation
        .log
        .first()
        .map(|event| format!(" · {}", escaped(&event.at.to_string()[..10])))
        .unwrap_or_default();
    let mut out = format!(
        "<header>\n<h1>{title}</h1>\n<p class=\"sub\">What the model was sent, call by call{since}{models}</p>\n</header>\n<dl class=\"tiles\">\n"
    );
    let mut tile = |name: &str, value: String, more: String| {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{value}</dd><dd class=\"more\">{more}</dd></div>");
    };
    tile("Model calls", number(calls.len() as u64), format!("in {}", count(conversation.turns().len(), "turn")));
    let share = (usage.cache_read * 100).checked_div(usage.input).unwrap_or(0);
    let from_cache = if usage.input == 0 { "not reported".to_owned() } else { format!("{share} % from the cache") };
    tile("Tokens read", number(usage.input), from_cache);
    let price = if cost > 0.0 { dollars(cost) } else { "–".to_owned() };
    tile("Cost", price, if cost > 0.0 { "at list prices".to_owned() } else { "prices not known".to_owned() });
    tile("Cuts", number(cuts as u64), format!("{} summaries made", conversation.summaries.len()));
    let lost_price = if lost_cost > 0.0 { format!(", {}", dollars(lost_cost)) } else { String::new() };
    let small = breaks.iter().filter(|found| is_small(found)).count();
    let beside = if small > 0 { format!("and {small} at ends of turns; ") } else { String::new() };
    let anew = format!("{beside}{} tokens read anew{lost_price}", number(lost));
    tile("Cache breaks", number((breaks.len() - small) as u64), anew);
    out.push_str("</dl>\n");
    out
}

fn legend(conversation: &Conversation) -> String {
    let mut out = String::from("<ul class=\"legend\">\n");
    for segment in Segment::ALL {
        if conversation.calls.iter().any(|call| call.segments[segment as usize] > 0) {
            let _ = writeln!(out, "<li><i class=\"{}\"></i>{}</li>", class(segment), escaped(segment.name()));
        }
    }
    out.push_str(
        "<li class=\"sep\"><b class=\"cut\">✂</b>cut</li>\n<li><b class=\"sum\">≡</b>first call with a new summary</li>\n\
         <li><b class=\"brk\">⚡</b>cache break</li>\n</ul>\n",
    );
    out
}

fn chart(conversation: &Conversation) -> String {
    let calls = &conversation.calls;
    let (top, step) = axis(calls.iter().map(Call::tokens).max().unwrap_or(0));
    let mut out =
        format!("<section class=\"card\">\n<h2>The window over the conversation</h2>\n{}", legend(conversation));
    out.push_str("<div class=\"chart\">\n<div class=\"axis\" aria-hidden=\"true\">\n");
    let lines: Vec<u64> = (0..=top / step).map(|line| line * step).collect();
    for line in &lines {
        let _ = writeln!(out, "<span style=\"bottom:{:.2}%\">{}</span>", percent(*line, top), short(*line));
    }
    out.push_str("</div>\n<div class=\"scroll\">\n<div class=\"plot\">\n");
    for line in &lines {
        let _ = writeln!(
            out,
            "<hr style=\"bottom:calc(var(--foot) + (100% - var(--foot)) * {:.4})\">",
            percent(*line, top) / 100.0
        );
    }
    let mut shown = None;
    let mut place = 0;
    for (index, turn) in calls.chunk_by(|one, other| one.sent.turn == other.sent.turn).enumerate() {
        let said = turn
            .first()
            .and_then(|call| conversation.opening(&call.sent.turn))
            .map(|(_, said)| said)
            .unwrap_or_default();
        let (calls_of_turn, least) = (turn.len(), least_width(turn.len()));
        let most = least.max(MOST_WIDTH);
        let style = format!("flex-grow:{calls_of_turn};min-width:{least}px;max-width:{most}px");
        let _ = writeln!(out, "<div class=\"turn\" style=\"{style}\"><div class=\"bars\">");
        for call in turn {
            let version = call.sent.summary.as_ref().map(|summary| summary.version);
            let is_new = version.is_some() && version != shown;
            shown = version;
            let side = if place * 2 > calls.len() { " flip" } else { "" };
            place += 1;
            out.push_str(&bar(conversation, call, top, is_new, side));
        }
        let _ =
            writeln!(out, "</div><span class=\"no\" title=\"{}\">{}</span></div>", escaped(&cut_off(&said)), index + 1);
    }
    out.push_str("</div>\n</div>\n</div>\n<p class=\"caption\">Each bar is one model call, each group of bars one turn. Hover over a bar, or move to it with the Tab key, for details.</p>\n</section>\n");
    out
}

/// How wide a turn of few calls may become, in pixels.
const MOST_WIDTH: usize = 200;

/// How wide a turn must be, in pixels, so that its bars do not lie over those of the next one: 7 for a bar and 1 between two, as in
/// the style sheet.
fn least_width(calls: usize) -> usize {
    (calls * 8).saturating_sub(1).max(14)
}

fn percent(value: u64, top: u64) -> f64 {
    value as f64 * 100.0 / top.max(1) as f64
}

fn cut_off(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = line.chars().take(SHOWN).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

fn bar(conversation: &Conversation, call: &Call, top: u64, is_new_summary: bool, side: &str) -> String {
    let mut out = format!(
        "<div class=\"call{side}\" tabindex=\"0\" role=\"group\" aria-label=\"call {}, about {} tokens\"><div class=\"stack\">",
        escaped(&call.name()),
        call.tokens()
    );
    for segment in Segment::ALL.into_iter().rev() {
        let tokens = call.segments[segment as usize];
        if tokens > 0 {
            let _ = write!(out, "<i class=\"{}\" style=\"height:{:.3}%\"></i>", class(segment), percent(tokens, top));
        }
    }
    out.push_str("</div><div class=\"marks\">");
    if !call.sent.cuts.is_empty() {
        out.push_str("<b class=\"cut\">✂</b>");
    }
    if is_new_summary {
        out.push_str("<b class=\"sum\">≡</b>");
    }
    if !call.breaks.is_empty() {
        let is_small = call.breaks.iter().all(is_small);
        out.push_str(if is_small { "<b class=\"brk small\">⚡</b>" } else { "<b class=\"brk\">⚡</b>" });
    }
    out.push_str("</div>");
    out.push_str(&tip(conversation, call));
    out.push_str("</div>\n");
    out
}

/// What is shown beside a bar.
fn tip(conversation: &Conversation, call: &Call) -> String {
    let sent = &call.sent;
    let model = sent.model.as_deref().map(|model| format!(" · {}", escaped(model))).unwrap_or_default();
    let mut out = format!("<div class=\"tip\"><h3>call {}{model}</h3>", escaped(&call.name()));
    if let Some((_, said)) = conversation.opening(&sent.turn) {
        let _ = write!(out, "<p class=\"said\">{}</p>", escaped(&quoted(&said)));
    }
    out.push_str("<table>");
    for segment in Segment::ALL.into_iter().rev() {
        let tokens = call.segments[segment as usize];
        if tokens > 0 {
            let more = match segment {
                Segment::Summary => sent
                    .summary
                    .as_ref()
                    .map(|one| format!(" (version {}, {})", one.version, count(one.turns as usize, "turn"))),
                Segment::History => Some(format!(" ({} turn{})", sent.turns, if sent.turns == 1 { "" } else { "s" })),
                _ => None,
            };
            let _ = write!(
                out,
                "<tr><td><i class=\"{}\"></i>{}{}</td><td>{}</td></tr>",
                class(segment),
                escaped(segment.name()),
                more.unwrap_or_default(),
                number(tokens)
            );
        }
    }
    let _ = write!(out, "<tr class=\"sum\"><td>in all, estimated</td><td>{}</td></tr></table>", number(call.tokens()));
    for ((hook, _, tokens), texts) in call.injected.iter().zip(&call.added) {
        let _ = write!(out, "<p>hook <em>{}</em> added {} tokens</p>", escaped(hook), number(*tokens));
        for added in texts {
            let _ = write!(out, "<p class=\"said\">{}</p>", escaped(added));
        }
    }
    for cut in &sent.cuts {
        let _ = write!(out, "<p class=\"cut\">✂ {}</p>", escaped(&cut.summary()));
    }
    for steps in sent.last_cut.iter().flat_map(|cut| &cut.left_out) {
        let _ = write!(out, "<p>{}</p>", escaped(&super::steps_gone(steps)));
    }
    if let Some(stubs) = sent.last_cut.as_ref().map(|cut| cut.stubs.len()).filter(|stubs| *stubs > 0) {
        let _ = write!(
            out,
            "<p>{stubs} {} shown as notes or shortened</p>",
            if stubs == 1 { "result or call is" } else { "results and calls are" }
        );
    }
    for found in &call.breaks {
        let _ = write!(out, "<p class=\"brk\">⚡ {}</p>", escaped(&found.summary()));
    }
    if sent.usage.input > 0 {
        let cost = if sent.cost > 0.0 { format!(" · {}", dollars(sent.cost)) } else { String::new() };
        let _ = write!(
            out,
            "<p class=\"usage\">{} read, {} from the cache, {} written{cost}</p>",
            number(sent.usage.input),
            number(sent.usage.cache_read),
            number(sent.usage.output)
        );
    }
    if let Some(audited) = &call.audited {
        let _ = write!(out, "<p class=\"usage\">recorded by the audit · {:.1} s</p>", audited.ms as f64 / 1000.0);
    }
    out.push_str("</div>");
    out
}

/// Everything that happened to the window, as a table. Breaks that come with the end of each turn stand apart.
fn events(conversation: &Conversation) -> String {
    let (mut rows, mut small, mut small_count) = (String::new(), String::new(), 0);
    for call in &conversation.calls {
        for cut in &call.sent.cuts {
            rows.push_str(&row(&call.name(), "cut", "✂ cut", &cut.summary()));
        }
        for found in &call.breaks {
            let line = row(&call.name(), "brk", "⚡ cache break", &found.summary());
            match is_small(found) {
                true => {
                    small.push_str(&line);
                    small_count += 1;
                }
                false => rows.push_str(&line),
            }
        }
    }
    for cut in &conversation.unanswered_cuts {
        let words = format!("made for a call without a reply: {}", cut.summary());
        rows.push_str(&row(cut.turn.as_str(), "cut", "✂ cut", &words));
    }
    for one in &conversation.summaries {
        let words = format!(
            "version {} by {}, of {}, up to event {}",
            one.version,
            one.model,
            count(one.turns as usize, "turn"),
            one.last
        );
        let _ = writeln!(rows, "<tr><td></td><td class=\"sum\">≡ summary</td><td>{}</td></tr>", escaped(&words));
    }
    let mut out = String::from("<section class=\"card\">\n<h2>What happened to it</h2>\n");
    match rows.is_empty() {
        true => out.push_str(
            "<p class=\"empty\">Nothing was left out, and nothing but the ends of turns broke the cache.</p>\n",
        ),
        false => out.push_str(&table(&rows)),
    }
    if small_count > 0 {
        let _ = writeln!(
            out,
            "<details><summary>{small_count} times, what hooks had added for a turn left with it</summary>\n{}</details>",
            table(&small)
        );
    }
    out.push_str("</section>\n");
    out
}

fn table(rows: &str) -> String {
    format!(
        "<div class=\"wide\"><table class=\"events\">\n<thead><tr><th>call</th><th>what</th><th>details</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// What leaves with its turn costs little, and happens at every turn.
fn is_small(found: &CacheBreak) -> bool {
    matches!(found.cause, BreakCause::TurnOver { .. })
}

fn row(name: &str, class: &str, what: &str, words: &str) -> String {
    format!(
        "<tr><td class=\"id\">{}</td><td class=\"{class}\">{what}</td><td>{}</td></tr>\n",
        escaped(name),
        escaped(words)
    )
}

const STYLE: &str = include_str!("why.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_round_numbers_and_room_for_the_largest_bar() {
        for most in [0, 7, 10, 999, 1_000, 21_334, 150_000, 999_999] {
            let (top, step) = axis(most);
            assert!(top >= most && top % step == 0 && top / step <= 6, "{most}: {top} {step}");
        }
        assert_eq!(axis(21_334), (25_000, 5_000));
    }

    #[test]
    fn what_means_something_in_html_is_escaped() {
        assert_eq!(escaped("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
        assert!(!escaped("\u{1b}[31mred").contains('\u{1b}'));
        assert_eq!(number(1_234_567).replace('\u{202f}', " "), "1 234 567");
    }
}
