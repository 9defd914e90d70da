//! The story on the page: what `turnbuckle serve` serves where no model and no file is set up. It works in a scratch folder, and
//! nothing of it is kept.

use std::time::Duration;

use turnbuckle::conversation::ConversationsBuilder;
use turnbuckle::message::Message;
use turnbuckle::model::{Model, ModelError, Request, Sink};
use turnbuckle::models::{Demo, Script};
use turnbuckle::stores::MemoryStore;
use turnbuckle::{BoxError, BoxFuture, ConversationId, Conversations, Reply, Scope};
use turnbuckle_server::Metrics;

use super::pace::Pace;
use super::{REQUEST, Stage};

/// How many replies the story has.
const REPLIES: usize = 5;
/// The conversation that it is told in.
const STORY: &str = "story";

/// The story, told once to whoever opens the page.
pub(crate) struct PageStory {
    stage: Stage,
}

impl PageStory {
    pub(crate) async fn set() -> Result<Self, BoxError> {
        // People read along, whatever this program's own output is.
        Ok(Self { stage: Stage::set_at(Pace::choose_or(1.0)).await? })
    }

    /// Conversations with the story's agent, in memory.
    pub(crate) fn conversations(&self, metrics: &Metrics) -> Result<ConversationsBuilder, BoxError> {
        let model = Storyteller { story: Demo::story(self.stage.pace.word()), otherwise: Demo::default() };
        Ok(Conversations::builder(self.stage.agent_with(model)?, metrics.measured(MemoryStore::default())))
    }

    /// Begins the story's turn.
    pub(crate) async fn begin(&self, conversations: &Conversations, scope: &Scope) -> Result<(), BoxError> {
        let id = conversations.create(Some(ConversationId::from(STORY)), scope).await?;
        conversations.set_title(&id, "The story: a stop hook at work", scope).await?;
        // Time for the page to open, so that the beginning is seen, too.
        if self.stage.pace.is_slow() {
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        conversations.send(&id, REQUEST, scope.clone()).await?;
        Ok(())
    }
}

/// Tells the story where it is asked for, and says elsewhere that it is a stand-in.
struct Storyteller {
    story: Script,
    otherwise: Demo,
}

impl Model for Storyteller {
    fn stream<'a>(&'a self, request: &'a Request, out: &'a mut dyn Sink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        let asked = request.messages.iter().find_map(|message| match message {
            Message::User(content) => Some(content.text()),
            _ => None,
        });
        let told = request.messages.iter().filter(|message| matches!(message, Message::Assistant { .. })).count();
        match asked.is_some_and(|asked| asked == REQUEST) && told < REPLIES {
            true => self.story.stream(request, out),
            false => self.otherwise.stream(request, out),
        }
    }

    fn summarises(&self) -> bool {
        false
    }

    fn name(&self) -> &str {
        "demo"
    }
}
