//! Arguments of `hooks` and the commands below it.

use clap::Subcommand;
use turnbuckle::hook::Point;
use turnbuckle_tools::CommandPoint;
use turnbuckle_tools::claude::ClaudeEvent;

use crate::config::nearest;
use crate::trust::TrustOptions;

/// Options of `hooks`.
#[derive(Debug, clap::Args)]
pub(crate) struct Hooks {
    #[command(subcommand)]
    pub(crate) command: Option<HooksCommand>,
    /// One JSON object a line: a hook at a point
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Instead: the ready-made hooks that `use` can name
    #[arg(long)]
    pub(crate) available: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Run the hooks of one point on an event from stdin, and print what they decide
    ///
    /// The event is the JSON object that a command hook reads there. Hooks and their programs are real; the model and the
    /// tools are stand-ins, and nothing is kept. The exit code is 1 if a hook fails, 2 for an event that no run could have, and
    /// else 0, whatever the hooks decide.
    ///
    /// With an event of Claude-style settings (PreToolUse, Stop, …) the event is what their handlers read; those of
    /// `use = "claude"` that match run, and what each said and what follows is explained.
    Test(HooksTest),
    /// Print the `turnbuckle.toml` that does what the project's .claude/settings.json does
    ///
    /// Nothing is run or written. What could not be carried over stands in it as a comment.
    Import,
    /// Check a program against the protocol of hook workers
    Conform(HooksConform),
}

/// Options of `hooks conform`.
#[derive(Debug, clap::Args)]
pub(crate) struct HooksConform {
    /// The program and its arguments, behind `--`
    #[arg(required = true, last = true, value_name = "CMD")]
    pub(crate) program: Vec<String>,
}

/// What `hooks test` tries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TestedEvent {
    /// A point, with what a command hook reads.
    Point(Point),
    /// An event of Claude-style settings.
    Claude(ClaudeEvent),
}

/// Points that are behind many turns, or behind a call that waits for somebody.
const UNTRIED: [Point; 2] = [Point::BeforeCompaction, Point::OnLogged];

fn is_tried(point: &Point) -> bool {
    !UNTRIED.contains(point)
}

/// Every name that is taken.
fn tested_names() -> impl Iterator<Item = &'static str> {
    let points = Point::ALL.into_iter().filter(is_tried).map(Point::name);
    ClaudeEvent::ALL.into_iter().map(ClaudeEvent::name).chain(CommandPoint::NAMES.iter().copied()).chain(points)
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

impl std::str::FromStr for TestedEvent {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(event) = ClaudeEvent::named(name) {
            return Ok(Self::Claude(event));
        }
        if let Ok(point) = name.parse::<CommandPoint>() {
            return Ok(Self::Point(point.point()));
        }
        match Point::ALL.into_iter().find(|point| point.name() == name) {
            Some(point) if !is_tried(&point) => Err(format!("one turn does not lead to {point}: run one to see it")),
            Some(point) => Ok(Self::Point(point)),
            None => Err(match nearest(name, tested_names()) {
                Some(near) => format!("there is no point {name:?}; did you mean `{near}`?"),
                None => format!(
                    "there is no point {name:?}; a command hook has {}, other hooks have {}, and Claude-style handlers have {}",
                    CommandPoint::NAMES.join(", "),
                    joined(Point::ALL.into_iter().filter(is_tried).map(Point::name)),
                    joined(ClaudeEvent::ALL.into_iter().map(ClaudeEvent::name)),
                ),
            }),
        }
    }
}

/// Options of `hooks test`.
#[derive(Debug, clap::Args)]
pub(crate) struct HooksTest {
    /// A point, such as before_agent, before_tool or on_stop; or PreToolUse, Stop and the like
    pub(crate) event: TestedEvent,
    #[command(flatten)]
    pub(crate) trust: TrustOptions,
}
