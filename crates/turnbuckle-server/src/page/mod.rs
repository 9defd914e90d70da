//! The page for people. Every function here is pure: from the core's types to HTML, without a server, a clock or a store.
//!
//! # Routes
//!
//! | route | what it does |
//! |---|---|
//! | `GET /` | [`list`] of what the viewer may read; `?q=` searches titles, first words and ids |
//! | `POST /page/c` | begins a conversation, then 303 to its page |
//! | `GET /page/c/{id}` | [`conversation`], from the hub's [`View`]; with `?before=SEQ` [`earlier`], from the log; with `?since=SEQ` from that event on at the latest, which is how the script fetches it again |
//! | `GET /page/c/{id}/events?after=CURSOR` | the stream, see below |
//! | `POST /page/c/{id}/messages` | `content`, `while_busy` (`queue`, `steer`, `interrupt`), `key`: the same text under the same key is taken once |
//! | `POST /page/c/{id}/answer` | `call`, `digest`, and what [`read_answer`] reads |
//! | `POST /page/c/{id}/cancel` | cancels the turn |
//! | `POST /page/c/{id}/queue` | `item`: takes a queued message back |
//! | `POST /page/c/{id}/title` | `title`: renames it |
//! | `GET`, `POST /page/c/{id}/delete` | [`confirm_delete`]; deletes if `confirm` is the id, then 303 to `/`; if it cannot be done, the question again with the reason |
//! | `GET /page/c/{id}/turns/{turn}` | [`turn`] |
//! | `GET /page/waiting` | [`waiting`], from `Conversations::pending` and the live questions |
//! | `GET`, `POST /login`, `POST /logout` | [`login`] with `token` |
//! | `GET`, `POST /v1/answers/{signed}` | [`link`], for whoever has the link; the forms carry a token of the link, and there is no script |
//! | `GET` of each [`Asset::path`] | the style sheet, the script and the icon, `cache-control: public, max-age=31536000, immutable` |
//!
//! Ids in paths are one segment each, percent-encoded. Every answer with HTML has [`CONTENT_SECURITY_POLICY`] as its
//! `content-security-policy`, and `cache-control: no-store`.
//!
//! # Forms
//!
//! Every form is an ordinary POST (`application/x-www-form-urlencoded`) with the field `csrf`. The script sends the same fields by
//! `fetch` with the headers `x-csrf-token` and `accept: application/json`; one of the two must be the viewer's token. An answer to the
//! script is 204, 303 (where it leads is not followed), or the error as JSON, whose message it shows. Without the
//! script the answer is 303 to the page that the form was on, or the page with [`ConversationPage::alert`].
//!
//! # The stream
//!
//! The hub has one [`View`] for each watched conversation and gives every feed event to [`View::apply`]. What comes back goes to
//! the viewers as one SSE event of all patches of that feed event: `id` is the event's cursor, `event` is `patch`, `data` is the HTML of
//! [`Patch::html_for`] of each, one after the other. If one of them gives none, the event is `refresh`, with a blank as its data. A feed event without
//! patches needs no SSE event, but the next one has the newer cursor. [`waiting_count`] comes as a patch without an `id`. A stream begins behind `Last-Event-ID`, or else behind `after`;
//! if that place is gone, it sends `lagged`, and the script fetches the page again.

mod asked;
mod card;
mod changes;
mod code;
mod conversation;
mod draft;
mod earlier;
mod form;
pub mod highlight;
mod hook_line;
mod items;
mod layout;
mod link;
mod list;
mod login;
mod markdown;
mod newest;
mod question;
mod safe;
mod spans;
mod stages;
mod turn;
mod view;
mod waiting;
mod words;

pub use self::conversation::{ConversationPage, conversation};
pub use self::earlier::{EarlierPage, earlier};
pub use self::form::{BadAnswer, Sent};
pub use self::hook_line::HookLine;
pub use self::layout::{Asset, CONTENT_SECURITY_POLICY, Viewer, assets, problem, waiting_count};
pub use self::link::{LinkPage, link, link_over};
pub use self::list::{ListPage, Listed, confirm_delete, list};
pub use self::login::login;
pub use self::question::read_answer;
pub use self::safe::is_unsafe;
pub(crate) use self::safe::segment;
pub use self::turn::{TurnPage, turn};
pub use self::view::{Patch, Queued, Rights, View};
pub use self::waiting::{WaitingCall, waiting};
pub(crate) use self::words::opening;
pub use crate::waits::{Live, Waiting};
