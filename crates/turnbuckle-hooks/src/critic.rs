//! Critic: another model judges a reply before it is shown.
//!
//! # What it does
//!
//! Creator and critic are kept apart. The critic has a context of its own: its brief and the work, fenced. It sees
//! nothing of the creator's system prompt, of the conversation, or of what the creator thought; with `task = true` it
//! also reads what the user asked for. It answers with a verdict:
//!
//! | verdict | then |
//! |---|---|
//! | `approve` | the reply goes on (tools and their gates are not its business) |
//! | `regenerate` | the creator makes another, with the critique as feedback, for at most `rounds` rounds a turn |
//! | `modify` | the critic's own text takes the place of the work |
//! | `reject` | the turn ends `rejected` |
//!
//! - Nothing of a reply is shown until it is accepted.
//! - Several critics judge side by side. With `consensus = "all"` every one must approve, with `"majority"` more than
//!   half of those that judged, with `"weighted"` those with at least `threshold` of the weight that judged. If they do
//!   not accept, the objection with the most weight is carried out, with the critiques of all that objected.
//! - After the last round `finally` decides: the turn is rejected, or the work passes with a notice.
//! - A critic that answers nonsense, refuses or fails is asked once more; then it has no verdict. Under `"all"` one
//!   critic without a verdict is the hook's failure (which blocks unless `on_failure` says otherwise), under the others
//!   only if none judged.
//! - What critics cost is taken from the turn's budget. A budget that is used up is the hook's failure: work that was not
//!   judged is not shown. `budget` sets them one of their own; when that is used up `finally` decides.
//! - Replies with tool calls are intermediate steps: they are judged only with `calls = true`.
//!
//! # Points
//!
//! `after_model`, with `release = "on_accept"`
//!
//! # Options
//!
//! | Option | Default | |
//! |---|---|---|
//! | `model` | | the one critic's model; or `critics` |
//! | `brief` | a general one | what the one critic judges by |
//! | `critics` | | a list of `{ name, model, brief, weight }` |
//! | `consensus` | `"all"` | or `"majority"`, `"weighted"` |
//! | `threshold` | 0.5 | of the weight, for `"weighted"` |
//! | `rounds` | 2 | regenerations a turn, 0 to 10; `max_regenerations` bounds them, too |
//! | `finally` | `"reject"` | or `"accept"` |
//! | `task` | `false` | critics read the user's message, too |
//! | `calls` | `false` | also replies with tool calls |
//! | `budget` | 0 | tokens a turn for the critics; 0: only the turn's own budget |
//!
//! # Example
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use turnbuckle::{Agent, models::Script};
//! use turnbuckle_hooks::critic::{Critic, CriticRules, Judge};
//!
//! let creator = Script::says(["It's fine, whatever.", "Everything is in order."]);
//! let critic = Script::says([
//!     r#"{"verdict": "regenerate", "critique": "too casual"}"#,
//!     r#"{"verdict": "approve"}"#,
//! ]);
//! let judge = Judge::new("tone", Arc::new(critic)).brief("A formal letter.");
//! let agent = Agent::builder("writer", creator).hook(Critic::new([judge], CriticRules::default())?).build()?;
//! assert_eq!(agent.run("Write to the bank.").await?.text(), "Everything is in order.");
//! # Ok::<(), turnbuckle::BoxError>(()) }).unwrap();
//! ```

mod judge;
mod panel;

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use serde::Deserialize;

use turnbuckle::feed::Level;
use turnbuckle::hook::{AfterModel, Fence, Hook, HookEntry, Release, Settings};
use turnbuckle::hooks::{ConfigHook, HookBuildContext, OptionError};
use turnbuckle::message::Text;
use turnbuckle::{BoxError, Part, Reply, Turn};

use self::panel::Sentence;

pub use judge::Judge;
pub use panel::Consensus;

/// Has other models judge a reply. See the [module](self) for rules and options.
#[derive(Clone, Debug)]
pub struct Critic {
    name: Text,
    panel: Arc<Panel>,
}

#[derive(Debug)]
struct Panel {
    judges: Vec<Judge>,
    rules: CriticRules,
}

/// How the critics decide together.
#[derive(Clone, Debug)]
pub struct CriticRules {
    /// When a reply is accepted.
    pub consensus: Consensus,
    /// How often a turn may regenerate because of the critics.
    pub rounds: u32,
    /// What happens after the last round.
    pub finally: AfterLastRound,
    /// Whether critics read the user's message as well.
    pub task: bool,
    /// Whether replies with tool calls are judged as well.
    pub calls: bool,
    /// The tokens that the critics may use in a turn; 0: only the turn's own budget limits them.
    pub budget: u64,
}

impl Default for CriticRules {
    fn default() -> Self {
        Self {
            consensus: Consensus::All,
            rounds: 2,
            finally: AfterLastRound::Reject,
            task: false,
            calls: false,
            budget: 0,
        }
    }
}

/// What happens to a reply that is not accepted after the last round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterLastRound {
    /// The turn is rejected.
    #[default]
    Reject,
    /// The reply passes, with a notice.
    Accept,
}

impl Critic {
    /// Checks the critics and the rules.
    pub fn new(judges: impl IntoIterator<Item = Judge>, rules: CriticRules) -> Result<Self, OptionError> {
        let judges: Vec<Judge> = judges.into_iter().collect();
        if judges.is_empty() || judges.len() > 16 {
            return Err(OptionError::new("critics", "must be 1 to 16"));
        }
        if let Some(item) = judges.iter().position(|judge| !judge.weight.is_finite() || judge.weight <= 0.0) {
            return Err(OptionError::new("critics", "has a weight that is not above 0").item(item));
        }
        for (item, judge) in judges.iter().enumerate() {
            if judge.name.trim().is_empty() || judges[..item].iter().any(|other| other.name == judge.name) {
                return Err(OptionError::new("critics", "has a critic whose name is empty or another's").item(item));
            }
            if judge.brief.trim().is_empty() {
                let option = if judges.len() == 1 { "brief" } else { "critics" };
                return Err(OptionError::new(option, format!("has nothing that {} judges by", judge.name)));
            }
        }
        if rules.rounds > 10 {
            return Err(OptionError::new("rounds", "must be 0 to 10"));
        }
        if let Consensus::Weighted { threshold } = rules.consensus
            && !(threshold > 0.0 && threshold <= 1.0)
        {
            return Err(OptionError::new("threshold", "must be above 0 and at most 1"));
        }
        Ok(Self { name: Self::NAME.into(), panel: Arc::new(Panel { judges, rules }) })
    }

    /// What a critic reads.
    fn question(&self, turn: &Turn, reply: &Reply) -> String {
        let mut work = reply.content.text();
        for call in &reply.calls {
            work.push_str(&format!("\n[calls {} with {}]", call.name, call.arguments));
        }
        let fenced = |source: &str, text: &str| Fence::new(source).wrap(text).as_text().unwrap_or_default().to_owned();
        let work = fenced("the work", &work);
        match self.panel.rules.task {
            true => format!("{}\n{work}", fenced("the task", &turn.user_message().text())),
            false => work,
        }
    }

    /// Changes and returns the rounds and tokens that this hook has used in this turn. They are kept with the turn.
    fn tally(&self, turn: &Turn, change: impl FnOnce(&mut Tally)) -> Tally {
        let mine = Arc::as_ptr(&self.panel) as usize;
        let tallies = turn.shared::<Tallies>().unwrap_or_else(|| {
            turn.share(Tallies::default());
            turn.shared().unwrap_or_default()
        });
        let mut tallies = tallies.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = tallies.iter().position(|(whose, _)| *whose == mine).unwrap_or_else(|| {
            tallies.push((mine, Tally::default()));
            tallies.len() - 1
        });
        let tally = &mut tallies[index].1;
        change(tally);
        *tally
    }

    fn give_up(&self, turn: &Turn, why: &str) -> AfterModel {
        match self.panel.rules.finally {
            AfterLastRound::Reject => AfterModel::Reject(why.into()),
            AfterLastRound::Accept => {
                turn.notice(Level::Warning, &self.name, format!("passed all the same: {why}"));
                AfterModel::Continue
            }
        }
    }
}

/// What each critic hook of an agent has used in one turn, by the address of its panel. Lost with the process: a revived
/// turn counts its rounds from 0 again, and `max_regenerations` still limits them.
#[derive(Default)]
struct Tallies(Mutex<Vec<(usize, Tally)>>);

#[derive(Clone, Copy, Default)]
struct Tally {
    rounds: u32,
    tokens: u64,
}

impl Hook for Critic {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.release = Release::OnAccept;
        settings
    }

    async fn after_model(&self, turn: &Turn, reply: &Arc<Reply>) -> Result<AfterModel, BoxError> {
        let Panel { judges, rules } = &*self.panel;
        if !reply.calls.is_empty() && !rules.calls {
            return Ok(AfterModel::Continue);
        }
        let tally = self.tally(turn, |_| ());
        if rules.budget > 0 && tally.tokens >= rules.budget {
            return Ok(self.give_up(turn, &format!("the critics have used their budget of {} tokens", rules.budget)));
        }
        let question = self.question(turn, reply);
        let votes = join_all(judges.iter().map(|judge| judge.judge(turn, &question))).await;
        let spent = votes.iter().map(|vote| vote.tokens).sum::<u64>();
        let tally = self.tally(turn, |tally| tally.tokens = tally.tokens.saturating_add(spent));
        Ok(match panel::decide(judges, votes, rules.consensus)? {
            Sentence::Accept => AfterModel::Continue,
            Sentence::Reject(why) => AfterModel::Reject(why.into()),
            Sentence::Modify(text) => AfterModel::Modify(Box::new(with_text(reply, &text))),
            Sentence::Regenerate(critique) if tally.rounds < rules.rounds => {
                self.tally(turn, |tally| tally.rounds += 1);
                AfterModel::Regenerate(critique.into())
            }
            Sentence::Regenerate(critique) => {
                self.give_up(turn, &format!("not accepted after {} rounds: {critique}", rules.rounds))
            }
        })
    }
}

/// The reply with this text in the place of its own.
fn with_text(reply: &Reply, text: &str) -> Reply {
    let others = reply.content.parts().iter().filter(|part| part.as_text().is_none()).cloned();
    Reply { content: others.chain([Part::text(text)]).collect(), ..reply.clone() }
}

/// The options of [`Critic`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CriticOptions {
    /// The model of a single critic; excludes `critics`.
    pub model: Option<String>,
    /// What critics without a brief of their own judge by.
    pub brief: Option<String>,
    /// Several critics; excludes `model`.
    pub critics: Vec<JudgeOptions>,
    /// When a reply is accepted.
    pub consensus: ConsensusOption,
    /// The share of the weight that must approve, for [`ConsensusOption::Weighted`]; 0.5 if not given.
    pub threshold: Option<f64>,
    /// How often a turn may regenerate because of the critics; 2 if not given.
    pub rounds: Option<u32>,
    /// What happens after the last round.
    pub finally: AfterLastRound,
    /// Whether critics read the user's message as well.
    pub task: bool,
    /// Whether replies with tool calls are judged as well.
    pub calls: bool,
    /// The tokens that the critics may use in a turn; 0: only the turn's own budget limits them.
    pub budget: u64,
}

/// One critic in the options.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JudgeOptions {
    /// The name that stands before its critique.
    pub name: String,
    /// The model that judges.
    pub model: String,
    /// What it judges by.
    pub brief: Option<String>,
    /// The weight of its verdict, for [`ConsensusOption::Weighted`].
    #[serde(default = "one")]
    pub weight: f64,
}

fn one() -> f64 {
    1.0
}

/// The name of a [`Consensus`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsensusOption {
    /// Every critic must approve: [`Consensus::All`].
    #[default]
    All,
    /// More than half must approve: [`Consensus::Majority`].
    Majority,
    /// [`Consensus::Weighted`], with the `threshold` of the options.
    Weighted,
}

impl ConfigHook for Critic {
    const NAME: &'static str = "critic";
    const SUMMARY: &'static str = "has other models judge a reply before it is shown";
    type Options = CriticOptions;

    fn from_options(options: CriticOptions, context: &HookBuildContext<'_>) -> Result<Self, OptionError> {
        let briefed = |judge: Judge, brief: Option<&Text>| match brief {
            Some(brief) => judge.brief(brief.clone()),
            None => judge,
        };
        let brief = options.brief.map(Text::from);
        let judges = match (&options.model, &*options.critics) {
            (Some(model), []) => vec![briefed(Judge::new("critic", context.model("model", model)?), brief.as_ref())],
            (None, []) => return Err(OptionError::new("model", "is missing, and there are no `critics` either")),
            (Some(_), _) => return Err(OptionError::new("model", "and `critics` exclude each other")),
            (None, critics) => {
                let judge = |(item, one): (usize, &JudgeOptions)| {
                    let model = context.model("critics", &one.model).map_err(|error| error.item(item))?;
                    let own = one.brief.as_deref().map(Text::from).or_else(|| brief.clone());
                    Ok(briefed(Judge::new(one.name.as_str(), model), own.as_ref()).weight(one.weight))
                };
                critics.iter().enumerate().map(judge).collect::<Result<Vec<_>, _>>()?
            }
        };
        let weighed = options.critics.iter().position(|one| one.weight != 1.0);
        if let Some(item) = weighed.filter(|_| options.consensus != ConsensusOption::Weighted) {
            return Err(OptionError::new("critics", "has a `weight` without `consensus = \"weighted\"`").item(item));
        }
        let consensus = match (options.consensus, options.threshold) {
            (ConsensusOption::Weighted, threshold) => Consensus::Weighted { threshold: threshold.unwrap_or(0.5) },
            (_, Some(_)) => return Err(OptionError::new("threshold", "is for `consensus = \"weighted\"`")),
            (ConsensusOption::All, None) => Consensus::All,
            (ConsensusOption::Majority, None) => Consensus::Majority,
        };
        let (rounds, finally) = (options.rounds.unwrap_or(2), options.finally);
        let (task, calls, budget) = (options.task, options.calls, options.budget);
        Self::new(judges, CriticRules { consensus, rounds, finally, task, calls, budget })
    }

    /// The hook posts notices under this name.
    fn entry(mut self, name: String) -> HookEntry {
        self.name = name.into();
        self.into()
    }
}
