//! Commands that a person types to go on with a turn: printed so that they work as they are.

use std::path::{Path, PathBuf};

use turnbuckle::access::{Access as _, AccessTo, Action};
use turnbuckle::conversation::{LeftReason, LeftTurn, SendError};
use turnbuckle::event::Question;
use turnbuckle::projection::Pending;
use turnbuckle::store::{Scratch, Store as _, StoreError};
use turnbuckle::{Actor, ConversationId, Conversations, Scope};

use crate::args::Common;
use crate::assemble::{Prepared, agent_name, choose_model, holds_a_secret, prepare};
use crate::chat::question;
use crate::config::{CannotTell, actor_named_in};
use crate::show::{asked_text, is_shown_whole, name, quoted, terminal_width};
use crate::started_with::{StartedWith, model_anywhere, with_absolute_path};
use crate::trust::Gate;
use crate::without_agent::WithoutAgent;

/// The longest id of a call, in bytes, that is written into a command for a person to copy.
const LONGEST_SHOWN: usize = 200;

/// What a person must type to answer.
pub(crate) struct ResolveHints {
    pub(crate) id: ConversationId,
    /// Whether the question is kept until then.
    pub(crate) durable: bool,
    /// Options that lead to the same store, for commands that look.
    pub(crate) options: String,
    /// Options that lead to the same agent, too, for commands that carry a turn on.
    carry_on: String,
    /// Whether these options lead to the turn's agent. Otherwise an answer can only be recorded for it.
    reached: Reached,
    /// The folder that the turn works in, if it is not the current one.
    folder: Option<PathBuf>,
    /// What must be accepted before anything is carried on, as the words before the command.
    accept_first: &'static str,
    /// Who is acting.
    actor: Actor,
    /// Who may take the turn up, if the one who is acting may not.
    others_say: Option<String>,
}

/// Whether a command that is printed leads to the agent of the turn.
enum Reached {
    /// It does, as far as is known.
    Yes,
    /// It does, and this agent carries the turn on only if a person insists.
    IfInsisted(LeftTurn),
    /// It leads to an agent of another name, or of an unknown one.
    OtherAgent,
    /// It would, and is not for the one who reads this, or would be refused: why.
    No(String),
}

impl ResolveHints {
    /// For a turn of this process.
    pub(crate) fn new(id: ConversationId, durable: bool, common: &Common, scope: &Scope) -> Self {
        let (options, trust) = (common.same_store(), common.trust.given());
        let trust = trust.map_or_else(String::new, |option| format!(" {option}"));
        let carry_on = format!("{}{trust}", common.same_agent());
        let actor = scope.actor().clone();
        let (reached, folder, accept_first, others_say) = (Reached::Yes, None, "", None);
        Self { id, durable, options, carry_on, reached, folder, accept_first, actor, others_say }
    }

    /// For a turn that any process may have begun, as it is recorded with the turn, and for the one who reads this. A database
    /// that this user's Turnbuckle did not make may have anything recorded, so nothing of that is printed: a person would paste
    /// it. The agent that the command would lead to is built, and nothing of it runs: so a command that would be refused is not
    /// printed.
    pub(crate) async fn for_turn_of(
        id: ConversationId,
        common: &Common,
        desk: &WithoutAgent,
        begun: Option<&Scratch>,
    ) -> Result<Self, StoreError> {
        // A sub-agent's conversation is judged like the one that it works for.
        let owner = desk.store.owner(id.root().as_ref().unwrap_or(&id)).await?;
        let may_say = |owner: &Actor| desk.access.may(desk.scope.actor(), AccessTo::new(&id, owner), Action::Say);
        let others_say = owner.filter(|owner| !may_say(owner)).map(|_| desk.access.who(Action::Say));
        let (mut hints, started) = Self::as_recorded(id, common, desk, begun);
        hints.others_say = others_say;
        if let (Reached::Yes, None, Some(_)) = (&hints.reached, &hints.folder, begun) {
            let common = started.map_or_else(|| common.clone(), StartedWith::into_common);
            hints.judge_agent(&common, desk).await?;
        }
        Ok(hints)
    }

    /// Whether the agent that these options lead to, in this folder, carries the turn on.
    async fn judge_agent(&mut self, common: &Common, desk: &WithoutAgent) -> Result<(), StoreError> {
        let Prepared { agent, standing, config, .. } = prepare(common, Gate::Judged);
        if self.accept_first.is_empty() && !standing.is_accepted() && common.trust.given().is_none() {
            self.accept_first = ACCEPT_FILE_FIRST;
        }
        let Some(agent) = agent else {
            let check = format!("`turnbuckle check{}` says what is wrong", common.same_agent());
            self.reached = Reached::No(format!("once its configuration has no errors: {check}"));
            return Ok(());
        };
        // With its `[access]`: who must approve is among what the turn began with.
        let own = Conversations::builder(agent, desk.store.clone()).access(config.access.rules());
        let own = own.project(desk.project.clone()).build();
        self.reached = match own.left_turn(&self.id, Scope::system()).await {
            Ok(Some(left)) if left.can_insist() => Reached::IfInsisted(left),
            Ok(Some(_)) => Reached::OtherAgent,
            Err(SendError::Store(error)) => return Err(error),
            // It may be gone meanwhile.
            Ok(None) | Err(_) => Reached::Yes,
        };
        Ok(())
    }

    /// What is recorded, and the options that a printed command has of it, if they are not those of this process.
    fn as_recorded(
        id: ConversationId,
        common: &Common,
        desk: &WithoutAgent,
        begun: Option<&Scratch>,
    ) -> (Self, Option<StartedWith>) {
        let hints = Self::new(id, true, common, &desk.scope);
        if !desk.name.is_known() {
            let is_here = begun.is_none_or(|begun| *begun.agent == *agent_name(&desk.config));
            let accept_first = if is_here && desk.name.needs_acceptance() { ACCEPT_FIRST } else { "" };
            let reached = if is_here { Reached::Yes } else { Reached::OtherAgent };
            return (Self { accept_first, reached, ..hints }, None);
        }
        // A turn of an older version has recorded nothing.
        let Some((begun, parts)) = begun.and_then(|begun| Some((begun, begun.parts.as_ref()?))) else {
            return (hints, None);
        };
        let (recorded, now) = (StartedWith::from_words(&parts.started_with), StartedWith::of(common));
        let recorded = if begun.actor.is_same_user(&hints.actor) { recorded } else { recorded.for_another() };
        if let Some(why) = recorded.config.as_deref().and_then(|path| not_for(&hints.actor, path)) {
            return (Self { reached: Reached::No(why), ..hints }, None);
        }
        let here = &desk.project;
        let folder = (!begun.project.is_empty() && begun.project != *here).then(|| PathBuf::from(&*begun.project));
        // Whether the configuration that was read here is the one that the printed command reads.
        let same_config = (&recorded.config, recorded.trust.ignore_project) == (&now.config, now.trust.ignore_project)
            && folder.is_none();
        let reads_another = recorded.config.is_some() || recorded.trust.ignore_project || folder.is_some();
        if *begun.agent != *agent_name(&desk.config) && !reads_another {
            return (Self { reached: Reached::OtherAgent, ..hints }, None);
        }
        let mut started = recorded;
        let store_in_use = || with_absolute_path(&desk.name.to_string(), "sqlite:");
        started.store = now.store.or(started.store).or_else(|| (!same_config).then(store_in_use));
        if started.model.is_none() && same_config {
            started.model = other_model(begun, common, desk);
        }
        // Without a folder the command is given where the person stands, who may be below the project's folder.
        let given_in = folder.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        let carry_on = started.shown_in(&given_in);
        (Self { carry_on, folder, ..hints }, Some(started))
    }

    /// A command line, to be copied.
    fn line(&self, words: &str) -> String {
        let folder = self.folder.as_ref().map(|folder| format!("cd {} && ", quoted(&folder.display().to_string())));
        format!("{}`{}turnbuckle {words}`", self.accept_first, folder.unwrap_or_default())
    }

    /// The command that finishes the open turn.
    pub(crate) fn finish(&self) -> String {
        self.line(&format!("run -c {}{}", self.id, self.carry_on))
    }

    /// The command that goes on in a chat.
    pub(crate) fn chat(&self) -> String {
        self.line(&format!("chat -c {}{}", self.id, self.carry_on))
    }

    /// Which agent carries the turn on, and how it is started, if that is known.
    pub(crate) fn carried_on_by(&self, agent: &str) -> String {
        let agent = name(agent);
        if let Some(who) = &self.others_say {
            return format!("agent {agent} carries the turn on once someone takes it up who may: {who}");
        }
        match &self.reached {
            Reached::Yes => format!("agent {agent} carries the turn on: {}", self.finish()),
            Reached::IfInsisted(left) => {
                let insist = self.line(&format!("run -c {}{}{ACCEPT_CHANGES}", self.id, self.carry_on));
                format!("{left}; {}, or insist: {insist}", instead_of_insisting(left))
            }
            Reached::OtherAgent => format!(
                "agent {agent} carries the turn on, in the program that runs it, or here with `name = \"{agent}\"` in [agent]"
            ),
            Reached::No(why) => format!("agent {agent} carries the turn on {why}"),
        }
    }

    /// The command that only records an answer. It can be given in any folder that leads to the store.
    pub(crate) fn record(&self, pending: &Pending) -> String {
        self.command_with(pending, "answer", &self.options, |words| format!("`turnbuckle {words}`"))
    }

    /// One command, with the other answers that are possible.
    pub(crate) fn command(&self, pending: &Pending) -> String {
        match &self.reached {
            Reached::Yes => self.command_with(pending, "resolve", &self.carry_on, |words| self.line(words)),
            Reached::OtherAgent | Reached::No(_) => self.record(pending),
            // Only who may say something in the conversation may insist.
            Reached::IfInsisted(left) if self.others_say.is_some() => format!("{left}; {}", self.record(pending)),
            Reached::IfInsisted(left) => {
                let with = format!("{}{ACCEPT_CHANGES}", self.carry_on);
                let insist = self.command_with(pending, "resolve", &with, |words| self.line(words));
                format!("{left}; {} only records the answer; to insist: {insist}", self.record(pending))
            }
        }
    }

    fn command_with(&self, pending: &Pending, verb: &str, with: &str, line: impl Fn(&str) -> String) -> String {
        let (answer, instead) = match pending.question {
            Question::Elicitation { schema: None, .. } => ("--answer '\"…\"'", "--deny [REASON]"),
            Question::Elicitation { .. } | Question::ClientExec { .. } => ("--answer JSON", "--deny [REASON]"),
            _ => ("--approve", "--deny [REASON]"),
        };
        let digest = pending.question.digest().map(|digest| format!("--digest {}", shown_of_digest(digest)));
        // The digest stands first: a line that is cut off after it answers nothing.
        let answer = format!("{}{answer}", digest.map_or_else(String::new, |digest| format!("{digest} ")));
        let Self { id, options, .. } = self;
        let length = pending.call.as_str().len();
        if length > LONGEST_SHOWN {
            let line = line(&format!("{verb} {id} CALL {answer}{with}"));
            return format!(
                "{line} (or {instead}), where CALL is the id of the call: it has {length} bytes, and `turnbuckle show \
                 {id}{options} --json` prints it, as `call` of the `suspension`"
            );
        }
        // The id of a call is the model's, and a person pastes this into a shell.
        let call = quoted(pending.call.as_str());
        let line = match call.starts_with('-') {
            true => line(&format!("{verb} {id} {answer}{with} -- {call}")),
            false => line(&format!("{verb} {id} {call} {answer}{with}")),
        };
        format!("{line} (or {instead})")
    }

    /// Who could answer this, if its rule does not let the acting user, or wants others beside them.
    pub(crate) fn who_else(&self, pending: &Pending) -> Option<String> {
        who_else(pending, &self.actor)
    }

    /// What to do about questions that are open.
    pub(super) fn hint(&self, pending: &[Pending]) -> String {
        if !self.durable {
            return "the store `memory:` forgets, so this cannot be resolved later: `--store sqlite:PATH` keeps it; \
                    `--allow` names what may run unasked, such as `--allow 'shell(cargo test)'`, and a `before_tool` hook can judge calls"
                .to_owned();
        }
        let what_to_do = |pending: &Pending| match HowShown::of(pending) {
            HowShown::TooLong => self.look_first(pending),
            HowShown::InSummary | HowShown::InFull(_) => self.what_to_do(pending),
        };
        pending.iter().map(what_to_do).collect::<Vec<String>>().join(", ")
    }

    /// What to do about a call that is too long to be shown: the command that approves it stands below the whole of it.
    pub(crate) fn look_first(&self, pending: &Pending) -> String {
        let (call, Self { id, options, .. }) = (name(pending.call.as_str()), self);
        format!("`turnbuckle show {id}{options}` shows call {call} whole, and the command that answers it")
    }

    /// The command that answers, or who must answer if the acting user cannot.
    pub(crate) fn what_to_do(&self, pending: &Pending) -> String {
        match self.who_else(pending) {
            Some(who) => for_others(pending, &who),
            None => self.command(pending),
        }
    }

    /// What to do about a turn that this agent does not carry on.
    pub(crate) fn after_left(&self, left: &LeftTurn) -> String {
        after_left(left, &self.id, &self.options)
    }
}

/// How much of a call is shown to whoever gets the command that approves it.
pub(crate) enum HowShown {
    /// Its name and its arguments, as they are.
    InSummary,
    /// Not in the summary: all of it, as lines.
    InFull(String),
    /// Too long for that.
    TooLong,
}

/// The most that is shown of a call below an error.
const MOST_BYTES: usize = 16 * 1024;
const MOST_LINES: usize = 200;

impl HowShown {
    pub(crate) fn of(pending: &Pending) -> Self {
        let arguments = match &pending.question {
            Question::Approval { arguments, .. } | Question::ClientExec { arguments, .. } => arguments,
            _ => return Self::InSummary,
        };
        if is_shown_whole(arguments) {
            return Self::InSummary;
        }
        let lines = question::in_full(pending).into_iter().skip(1);
        let room = problem_room();
        let lines: Vec<String> = lines.map(|line| asked_text(&line.text, room)).collect();
        let text = lines.join("\n");
        match text.len() <= MOST_BYTES && text.lines().count() <= MOST_LINES {
            true => Self::InFull(text),
            false => Self::TooLong,
        }
    }
}

/// The columns of a further line of a problem, if stderr is a terminal.
pub(super) fn problem_room() -> Option<usize> {
    terminal_width(&std::io::stderr()).map(|width| width - BEFORE_A_PROBLEM)
}

/// What stands before a problem takes no more columns, and neither does the indent of its further lines.
const BEFORE_A_PROBLEM: usize = "warning: ".len();

/// How much of a digest a printed command has. The option takes 12 digits or more.
const DIGITS: usize = 16;

/// The beginning of a digest, for a command that a person copies. A database may have anything in its place, and then nothing
/// of it is printed: no answer with that digest is taken.
fn shown_of_digest(digest: &str) -> &str {
    match digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => digest.get(..DIGITS).unwrap_or(digest),
        false => "DIGEST",
    }
}

/// Before a command that carries a turn on in a database that is not accepted.
const ACCEPT_FIRST: &str = "`turnbuckle trust` accepts the database; then ";
/// Before a command that carries a turn on in a project whose file is not accepted.
const ACCEPT_FILE_FIRST: &str = "`turnbuckle trust` shows what the project's file has, and asks; then ";
/// At the end of a command that insists.
const ACCEPT_CHANGES: &str = " --accept-changes";

/// Why `--config` with this file is not printed for someone, if it is not: they would act as another person, whom the file
/// names, or it cannot be read.
fn not_for(reader: &Actor, path: &str) -> Option<String> {
    let shown = quoted(path);
    match actor_named_in(Path::new(path)) {
        Ok(Some(named)) if !named.actor().is_same_user(reader) => {
            Some(format!("with `--config {shown}`, which is for {}: [scope] in it says so", named.by()))
        }
        Ok(_) => None,
        Err(CannotTell) => Some(format!("with `--config {shown}`, which cannot be read here")),
    }
}

/// What can be done about a turn that is left, besides insisting.
fn instead_of_insisting(left: &LeftTurn) -> String {
    match &left.reason {
        LeftReason::OtherProject { project } => format!("go on in {}", quoted(project)),
        _ => "give the agent back what it lacks".to_owned(),
    }
}

/// Who could answer a question that has a rule, if this actor cannot: it is for others, or they have approved it already.
pub(crate) fn who_else(pending: &Pending, actor: &Actor) -> Option<String> {
    let rule = pending.rule.as_ref()?;
    let who =
        || format!("{}{}", rule.who(), still_missing(pending).map_or_else(String::new, |text| format!("; {text}")));
    if !rule.permits(actor) {
        return Some(who());
    }
    pending.approvals.contains(&actor.author()).then(|| format!("{}; you have approved it", who()))
}

/// How many approvals are missing, if some were given and more are needed.
pub(crate) fn still_missing(pending: &Pending) -> Option<String> {
    let missing = (pending.rule.as_ref()?.n as usize).saturating_sub(pending.approvals.len());
    match missing {
        _ if pending.approvals.is_empty() => None,
        0 => None,
        1 => Some("1 approval is still missing".to_owned()),
        missing => Some(format!("{missing} approvals are still missing")),
    }
}

/// For someone who may not answer a call.
pub(crate) fn for_others(pending: &Pending, who: &str) -> String {
    let call = name(pending.call.as_str());
    format!("call {call} is for others to answer: {who}; `turnbuckle pending` shows it to them")
}

/// What to do about a turn that this agent does not carry on. `options` lead to its store.
pub(crate) fn after_left(left: &LeftTurn, id: &ConversationId, options: &str) -> String {
    if let LeftReason::OtherProject { project } = &left.reason {
        return format!(
            "go on in {}, or insist with `--accept-changes`: then it works in this folder, and the log says that you insisted",
            quoted(project)
        );
    }
    match left.can_insist() {
        true => "give the agent back what it lacks, or insist with `--accept-changes`: then the turn goes on without, \
                 and the log says that you insisted"
            .to_owned(),
        false => format!(
            "`turnbuckle show {id}{options}` says how it goes on, `turnbuckle cancel {id}{options}` ends it; an agent has the \
             name that [agent] in turnbuckle.toml gives it: `name = \"{}\"`",
            left.agent
        ),
    }
}

/// The model that the turn began with, if another one would be chosen now.
fn other_model(begun: &Scratch, common: &Common, desk: &WithoutAgent) -> Option<String> {
    let as_recorded = Common { model: None, ..common.clone() };
    let project = Path::new(&*desk.project);
    let chosen = choose_model(&as_recorded, &desk.config).recorded(project);
    let is_other = !begun.model.is_empty() && *begun.model != *chosen && !holds_a_secret(&chosen);
    is_other.then(|| model_anywhere(project, &begun.model))
}
