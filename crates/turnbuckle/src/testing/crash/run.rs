//! One run: a life that may end early, a second one that finishes what it left, and what is left in the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Kit;
use super::caller::{Caller, Trouble, main_conversation, stuck};
use super::crashing_store::CrashingStore;
use super::life::{Boundary, Life};
use super::world::{Deeds, World};
use crate::conversation::Conversations;
use crate::event::Event;
use crate::id::ConversationId;
use crate::store::{JobKind, LEASE, Store};
use crate::testing::PausedClock;

/// What a run came to.
pub(super) struct Run {
    /// Those of the first life.
    pub(super) boundaries: Vec<Boundary>,
    /// Where the first life ended, if it was cut off.
    pub(super) death: Option<Boundary>,
    pub(super) trouble: Option<Trouble>,
    pub(super) logs: BTreeMap<ConversationId, Vec<Arc<Event>>>,
    /// Work that is not done: conversation, hook, kind, and whether it is parked.
    pub(super) jobs: Vec<(ConversationId, String, &'static str, bool)>,
    pub(super) deeds: Deeds,
}

/// After so many rounds in which nothing happened, nothing will, unless time passes.
const QUIET_ROUNDS: usize = 32;
/// How much faster than a real one the clock runs while somebody waits for a second or more: tools that do real work,
/// on a thread or a socket, get real time for it.
const SPEED: u32 = 200;
/// How long nothing may happen when nobody waits for the clock.
const MOST_SILENCE: Duration = Duration::from_secs(5);

impl Kit {
    /// Plays the script; the process dies at boundary `dies_at`, and another finishes.
    pub(super) fn play(&self, dies_at: Option<usize>) -> Run {
        let first = World::first(dies_at);
        let mut trouble = self.live(&first);
        let (boundaries, death) = (first.life.boundaries(), first.life.death());
        let last = if death.is_some() {
            let second = first.reborn();
            trouble = self.live(&second);
            second
        } else {
            first
        };
        let store = &last.lasting.store;
        let (logs, jobs) = match runtime() {
            Ok(runtime) => runtime.block_on(left_behind(store)),
            Err(error) => {
                trouble.get_or_insert(error);
                Default::default()
            }
        };
        let deeds = last.deeds().clone();
        Run { boundaries, death, trouble, logs, jobs, deeds }
    }

    /// One life, to its end. Everything that runs in it is gone afterwards.
    fn live(&self, world: &World) -> Option<Trouble> {
        let agent = match (self.make)(world) {
            Ok(agent) => world.watch(&agent),
            Err(error) => return Some(stuck("building the agent", error)),
        };
        world.deeds().agents.insert(main_conversation(), agent.clone());
        let clock = &world.lasting.clock;
        if world.life.number > 1 {
            // The dead hold their claims and their jobs until these lapse.
            clock.advance(LEASE + agent.time_for_jobs());
        }
        let store = CrashingStore { store: world.lasting.store.clone(), life: world.life.clone() };
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(error) => return Some(error),
        };
        runtime.block_on(async {
            let builder = Conversations::builder(agent, store);
            let builder = (self.change)(builder).clock(Arc::new(clock.clone())).ids(world.lasting.ids.clone());
            let caller = Caller { door: builder.build(), world, steps: &self.steps, scope: self.scope.clone() };
            let time = tokio::spawn(pass_time(clock.clone(), world.life.clone()));
            let played = tokio::select! {
                biased;
                played = world.life.lead(caller.play()) => played,
                _ = time => Some(Err(Trouble::Stuck("nothing happens any more".to_owned()))),
            };
            match played {
                Some(Ok(())) => {
                    world.life.unless_dead(quiet(&world.life)).await;
                    None
                }
                Some(Err(trouble)) => Some(trouble),
                None => None,
            }
        })
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Trouble> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| stuck("starting a runtime", error))
}

/// Ready when nothing happened for a while.
async fn quiet(life: &Life) {
    let mut before = life.activity();
    let mut rounds = 0;
    while rounds < QUIET_ROUNDS {
        tokio::task::yield_now().await;
        let now = life.activity();
        rounds = if now == before { rounds + 1 } else { 0 };
        before = now;
    }
}

/// Moves the clock on when nothing else can happen. Ready when even that helps nobody.
async fn pass_time(clock: PausedClock, life: Arc<Life>) {
    let mut silence = Duration::ZERO;
    while silence < MOST_SILENCE {
        quiet(&life).await;
        let before = life.activity();
        match clock.next_wake() {
            Some(wait) => {
                silence = Duration::ZERO;
                if wait >= Duration::from_secs(1) {
                    tokio::time::sleep(wait / SPEED).await;
                }
                if life.activity() == before {
                    clock.advance(wait);
                }
            }
            None => {
                const MOMENT: Duration = Duration::from_millis(1);
                tokio::time::sleep(MOMENT).await;
                silence += MOMENT;
            }
        }
    }
}

type Left = (BTreeMap<ConversationId, Vec<Arc<Event>>>, Vec<(ConversationId, String, &'static str, bool)>);

async fn left_behind(store: &impl Store) -> Left {
    let (mut logs, mut jobs) = (BTreeMap::new(), Vec::new());
    for listed in store.list().await.unwrap_or_default() {
        let id = listed.id;
        let left = store.jobs(&id).await.unwrap_or_default();
        let job = |kind: JobKind| kind.name();
        jobs.extend(
            left.into_iter().map(|left| (id.clone(), left.hook.to_string(), job(left.kind), left.due.is_none())),
        );
        logs.insert(id.clone(), store.log(&id, 1, usize::MAX).await.unwrap_or_default());
    }
    jobs.sort();
    (logs, jobs)
}
