//! How fast the story is told: so that one can read along on a terminal, and at once everywhere else.

use std::io::IsTerminal;
use std::time::Duration;

use turnbuckle::feed::{FeedEvent, FeedItem, LiveEvent};
use turnbuckle::hook::{BeforeModel, BeforeModelContext, Hook, ToolNext};
use turnbuckle::tool::Output;
use turnbuckle::{BoxError, ToolCall, Turn};

/// `TURNBUCKLE_DEMO_PACE` overrides it: 0 is at once, 1 is normal, 2 is half as fast.
const VARIABLE: &str = "TURNBUCKLE_DEMO_PACE";

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(f64);

impl Pace {
    pub(super) fn choose() -> Self {
        Self::choose_or(if std::io::stdout().is_terminal() { 1.0 } else { 0.0 })
    }

    /// What the variable says, or else this.
    pub(super) fn choose_or(usual: f64) -> Self {
        let wanted = std::env::var(VARIABLE).ok().and_then(|text| text.trim().parse::<f64>().ok());
        Self(wanted.filter(|pace| pace.is_finite()).unwrap_or(usual).clamp(0.0, 10.0))
    }

    fn ms(self, ms: f64) -> Duration {
        Duration::from_secs_f64(self.0 * ms / 1000.0)
    }

    /// Before each word of the model.
    pub(super) fn word(self) -> Duration {
        self.ms(80.0)
    }

    /// How long the check seems to take.
    pub(super) fn check(self) -> Duration {
        self.ms(1000.0)
    }

    /// A pause to read a paragraph.
    pub(super) async fn read(self) {
        self.wait(2200.0).await;
    }

    async fn wait(self, ms: f64) {
        if self.0 > 0.0 {
            tokio::time::sleep(self.ms(ms)).await;
        }
    }

    /// Whether the turn has to be slowed down.
    pub(super) fn is_slow(self) -> bool {
        self.0 > 0.0
    }
}

/// A hook that slows the turn itself down, so that what is shown happens as it is shown.
pub(super) struct Pacer(pub(super) Pace);

impl Pacer {
    const NAME: &str = "pacer";

    /// Whether this is only about the pacer, which is no part of the story.
    pub(super) fn is_behind(told: &FeedEvent) -> bool {
        match &told.item {
            FeedItem::Live(LiveEvent::HookStarted { hook, .. } | LiveEvent::HookFinished { hook, .. }) => {
                &**hook == Self::NAME
            }
            _ => false,
        }
    }
}

impl Hook for Pacer {
    fn name(&self) -> String {
        Self::NAME.to_owned()
    }

    /// A refusal is the heart of the story: there is more to read.
    async fn before_model(&self, turn: &mut BeforeModelContext) -> Result<BeforeModel, BoxError> {
        self.0.wait(if turn.stop_active() { 2400.0 } else { 900.0 }).await;
        Ok(BeforeModel::Continue)
    }

    async fn wrap_tool_call<'a>(
        &self,
        _: &'a Turn,
        call: &'a ToolCall,
        next: ToolNext<'a>,
    ) -> Result<Output, BoxError> {
        self.0.wait(900.0).await;
        next.run(call).await
    }
}
