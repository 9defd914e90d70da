//! The demo: one turn that explains the project. The model is scripted; tools, hook and check are real.

mod diff;
mod pace;
mod page;
mod syntax;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::pin::pin;

use turnbuckle::feed::{Delivery, FeedEvent};
use turnbuckle::model::Model;
use turnbuckle::models::Demo;
use turnbuckle::{Agent, BoxError, Conversations, Scope, TurnStatus};
use turnbuckle_tools::Workspace;

use crate::Stopped;
use crate::exit::Exit;
use crate::output::Output;
use crate::problem::Problem;
use crate::show::{Fold, Layout, Palette, Shown, Tone, terminal_width};
use crate::signals::{Heard, Second, Signals};
use pace::{Pace, Pacer};
pub(crate) use page::PageStory;
use syntax::{Checker, Syntax};

const FILE: &str = "prices.py";
const REQUEST: &str = "Please tidy up prices.py.";

/// How it came out.
pub(crate) enum Played {
    ToTheEnd(Exit),
    /// By a signal.
    CutOff(Heard),
}

/// Plays it.
pub(crate) async fn play() -> Result<Played, Stopped> {
    let failed = |error: BoxError| Stopped::failed(Problem::error(format!("the demo: {error}")));
    let stage = Stage::set().await.map_err(failed)?;
    let mut signals = Signals::listen(Second::IsPassedOn).map_err(|error| failed(error.into()))?;
    let played = tokio::select! {
        exit = stage.play() => Played::ToTheEnd(exit.map_err(failed)?),
        heard = signals.next() => {
            // What follows begins a line of its own.
            stage.output.out("\n");
            Played::CutOff(heard)
        }
    };
    tokio::select! {
        written = stage.output.finish() => written.map_err(|error| failed(error.into()))?,
        _ = signals.next() => {}
    }
    Ok(played)
}

/// A scratch folder with the file in it, and a screen.
struct Stage {
    folder: tempfile::TempDir,
    checker: Checker,
    pace: Pace,
    palette: Palette,
    width: Option<usize>,
    output: Output,
}

impl Stage {
    async fn set() -> Result<Self, BoxError> {
        Self::set_at(Pace::choose()).await
    }

    async fn set_at(pace: Pace) -> Result<Self, BoxError> {
        let folder = tempfile::Builder::new().prefix("turnbuckle-demo-").tempdir()?;
        std::fs::write(folder.path().join(FILE), Demo::story_beginning())?;
        Ok(Self {
            folder,
            checker: Checker::find().await,
            pace,
            palette: Palette::of(&io::stdout()),
            width: terminal_width(&io::stdout()),
            output: Output::start()?,
        })
    }

    async fn play(&self) -> Result<Exit, BoxError> {
        let mut layout = Layout::new(self.palette, self.width);
        self.introduce(&mut layout).await;
        let conversations = Conversations::in_memory(self.agent()?);
        let id = turnbuckle::ConversationId::from("demo");
        let mut tail = conversations.subscribe(&id, Delivery::Lossless, Scope::local()).await?;
        let mut fold = Fold::new(conversations.agent().tools().len());
        let handle = conversations.send(&id, REQUEST, Scope::local()).await?;
        let mut rest = pin!(handle.wait());
        let rest = loop {
            tokio::select! {
                biased;
                () = self.output.broken() => return Ok(Exit::Completed),
                Some(told) = tail.next() => self.show(&told, &mut fold, &mut layout),
                rest = &mut rest => break rest?,
            }
        };
        let exit = match rest {
            TurnStatus::Ended(ended) => ended.outcome.into(),
            TurnStatus::Waiting(_) => Exit::Waiting,
        };
        self.conclude(&mut layout).await?;
        Ok(exit)
    }

    fn agent(&self) -> Result<Agent, BoxError> {
        self.agent_with(Demo::story(self.pace.word()))
    }

    fn agent_with(&self, model: impl Model) -> Result<Agent, BoxError> {
        let workspace = Workspace::open(self.folder.path())?;
        let hook = Syntax::new(self.folder.path(), self.checker, self.pace.check());
        let mut builder = Agent::builder("coder", model).hook(hook);
        if self.pace.is_slow() {
            builder = builder.hook(Pacer(self.pace));
        }
        for tool in Workspace::NAMES.iter().filter_map(|name| workspace.tool(name)) {
            builder = builder.shared_tool(tool);
        }
        Ok(builder.build()?)
    }

    fn show(&self, told: &FeedEvent, fold: &mut Fold, layout: &mut Layout) {
        if Pacer::is_behind(told) {
            return;
        }
        for shown in fold.told(told) {
            match shown {
                Shown::Line(line) => self.output.out(layout.line(&line)),
                Shown::Text(text) => self.output.out(layout.text(&text, Tone::Plain)),
                Shown::Thinking(text) => self.output.out(layout.text(&text, Tone::Dim)),
                Shown::EndOfText => self.output.out(layout.end_text()),
                Shown::Message(_) => {}
            }
        }
    }

    fn say(&self, layout: &mut Layout, tone: Tone, text: &str) {
        self.output.out(layout.note(tone, text));
    }

    async fn introduce(&self, layout: &mut Layout) {
        self.say(layout, Tone::Plain, "");
        self.say(layout, Tone::Good, "Turnbuckle: the turn and the hooks on it");
        let story = format!(
            "An agent is asked to tidy up a file. When it says it is done, nobody takes its word for it: the stop hook \
             `syntax` checks the file with {} before the turn may end.",
            self.checker.name()
        );
        self.say(layout, Tone::Plain, &story);
        self.say(layout, Tone::Dim, "The model is a script; the tools, the hook and its check are real.");
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.say(layout, Tone::Dim, "A chat follows; Ctrl-C skips to it.");
        }
        self.say(layout, Tone::Plain, "");
        self.pace.read().await;
    }

    async fn conclude(&self, layout: &mut Layout) -> Result<(), BoxError> {
        let after = read(&self.folder.path().join(FILE))?;
        self.say(layout, Tone::Plain, "");
        self.say(layout, Tone::Dim, &format!("{FILE}, before and after"));
        for (tone, line) in diff::lines(Demo::story_beginning(), &after) {
            self.say(layout, tone, &line);
        }
        self.say(layout, Tone::Plain, "");
        self.pace.read().await;
        let lines = [
            "What happened: the model broke the file and said it was done; the hook refused the stop and handed it the \
             real error; only the repaired file ended the turn.",
            "Yours: any program can be such a hook. `turnbuckle --help` shows one for turnbuckle.toml, and \
             `turnbuckle check` judges the file.",
            "Next: `turnbuckle init` writes a turnbuckle.toml with a model of yours. `turnbuckle run \"…\" --model \
             script:FILE` runs one turn; `turnbuckle --help` and README.md have the rest.",
        ];
        for line in lines {
            self.say(layout, Tone::Plain, line);
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
}
