//! The page on which a person logs in with a token.

use maud::{Markup, html};

use super::layout::{self, Viewer};
use super::safe::Shown;

/// The form. `failed` says why the last try did not work.
pub fn login(viewer: &Viewer, failed: Option<&str>) -> Markup {
    let main = html! {
        div.narrow {
            h1 { "Log in" }
            @if let Some(failed) = failed { p.alert role="alert" { (Shown(failed)) } }
            form.stack method="post" action="/login" {
                input type="hidden" name="csrf" value=(viewer.csrf);
                label for="token" { "Token" }
                input type="password" id="token" name="token" required autocomplete="current-password" spellcheck="false";
                button.yes { "Log in" }
            }
            p.soft { "Whoever runs this server has given you a token." }
        }
    };
    layout::page(viewer, "Log in", "/login", &main)
}
