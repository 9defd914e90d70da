//! `turnbuckle run`, `resolve` and `cancel`: one turn, or the rest of one. The answer goes to stdout, everything else to
//! stderr.

mod cancel;
mod hints;
mod message;
mod resolve;
mod schema;
mod verdict;
mod view;
mod watch;

use std::path::{Path, PathBuf};

use turnbuckle::access::RoleAccess;
use turnbuckle::audit::AuditOptions;
use turnbuckle::conversation::{ConversationsBuilder, SendError};
use turnbuckle::id::{Ids, SystemIds};
use turnbuckle::message::Text;
use turnbuckle::scope::Actor;
use turnbuckle::store::StoreError;
use turnbuckle::{Agent, ConversationId, Conversations, Outcome, Scope, TurnStatus};
use turnbuckle_server::Metrics;
use turnbuckle_stores::SqliteStore;
use turnbuckle_tools::{GuardedNames, Workspace};

use crate::Stopped;
use crate::args::{Common, Run};
use crate::assemble::{Prepared, prepare_allowing};
use crate::audit;
use crate::config;
use crate::erasure::Erasure;
use crate::exit::Exit;
use crate::mcp::{Desk, ServerLine};
use crate::model_name::first_key_variables;
use crate::problem::{Problem, with_causes};
use crate::project::OWN_FOLDER;
use crate::show::clean;
use crate::store::StoreName;
use crate::trust::{Gate, read_unasked};
pub(crate) use cancel::cancel;
pub(crate) use hints::{ResolveHints, after_left, for_others, who_else};
use message::Given;
pub(crate) use resolve::resolve;
pub(crate) use watch::{DisplayOptions, Expected, Watch};

/// Runs one turn and says how it came out. A turn that a crash left open is finished first.
pub(crate) async fn run(args: Run, common: &Common) -> Result<Exit, Stopped> {
    let id = conversation(args.conversation.as_deref())?;
    let common = &args.trust.noted_in(common);
    let ready = Ready::of(prepare_allowing(common, Gate::Needed(args.trust), args.allow))?;
    let common = &ready.with_store(common);
    // What is kept may have something left to be done.
    let kept = args.conversation.is_some() && ready.store.is_durable();
    let given = Given { argument: args.message.as_deref(), stdin: args.stdin, may_be_none: kept };
    let message = message::read(given)?;
    let message = message.map(|message| schema::shaped(message, args.schema.as_deref())).transpose()?;
    let conversations = match &message {
        Some(_) => ready.conversations()?,
        None => {
            let hint = format!(
                "there is no turn to finish; with a message, `turnbuckle run -c {id}{} \"…\"` begins the conversation",
                common.same_agent()
            );
            ready.existing(ready.store.existing(&hint)?)
        }
    };
    let display =
        DisplayOptions { json: args.json, quiet: args.quiet, bare: args.bare, in_one_piece: args.schema.is_some() };
    let expected = if message.is_some() { Expected::MaybeNew } else { Expected::Existing };
    let mut watch = Watch::begin(conversations, id, display, &ready, common, expected).await?;
    let open = match kept {
        true => {
            if args.carry_on.accept_changes {
                // Until its questions are answered the turn does not go on, so there is nothing to insist on yet.
                let waits = watch.open_questions().await.map_err(|error| refused(error, common))?;
                if !waits.is_empty() {
                    return watch.refuse(&waits, common).await;
                }
            }
            watch.accept_changes(args.carry_on, common).await?;
            watch.conversations.resume(&watch.id, ready.scope.clone()).await.map_err(|error| refused(error, common))?
        }
        false => None,
    };
    let Some(message) = message else {
        let Some(handle) = open else {
            watch.output.err(format!("conversation {} has no open turn: there is nothing to finish\n", watch.id));
            watch.wait_for_leftovers().await;
            return Ok(watch.finish(Exit::Completed).await);
        };
        let rest = watch.follow(handle).await;
        return match rest {
            Ok(TurnStatus::Waiting(pending)) if !watch.moved => watch.refuse(&pending, common).await,
            rest => Ok(watch.conclude(rest).await),
        };
    };
    if let Some(handle) = open {
        match watch.follow(handle).await {
            Ok(TurnStatus::Ended(ended)) if ended.outcome != Outcome::Cancelled => {}
            Ok(TurnStatus::Waiting(pending)) => return watch.refuse(&pending, common).await,
            rest => return Ok(watch.conclude(rest).await),
        }
    }
    let handle = watch.conversations.send(&watch.id, message, ready.scope.clone()).await;
    let handle = handle.map_err(|error| refused(error, common))?;
    let rest = watch.follow(handle).await;
    Ok(watch.conclude(rest).await)
}

/// What a turn needs.
pub(crate) struct Ready {
    pub(crate) agent: Agent,
    pub(crate) store: StoreName,
    /// Who is acting.
    pub(crate) scope: Scope,
    /// Who else may do what.
    access: RoleAccess,
    /// The name of the project.
    project: Text,
    /// The project's folder.
    pub(crate) folder: PathBuf,
    /// What the file tools work in.
    pub(crate) workspace: Option<Workspace>,
    /// What commands of the shell tool must not make.
    pub(crate) guarded: GuardedNames,
    /// Which files models are given although nobody accepted anything here, in words.
    read_unasked: Option<String>,
    /// Warnings that are shown before the turn.
    problems: Vec<Problem>,
    /// The model's name, as given.
    pub(crate) model: String,
    model_is_default: bool,
    /// What deleting conversations needs to know.
    pub(crate) erasure: Erasure,
    /// How what models are sent is recorded, if it is.
    audit: Option<AuditOptions>,
    /// MCP servers, and what their tools cost.
    pub(crate) mcp: Vec<ServerLine>,
    /// Where they ask the person.
    pub(crate) desk: Desk,
}

impl Ready {
    pub(crate) fn of(prepared: Prepared) -> Result<Self, Stopped> {
        let Prepared {
            agent: Some(agent),
            store,
            config,
            model,
            model_is_default,
            problems,
            gate,
            project,
            standing,
            items,
            reads_instructions,
            workspace,
            mcp,
            desk,
            ..
        } = prepared
        else {
            let problems = prepared.problems.into_iter().filter(Problem::is_error).collect();
            return Err(Stopped { problems, exit: Exit::Usage });
        };
        let (scope, access) = (config.scope.scope(), config.access.rules());
        if let Gate::Needed(options) = gate {
            store.admit(&standing, options, &config.scope.user_name())?;
        }
        let mut problems = problems;
        let runs_programs = config.hooks.iter().any(|hook| hook.options.iter().any(|(key, _)| key == "run"));
        problems.extend(
            runs_programs.then(turnbuckle_tools::foreign_watch_folder).flatten().map(|folder| foreign(&folder)),
        );
        problems.extend(crate::hooks::claude_notices(&config.hooks, &project.folder));
        let mut erasure = Erasure::of(&config, &project);
        if gate.options().ignore_project {
            // `retain` may delete conversations of which hooks of that file have kept something.
            erasure.note_unreached(&config::load(&Common::default(), Gate::Judged).config);
        }
        let (folder, project) = (project.folder.clone(), project.name());
        // Whoever accepted something in this project was told then.
        let read_unasked = (reads_instructions && items.is_empty()).then(|| read_unasked(&folder)).flatten();
        let guarded = GuardedNames::below(folder.clone(), OWN_FOLDER);
        let audit =
            audit::options(&config).map_err(|problem| Stopped { problems: vec![problem], exit: Exit::Usage })?;
        Ok(Self {
            agent,
            store,
            scope,
            access,
            project,
            folder,
            workspace,
            guarded,
            read_unasked,
            problems,
            model,
            model_is_default,
            erasure,
            audit,
            mcp,
            desk,
        })
    }

    /// The same options for commands that are printed. Without the project's file another store may be in use than commands
    /// choose that only look, and always read that file: so the store is named.
    pub(crate) fn with_store(&self, common: &Common) -> Common {
        let store = common.store.clone().or_else(|| common.trust.ignore_project.then(|| self.store.to_string()));
        Common { store, ..common.clone() }
    }

    /// Conversations in the chosen store; made if it is not there.
    pub(crate) fn conversations(&self) -> Result<ConversationsBuilder, Stopped> {
        Ok(self.ruled(self.store.conversations(self.agent.clone())?))
    }

    /// The same, with what is written counted.
    pub(crate) fn measured(&self, metrics: &Metrics) -> Result<ConversationsBuilder, Stopped> {
        Ok(self.ruled(self.store.measured(self.agent.clone(), metrics)?))
    }

    /// Conversations in a store that is there.
    pub(crate) fn existing(&self, store: SqliteStore) -> ConversationsBuilder {
        self.ruled(Conversations::builder(self.agent.clone(), store))
    }

    fn ruled(&self, builder: ConversationsBuilder) -> ConversationsBuilder {
        let builder = match &self.audit {
            Some(audit) => builder.audit(audit.clone()),
            None => builder,
        };
        let redact = audit::of_records();
        let builder = builder.redact_records(move |text| redact(text));
        self.erasure.apply(builder.access(self.access.clone()).project(self.project.clone()))
    }

    /// Whether the stand-in answers.
    pub(crate) fn is_demo(&self) -> bool {
        self.model == "demo"
    }

    /// What a person should know before anything runs, in lines.
    pub(crate) fn remarks(&self) -> String {
        self.warnings() + &self.notes()
    }

    /// What is wrong and keeps nothing from running, in lines.
    fn warnings(&self) -> String {
        self.problems.iter().map(|problem| format!("{problem}\n")).collect()
    }

    /// What else a person should know, in lines. Guarded files that appeared are among it: whoever is not told of them here is
    /// told after the turn, or by the next command of the shell tool.
    fn notes(&self) -> String {
        let appeared = guarded_appeared(&self.guarded);
        let mut lines: String = appeared.iter().map(|problem| format!("{problem}\n")).collect();
        if let Some(read) = &self.read_unasked {
            lines += &format!("note: {read}; `default_instructions = false` in [agent] leaves that out\n");
        }
        if self.model_is_default {
            lines += &unchosen(&self.model);
        }
        lines
    }
}

/// Guarded files that came after the last command of the shell tool had ended. Each is told once.
pub(crate) fn guarded_appeared(guarded: &GuardedNames) -> Option<Problem> {
    let names = guarded.appeared();
    let what = format!("made since the last command of the shell tool ended: {}", names.join(", "));
    let hint = "if it was not you, a process that a command left in the background did it: look at what is in there before anything uses it";
    (!names.is_empty()).then(|| Problem::warning(what).hint(hint))
}

/// Somebody took the name of the folder in which processes of this user find each other's programs.
fn foreign(folder: &Path) -> Problem {
    let what = format!("{} was made by another user, or others may write to it: it is not used", folder.display());
    Problem::warning(what).hint(
        "after a crash, programs of hooks may be started beside those of the process that died; whoever administers this \
         machine can remove the folder",
    )
}

/// The note about a model that was chosen by default.
fn unchosen(model: &str) -> String {
    match model {
        "demo" => format!(
            "note: no model was chosen and no key was found, so the demo model answers\n\
             hint: set {}, or choose one with --model; `turnbuckle doctor` says what is there\n",
            first_key_variables()
        ),
        model => format!("note: no model was chosen: {model} answers, by the key that was found\n"),
    }
}

/// The id given, or a new one.
pub(crate) fn conversation(given: Option<&str>) -> Result<ConversationId, Stopped> {
    let Some(given) = given else { return Ok(SystemIds::default().mint("c_").into()) };
    ConversationId::parse(given).map_err(|error| {
        Stopped::usage(Problem::error(error.to_string()).hint("for example `-c build-42`; leave -c out for a new one"))
    })
}

/// The id of a conversation that should be there.
pub(crate) fn named(given: &str, common: &Common) -> Result<ConversationId, Stopped> {
    ConversationId::parse(given)
        .map_err(|error| Stopped::usage(Problem::error(error.to_string()).hint(how_to_find(&common.same_store()))))
}

/// How to find an id in the store that `options` lead to.
pub(crate) fn how_to_find(options: &str) -> String {
    format!("`turnbuckle list{options}` says which there are")
}

/// Who is acting, and where it stands.
pub(crate) fn who_acts(scope: &Scope) -> String {
    let you = match scope.actor() {
        Actor::User { id, roles } if roles.is_empty() => format!("you are user {id}, with no roles; "),
        Actor::User { id, roles } => {
            let roles: Vec<&str> = roles.iter().map(|role| &**role).collect();
            format!("you are user {id}, with role {}; ", roles.join(", "))
        }
        Actor::System => String::new(),
    };
    clean(&format!("{you}who you are and which roles you have stands in [scope] of your own turnbuckle.toml"))
}

/// A message was not taken, and why.
pub(crate) fn refused(error: SendError, common: &Common) -> Stopped {
    let options = common.same_store();
    let problem = Problem::error(with_causes(&error));
    match error {
        SendError::Empty => Stopped::usage(problem.hint(message::HOW)),
        SendError::TooLarge { .. } => Stopped::usage(
            problem.hint("send less, or raise `context_tokens` in [limits]; a file is better read by a tool"),
        ),
        SendError::Busy { id, pending } if pending.is_empty() => Stopped::failed(elsewhere(&id, &options)),
        SendError::Store(StoreError::InUse { id }) => Stopped::failed(elsewhere(&id, &options)),
        SendError::Busy { id, .. } => Stopped::failed(
            problem.hint(format!("`turnbuckle show {id}{options}` says how to answer what it waits for")),
        ),
        SendError::NotFound { .. } => Stopped::failed(problem.hint(how_to_find(&options))),
        SendError::Full { .. } => Stopped::failed(problem.hint("try again in a moment")),
        SendError::Left { id, left } => Stopped::failed(problem.hint(after_left(&left, &id, &options))),
        SendError::Forbidden { .. } => {
            let scope = config::load_without_agent(common).config.scope.scope();
            Stopped::failed(problem.hint(who_acts(&scope)))
        }
        SendError::Deleted { .. } => Stopped::failed(problem.hint("choose another id, or leave it out for a new one")),
        SendError::Held { id, .. } => {
            Stopped::failed(problem.hint(format!("`turnbuckle hold {id} --release{options}` ends the hold")))
        }
        _ => Stopped::failed(problem),
    }
}

fn elsewhere(id: &ConversationId, options: &str) -> Problem {
    Problem::error(format!("conversation {id} is busy: another process carries its turn on"))
        .hint(format!("try again when it rests, or end its turn with `turnbuckle cancel {id}{options}`"))
}
