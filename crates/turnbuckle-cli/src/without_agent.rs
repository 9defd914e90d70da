//! A store for those who look, answer, cancel: no agent is built, nothing of the configuration runs, and no key is needed.

use turnbuckle::access::{Access as _, AccessTo, Action, RoleAccess};
use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::message::Text;
use turnbuckle::projection::Pending;
use turnbuckle::{Conversations, Scope};
use turnbuckle_stores::SqliteStore;

use crate::Stopped;
use crate::args::Common;
use crate::config::{self, Config, Loaded};
use crate::erasure::Erasure;
use crate::exit::Exit;
use crate::output;
use crate::problem::Problem;
use crate::project::Project;
use crate::run::who_else;
use crate::store::{MADE_BY_RUN, StoreName};
use crate::trust::Gate;
use crate::user_folders;

/// The chosen store, who is acting, and what they may do.
pub(crate) struct WithoutAgent {
    pub(crate) store: SqliteStore,
    /// Where it is.
    pub(crate) name: StoreName,
    pub(crate) conversations: Conversations,
    pub(crate) scope: Scope,
    pub(crate) access: RoleAccess,
    pub(crate) config: Config,
    /// The project's name: its folder.
    pub(crate) project: Text,
}

impl WithoutAgent {
    /// To look; nothing is written.
    pub(crate) fn read_only(common: &Common) -> Result<Self, Stopped> {
        let chosen = Chosen::of(config::load_without_agent(common), common)?;
        let store = chosen.name.open_read_only()?;
        Ok(chosen.with(store, |builder| builder))
    }

    /// To write into a database that is there.
    pub(crate) fn existing(common: &Common) -> Result<Self, Stopped> {
        let chosen = Chosen::of(config::load_without_agent(common), common)?;
        let store = chosen.name.existing(MADE_BY_RUN)?;
        Ok(chosen.with(store, |builder| builder))
    }

    /// To delete from a database that is there: also what hooks of the configuration keep beside it. So `[[hooks]]` must be
    /// readable, also in a project's file that was not accepted. No hook is made, so none needs its secret.
    pub(crate) fn deleting(common: &Common) -> Result<Self, Stopped> {
        let mut loaded = config::load_to_delete(common, Gate::LeftOut);
        let judged = (!loaded.standing.is_accepted()).then(|| config::load_to_delete(common, Gate::Judged));
        if let Some(judged) = &judged {
            loaded.problems.clone_from(&judged.problems);
        }
        let chosen = Chosen::of(loaded, common)?;
        let mut erasure = Erasure::of(&chosen.config, &chosen.project);
        judged.iter().for_each(|judged| erasure.note_unreached(&judged.config));
        let store = chosen.name.existing(MADE_BY_RUN)?;
        Ok(chosen.with(store, |builder| erasure.apply(builder)))
    }

    /// Who else could answer this, if the acting user may not.
    pub(crate) fn who_else(&self, to: AccessTo<'_>, pending: &Pending) -> Option<String> {
        let actor = self.scope.actor();
        match &pending.rule {
            Some(_) => who_else(pending, actor),
            None => (!self.access.may(actor, to, Action::Answer)).then(|| self.access.who(Action::Answer)),
        }
    }
}

/// What somebody should know whom a project lets see the conversations of others. It is said whatever they ask for, so it does not
/// tell which conversations there are.
fn access_left_out(project: &Project) -> Problem {
    let what = format!(
        "`[access]` of {} is not accepted, so it is not used: you may do only what the owner of a conversation may",
        project.file().display()
    );
    Problem::warning(what).hint("`turnbuckle trust` shows what the file has, and asks")
}

/// The store that is chosen, and as much of the configuration as counts without an agent.
struct Chosen {
    name: StoreName,
    config: Config,
    project: Project,
}

impl Chosen {
    fn of(loaded: Loaded, common: &Common) -> Result<Self, Stopped> {
        let Loaded { config, mut problems, project, items, standing, store_left_out, .. } = loaded;
        let is_other_store = store_left_out && common.store.is_none();
        if !is_other_store {
            problems.retain(Problem::is_error);
            output::report(&project.remarks());
            output::report(&user_folders::remarks());
        }
        if is_other_store {
            let what = format!("{} names a store, and is not accepted", project.file().display());
            let hint = "`turnbuckle trust` shows what it names, and asks; `--store URL` names the store to look at";
            problems.push(Problem::error(what).hint(hint));
        }
        match StoreName::choose(common, &config, &project).map_err(|problem| problems.push(problem)) {
            Ok(name) if problems.is_empty() => {
                name.check_place(&standing)?;
                if !standing.is_accepted() && items.iter().any(|item| item.section == "access") {
                    output::report(&[access_left_out(&project)]);
                }
                Ok(Self { name, config, project })
            }
            _ => Err(Stopped { problems, exit: Exit::Usage }),
        }
    }

    fn with(
        self,
        store: SqliteStore,
        finish: impl FnOnce(ConversationsBuilder) -> ConversationsBuilder,
    ) -> WithoutAgent {
        let Self { name, config, project } = self;
        let (scope, access) = (config.scope.scope(), config.access.rules());
        let conversations = finish(Conversations::without_agent(store.clone()).access(access.clone())).build();
        WithoutAgent { store, name, conversations, scope, access, config, project: project.name() }
    }
}
