//! One hub for each conversation that is watched: it alone subscribes, makes each event's frame once, and keeps the last ones for
//! viewers that come back.
//!
//! A viewer has a place among the frames, and no buffer. One that is too slow finds its place gone and is told `lagged`. A hub
//! stays for a while after its last viewer, so that a viewer which comes back goes on where it was.

mod changes;
mod frame;
mod task;
mod viewer;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use turnbuckle::clock::Clock;
use turnbuckle::conversation::SendError;
use turnbuckle::feed::{Cursor, Delivery, FeedEvent, FeedItem, Level, LiveEvent, Subscription};
use turnbuckle::{ConversationId, Conversations, Scope};

use crate::live_questions::LiveQuestions;
use crate::page::{Patch, Queued, Rights, View};
use crate::rejection::Rejection;
use crate::waits::Waiting;

use self::changes::{QuestionChange, changes_questions};
use self::frame::{Frame, PageFrame, frame};
use self::task::{look_at_queue, run};
pub(crate) use self::viewer::Viewer;

/// How long a hub stays without viewers.
const LINGER: Duration = Duration::from_secs(60);
/// How often a hub looks whether another process wrote, and whether it is still needed.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a snapshot waits for events that are in the log already.
const CATCH_UP_WITHIN: Duration = Duration::from_secs(5);
/// How many bytes of frames a hub keeps. The last frame is kept whatever its size.
const MAX_BYTES: usize = 1 << 20;
/// How many frames a hub keeps.
const MAX_FRAMES: usize = 4_096;
/// How many waiting messages are shown, and how many characters of each.
const MAX_QUEUE_SHOWN: usize = 50;
const MAX_QUEUED_TEXT: usize = 300;
/// How many hubs may stay without viewers; more of them end sooner.
const MAX_UNWATCHED: usize = 1_024;

/// The hubs of a server.
pub(crate) struct Hubs {
    conversations: Conversations,
    clock: Arc<dyn Clock>,
    questions: LiveQuestions,
    /// Locked before a hub's own lock, never after it.
    hubs: Mutex<HashMap<ConversationId, Arc<Hub>>>,
}

impl Hubs {
    pub(crate) fn new(conversations: Conversations, clock: Arc<dyn Clock>, questions: LiveQuestions) -> Self {
        Self { conversations, clock, questions, hubs: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Arc<Hub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hub of a conversation that exists; it is started if there is none. Who may see it is decided by the caller.
    pub(crate) async fn of(self: &Arc<Self>, id: &ConversationId) -> Result<Arc<Hub>, Rejection> {
        if let Some(hub) = self.lock().get(id) {
            hub.touch();
            return Ok(hub.clone());
        }
        let subscription = self.subscribe(id).await?;
        let mut hubs = self.lock();
        if let Some(hub) = hubs.get(id) {
            // Another request was quicker.
            hub.touch();
            return Ok(hub.clone());
        }
        if hubs.len() >= MAX_UNWATCHED {
            end_oldest_unwatched(&mut hubs);
        }
        let asked = self.questions.changes();
        let hub = Arc::new(Hub::new(id.clone(), &subscription, self.clock.clone(), self.questions.clone()));
        hubs.insert(id.clone(), hub.clone());
        drop(hubs);
        tokio::spawn(run(self.clone(), hub.clone(), subscription, asked));
        Ok(hub)
    }

    /// What a person sees of a conversation that exists now, and the cursor from which events go on.
    pub(crate) async fn current(self: &Arc<Self>, id: &ConversationId) -> Result<(View, Cursor), Rejection> {
        let hub = self.of(id).await?;
        self.current_of(&hub).await
    }

    /// The same as the page shows it. From now on the hub makes pieces of the page, for a viewer that is about to join.
    pub(crate) async fn current_page(self: &Arc<Self>, id: &ConversationId) -> Result<(View, Cursor), Rejection> {
        let hub = self.of(id).await?;
        hub.lock().rendered_for = Some(Instant::now());
        look_at_queue(self, &hub).await;
        self.current_of(&hub).await
    }

    async fn current_of(&self, hub: &Hub) -> Result<(View, Cursor), Rejection> {
        hub.look_at_questions();
        // Another process may have written: what it wrote is published here, and reaches the hub's view a moment later.
        let stored = self.conversations.snapshot(&hub.id, Scope::system()).await?;
        let whole = hub.view_with(stored.events.last().map_or(0, |event| event.seq));
        // The event is on its way; if it does not come, what is known is better than no answer.
        Ok(timeout(CATCH_UP_WITHIN, whole).await.unwrap_or_else(|_| hub.view()))
    }

    /// A message was sent or taken back: the page shows those that wait.
    pub(crate) fn queue_changed(&self, id: &ConversationId) {
        if let Some(hub) = self.lock().get(id) {
            hub.queue_changed.notify_one();
        }
    }

    async fn subscribe(&self, id: &ConversationId) -> Result<Subscription, SendError> {
        self.conversations.subscribe(id, Delivery::Lossy, Scope::system()).await
    }

    /// Ends a hub that has no viewers for long enough, unless somebody has come meanwhile.
    fn end_if_unused(&self, hub: &Arc<Hub>) -> bool {
        let mut hubs = self.lock();
        let unused = hub.unwatched_since().is_some_and(|since| since.elapsed() >= LINGER);
        if unused {
            self.remove(&mut hubs, hub);
        }
        unused
    }

    fn remove(&self, hubs: &mut HashMap<ConversationId, Arc<Hub>>, hub: &Arc<Hub>) {
        if hubs.get(&hub.id).is_some_and(|known| Arc::ptr_eq(known, hub)) {
            hubs.remove(&hub.id);
        }
        hub.end();
    }
}

/// Half of the hubs without viewers go, those first that have been without longest.
fn end_oldest_unwatched(hubs: &mut HashMap<ConversationId, Arc<Hub>>) {
    let unwatched = hubs.iter().filter_map(|(id, hub)| Some((hub.unwatched_since()?, id.clone())));
    let mut unwatched: Vec<_> = unwatched.collect();
    if unwatched.len() < MAX_UNWATCHED {
        return;
    }
    unwatched.sort_unstable();
    for (_, id) in unwatched.into_iter().take(MAX_UNWATCHED / 2) {
        if let Some(hub) = hubs.remove(&id) {
            hub.end();
        }
    }
}

/// One conversation as its viewers share it.
pub(crate) struct Hub {
    pub(crate) id: ConversationId,
    clock: Arc<dyn Clock>,
    questions: LiveQuestions,
    state: Mutex<State>,
    /// Sent after every change of `state` that viewers wait for.
    changed: watch::Sender<Change>,
    /// Told when a message was sent or taken back here.
    queue_changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// The number of the next frame.
    next: u64,
    ended: bool,
}

struct State {
    view: View,
    /// Added to positions of epoch 0. There is no claim in that epoch, so positions in it are counted by each process, and again
    /// each time that a conversation comes into memory: without this, a cursor of another count could be taken for one of ours.
    base: u64,
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The number of the first of `frames`.
    first: u64,
    /// The cursor of what was told before the first frame.
    floor: Cursor,
    viewers: usize,
    unwatched_since: Instant,
    /// How many of the viewers are pages.
    pages: usize,
    /// When something was last asked or answered.
    asked_at: Instant,
    /// When a page was last rendered or its stream last ended; pieces of the page are made for a while after that.
    rendered_for: Option<Instant>,
}

impl State {
    /// A cursor as it is told.
    fn told(&self, cursor: Cursor) -> Cursor {
        match cursor.epoch {
            0 => Cursor { epoch: 0, position: self.base.saturating_add(cursor.position) },
            _ => cursor,
        }
    }

    /// Whether pieces of the page are made: there is a page, or one may come back.
    fn renders(&self) -> bool {
        self.pages > 0 || self.rendered_for.is_some_and(|at| at.elapsed() < LINGER)
    }

    fn end(&self) -> u64 {
        self.first + self.frames.len() as u64
    }

    /// The number of the frame behind this cursor; `None` if it was not told here, or too long ago.
    fn behind(&self, cursor: Cursor) -> Option<u64> {
        // Several frames may have one cursor, if the queue or the live questions changed between two events. What comes behind the
        // first of them is sent again: that changes nothing for whoever has seen it.
        let place = self.frames.iter().position(|frame| frame.cursor == cursor);
        match place {
            // If the event itself is gone, the first of them is another change, which may not have been seen.
            Some(place) if self.frames.get(place).is_some_and(|frame| !frame.is_event) => {
                Some(self.first + place as u64)
            }
            Some(place) => Some(self.first + place as u64 + 1),
            None if cursor == self.told(self.view.projection().cursor) => Some(self.end()),
            None => (cursor == self.floor).then_some(self.first),
        }
    }

    fn push(&mut self, frame: Frame) -> u64 {
        self.bytes += frame.json.len() + frame.page.len();
        self.frames.push_back(frame);
        while self.frames.len() > 1 && (self.bytes > MAX_BYTES || self.frames.len() > MAX_FRAMES) {
            if let Some(gone) = self.frames.pop_front() {
                self.bytes -= gone.json.len() + gone.page.len();
                (self.floor, self.first) = (gone.cursor, self.first + 1);
            }
        }
        self.end()
    }
}

impl Hub {
    fn new(id: ConversationId, subscription: &Subscription, clock: Arc<dyn Clock>, questions: LiveQuestions) -> Self {
        let mut view = View::new(id.clone(), subscription.snapshot.clone());
        for waiting in questions.of(&id) {
            view.ask(waiting);
        }
        // Two hubs of one conversation never begin in the same millisecond: one of them stays for a minute, or the conversation
        // went from memory and came back.
        let base = clock.now().as_millis().saturating_mul(1_000);
        let mut state = State {
            view,
            base,
            frames: VecDeque::new(),
            bytes: 0,
            first: 0,
            floor: Cursor::default(),
            viewers: 0,
            unwatched_since: Instant::now(),
            pages: 0,
            asked_at: Instant::now(),
            rendered_for: None,
        };
        state.floor = state.told(state.view.projection().cursor);
        let (state, changed) = (Mutex::new(state), watch::Sender::default());
        Self { id, clock, questions, state, changed, queue_changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        self.lock().unwatched_since = Instant::now();
    }

    /// Since when it has no viewers; `None` if it has some.
    fn unwatched_since(&self) -> Option<Instant> {
        let state = self.lock();
        (state.viewers == 0).then_some(state.unwatched_since)
    }

    fn end(&self) {
        self.changed.send_modify(|change| change.ended = true);
    }

    /// Whether pieces of the page are made.
    fn renders(&self) -> bool {
        self.lock().renders()
    }

    /// When something was last asked or answered here.
    pub(crate) fn asked_at(&self) -> Instant {
        self.lock().asked_at
    }

    /// What a person sees, and the cursor from which events go on.
    fn view(&self) -> (View, Cursor) {
        let state = self.lock();
        (state.view.clone(), state.told(state.view.projection().cursor))
    }

    /// The view once it has the log event of this number, or the conversation is gone.
    async fn view_with(&self, seq: u64) -> (View, Cursor) {
        let mut changed = self.changed.subscribe();
        loop {
            let is_ended = changed.borrow_and_update().ended;
            let last = |state: &State| state.view.projection().events.last().map_or(0, |event| event.seq);
            if is_ended || last(&self.lock()) >= seq || changed.changed().await.is_err() {
                return self.view();
            }
        }
    }

    fn publish(&self, event: &FeedEvent) {
        let mut state = self.lock();
        let cursor = state.told(event.cursor);
        if changes_questions(event, state.view.projection()) {
            state.asked_at = Instant::now();
        }
        let page = match state.renders() {
            true => PageFrame::of(cursor, state.view.apply(event)),
            false => {
                state.view.take_in(event);
                PageFrame::NotMade
            }
        };
        let json = match cursor == event.cursor {
            true => frame(event),
            false => frame(&FeedEvent { cursor, ..event.clone() }),
        };
        let Some(json) = json else { return };
        self.tell(state, Frame { cursor, is_event: true, json, page });
    }

    fn tell(&self, mut state: MutexGuard<'_, State>, frame: Frame) {
        let next = state.push(frame);
        drop(state);
        // Another teller may have been quicker with a later frame.
        self.changed.send_modify(|change| change.next = change.next.max(next));
    }

    /// Takes in the messages that wait. Only pages are told.
    fn set_queue(&self, queue: Vec<Queued>) {
        let mut state = self.lock();
        let patches = state.view.set_queue(queue);
        let cursor = state.told(state.view.projection().cursor);
        if !patches.is_empty() {
            let page = if state.renders() { PageFrame::of(cursor, patches) } else { PageFrame::NotMade };
            self.tell(state, Frame { cursor, is_event: false, json: Bytes::new(), page });
        }
    }

    /// Takes in which live questions stand, and tells viewers of each that came or went.
    fn look_at_questions(&self) {
        // Held while the questions are read: two that look at once would tell what they saw in any order.
        let mut state = self.lock();
        let (now, before) = (self.questions.of(&self.id), state.view.asked().to_vec());
        let stands = |all: &[Waiting], one: &Waiting| all.iter().any(|other| other.pending.call == one.pending.call);
        let gone = before.iter().filter(|one| !stands(&now, one)).map(QuestionChange::Gone);
        let came = now.iter().filter(|one| !stands(&before, one)).map(QuestionChange::Came);
        let mut next = None;
        for change in gone.chain(came) {
            let cursor = state.told(state.view.projection().cursor);
            let patch = match change {
                QuestionChange::Gone(waiting) => state.view.withdraw(&waiting.pending.call),
                QuestionChange::Came(waiting) => state.view.ask(waiting.clone()),
            };
            let page = if state.renders() { PageFrame::of(cursor, vec![patch]) } else { PageFrame::NotMade };
            let turn = state.view.projection().events.last().map(|event| event.turn.clone());
            let told = change.told().map(|told| FeedEvent { turn, ..self.live(cursor, told) });
            let Some(json) = told.as_ref().and_then(frame) else { continue };
            state.asked_at = Instant::now();
            next = Some(state.push(Frame { cursor, is_event: false, json, page }));
        }
        drop(state);
        if let Some(next) = next {
            self.changed.send_modify(|change| change.next = change.next.max(next));
        }
    }

    /// Events were missed here: all viewers are told, and the view is that of the new subscription.
    fn start_again(&self, subscription: &Subscription, missed: u64) {
        let mut state = self.lock();
        let asked = state.view.asked().to_vec();
        state.view = View::new(self.id.clone(), subscription.snapshot.clone());
        for waiting in asked {
            state.view.ask(waiting);
        }
        state.asked_at = Instant::now();
        let cursor = state.told(state.view.projection().cursor);
        let Some(json) = frame(&self.live(cursor, LiveEvent::Lagged { missed })) else { return };
        let page = PageFrame::of(cursor, vec![Patch::Refresh]);
        self.tell(state, Frame { cursor, is_event: true, json, page });
    }

    fn live(&self, cursor: Cursor, live: LiveEvent) -> FeedEvent {
        FeedEvent {
            conversation: self.id.clone(),
            turn: None,
            cursor,
            at: self.clock.now(),
            item: FeedItem::Live(live),
        }
    }

    /// Something to be told to one viewer, which changes no view and stands at no place of its own.
    pub(crate) fn notice(&self, text: &str) -> Option<Bytes> {
        let state = self.lock();
        let cursor = state.told(state.view.projection().cursor);
        drop(state);
        frame(&self.live(cursor, LiveEvent::Notice { level: Level::Info, text: text.into(), hook: None }))
    }

    /// A viewer that has seen everything up to `last`, or wants what comes from now on. With rights it is a page, and is sent what
    /// changes on it.
    pub(crate) fn join(self: &Arc<Self>, last: Option<Cursor>, page: Option<Rights>) -> Viewer {
        let mut state = self.lock();
        state.pages += usize::from(page.is_some());
        let next = match last {
            None => Some(state.end()),
            Some(last) => state.behind(last),
        };
        state.viewers += 1;
        let (next, lagged) = match next {
            Some(next) => (next, None),
            // How many it missed cannot be known.
            None => (state.end(), Some(0)),
        };
        let cursor = last.filter(|_| lagged.is_none()).unwrap_or_else(|| state.told(state.view.projection().cursor));
        drop(state);
        Viewer { hub: self.clone(), next, lagged, cursor, page, changed: self.changed.subscribe() }
    }
}
