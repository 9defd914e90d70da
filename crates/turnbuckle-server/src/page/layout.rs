//! The frame of every page, and the files that it loads.

use std::sync::LazyLock;

use maud::{DOCTYPE, Markup, html};
use sha2::{Digest as _, Sha256};

use super::safe::{Name, Shown};

/// What every answer with HTML carries: nothing but the page's own files is loaded, and nothing in it runs.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// How often a page without a stream is fetched again while it is looked at.
pub(super) const REFRESH_SECONDS: u32 = 5;

/// Who looks at a page.
#[derive(Clone, Debug, Default)]
pub struct Viewer {
    /// The user's name; none if nobody is logged in.
    pub user: Option<String>,
    /// What forms of this viewer carry as `csrf`, and the script as the header `x-csrf-token`.
    pub csrf: String,
    /// Whether there is a session to end.
    pub can_log_out: bool,
    /// How many questions wait for this user.
    pub waiting: usize,
}

/// A file that pages load. Its name has a digest of what it holds, so it may be kept for ever.
#[derive(Clone, Debug)]
pub struct Asset {
    /// Where it is: `/page/page-DIGEST.css`.
    pub path: String,
    /// Its media type.
    pub media_type: &'static str,
    /// What it holds.
    pub content: &'static str,
}

impl Asset {
    fn new(end: &str, media_type: &'static str, content: &'static str) -> Self {
        let digest: String = Sha256::digest(content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { path: format!("/page/page-{digest}.{end}"), media_type, content }
    }
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new("css", "text/css; charset=utf-8", include_str!("assets/page.css")),
        Asset::new("js", "text/javascript; charset=utf-8", include_str!("assets/page.js")),
        Asset::new("svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ]
});

/// The files that pages load: the style sheet, the script and the icon.
pub fn assets() -> &'static [Asset] {
    &*ASSETS
}

/// A page. `current` is the path of the entry of the navigation that it belongs to.
pub(super) fn page(viewer: &Viewer, title: &str, current: &str, main: &Markup) -> Markup {
    let [css, js, icon] = &*ASSETS;
    let link = |path: &'static str, text: Markup| {
        html! { li { a href=(path) aria-current=[(path == current).then_some("page")] { (text) } } }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                @if !viewer.csrf.is_empty() { meta name="csrf" content=(viewer.csrf); }
                title { (Name(title)) " · Turnbuckle" }
                link rel="stylesheet" href=(css.path);
                link rel="icon" type="image/svg+xml" href=(icon.path);
                script src=(js.path) defer {}
            }
            body {
                a.skip href="#main" { "To the content" }
                // Who is not logged in has nowhere to go.
                @if let Some(user) = &viewer.user {
                    header.top {
                        nav aria-label="Pages" {
                            ul {
                                (link("/", html! { "Conversations" }))
                                (link("/page/waiting", html! { "Waiting for you" (waiting_count(viewer.waiting)) }))
                            }
                        }
                        div.who {
                            span.user { (Name(user)) }
                            @if viewer.can_log_out {
                                form method="post" action="/logout" { input type="hidden" name="csrf" value=(viewer.csrf); button.plain { "Log out" } }
                            }
                        }
                    }
                }
                main id="main" tabindex="-1" { (main) }
                p.connection id="connection" role="status" {}
                div.hidden id="announce" aria-live="polite" {}
            }
        }
    }
}

/// How many questions wait for the viewer.
pub fn waiting_count(waiting: usize) -> Markup {
    html! { span.count id="waiting-count" hidden[waiting == 0] { (waiting) } }
}

/// A page for somebody who only has its address: nothing leads elsewhere, and there is no script.
pub(super) fn alone(title: &str, main: &Markup) -> Markup {
    let [css, _, icon] = &*ASSETS;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (Name(title)) " · Turnbuckle" }
                link rel="stylesheet" href=(css.path);
                link rel="icon" type="image/svg+xml" href=(icon.path);
            }
            body { main id="main" { (main) } }
        }
    }
}

/// A page that says what went wrong.
pub fn problem(viewer: &Viewer, title: &str, text: &str) -> Markup {
    let main =
        html! { div.narrow { h1 { (Shown(title)) } p { (Shown(text)) } p { a href="/" { "To the conversations" } } } };
    page(viewer, title, "", &main)
}
