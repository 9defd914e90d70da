//! The program: reads its arguments and its configuration, builds the agent, runs it, shows what happens.
//!
//! Read in this order: `args` are the command-line arguments, `project` finds the folder, `config` reads the files, `trust` says
//! which of what they name may take effect, `assemble` builds an agent from all that, `run` runs one turn in a `store`, `show`
//! turns its events into text, `chat` runs one turn after the other, `answers` takes the answers of people, `inspect` prints
//! stored conversations, and `erasure` deletes, holds and exports them. `demo` is a turn that explains the project.

mod answers;
mod args;
mod assemble;
mod audit;
mod catalogue;
mod chat;
mod check;
mod config;
mod confirm;
mod demo;
mod doctor;
mod erasure;
mod exit;
mod hooks;
mod inspect;
mod links;
mod logging;
mod mcp;
mod model_name;
mod model_trouble;
mod output;
mod problem;
mod project;
mod read_file;
mod run;
mod serve;
mod setup;
mod show;
mod signals;
mod started_with;
mod store;
mod trust;
mod user_folders;
mod without_agent;

use std::process::ExitCode;
use std::time::Duration;

use args::{Args, Command};
use exit::Exit;
use problem::Problem;

fn main() -> ExitCode {
    // First of all: this may be the process that ends programs of hooks when the real one is gone.
    if let Some(code) = turnbuckle_tools::watch_programs() {
        return code;
    }
    let args = match Args::of_process() {
        Ok(args) => args,
        Err(error) => {
            // A closed stdout or stderr is not an error.
            let _ = error.print();
            let given: Vec<String> =
                std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            if let Some(hint) = args::after(&error, &given) {
                output::say(&show::clean(&format!("\nhint: {hint}")));
            }
            return if error.use_stderr() { Exit::Usage } else { Exit::Completed }.into();
        }
    };
    let unasked = match &args.command {
        Some(Command::Serve(_)) => logging::Unasked::Info,
        _ => logging::Unasked::Nothing,
    };
    let done = logging::start(args.common.verbose, unasked).map_err(Stopped::usage).and_then(|()| start(args));
    logging::finish();
    match done {
        Ok(exit) => exit.into(),
        Err(stopped) => {
            output::report(&stopped.problems);
            stopped.exit.into()
        }
    }
}

/// Why the program ends before anything ran, and with which code.
struct Stopped {
    problems: Vec<Problem>,
    exit: Exit,
}

impl Stopped {
    fn usage(problem: Problem) -> Self {
        Self { problems: vec![problem], exit: Exit::Usage }
    }

    fn failed(problem: Problem) -> Self {
        Self { problems: vec![problem], exit: Exit::Failed }
    }
}

fn start(args: Args) -> Result<Exit, Stopped> {
    if let (Some(option), Some(_)) = (args.trust.given(), &args.command) {
        let problem =
            Problem::error(format!("`{option}` stands before the command, where only a chat without one takes it"));
        return Err(Stopped::usage(
            problem.hint(format!("write it behind the command: `turnbuckle run {option} \"…\"`")),
        ));
    }
    match args.command {
        Some(Command::Chat(chat)) => drive(leaving_chat(chat::chat(chat, &args.common))),
        Some(Command::Run(run)) => drive(run::run(run, &args.common)),
        Some(Command::Resolve(resolve)) => drive(run::resolve(resolve, &args.common)),
        Some(Command::Answer(answer)) => drive(answers::answer(answer, &args.common)),
        Some(Command::Pending(pending)) => drive(answers::pending(pending, &args.common)),
        Some(Command::Approvals(approvals)) => drive(answers::approvals(approvals, &args.common)),
        Some(Command::Cancel(cancel)) => drive(run::cancel(cancel, &args.common)),
        Some(Command::List(list)) => drive(inspect::list(list, &args.common)),
        Some(Command::Show(show)) => drive(inspect::show(show, &args.common)),
        Some(Command::Trace(trace)) => drive(inspect::trace(trace, &args.common)),
        Some(Command::Why(why)) => drive(inspect::why(why, &args.common)),
        Some(Command::Delete(delete)) => drive(erasure::delete(delete, &args.common)),
        Some(Command::Hold(hold)) => drive(erasure::hold(hold, &args.common)),
        Some(Command::Export(export)) => drive(erasure::export(export, &args.common)),
        Some(Command::Hooks(hooks)) => drive(self::hooks::hooks(&hooks, &args.common)),
        Some(Command::Trust(trust)) => self::trust::trust(&trust, &args.common),
        Some(Command::Serve(serve)) => drive(serve::serve(serve, &args.common)),
        Some(Command::Mcp(mcp)) => drive(mcp::serve(mcp, &args.common)),
        Some(Command::Check(check)) => check::check(&check, &args.common),
        Some(Command::Doctor(doctor)) => drive(doctor::doctor(&doctor, &args.common)),
        Some(Command::Init(init)) => setup::init(&init, &args.common),
        Some(Command::Completions(completions)) => Ok(setup::completions(&completions)),
        Some(Command::Man(man)) => setup::man(&man),
        Some(Command::Schema) => Ok(setup::schema()),
        None => drive(leaving_chat(chat::open(args.trust, &args.common))),
    }
}

/// How long stores and hooks may take to shut down after an interruption.
const LEAVING: Duration = Duration::from_millis(250);
/// How long they may take otherwise: a hook may have a webhook, an audit log or a trace to deliver.
const CLOSING: Duration = Duration::from_secs(6);

/// A chat that was left is over in the words of Claude-style hooks, too.
async fn leaving_chat(chat: impl Future<Output = Result<Exit, Stopped>>) -> Result<Exit, Stopped> {
    let done = chat.await;
    end_sessions("prompt_input_exit").await;
    done
}

/// This process lets its conversations go: Claude-style hooks are told, and what they say is shown, with failures that no turn told.
async fn end_sessions(reason: &str) {
    let said = turnbuckle_tools::claude::end_sessions(reason).await;
    let said = said.into_iter().chain(turnbuckle_tools::claude::untold_failures());
    output::report(&said.map(Problem::warning).collect::<Vec<_>>());
}

/// Two workers: a tool that blocks one does not keep a signal from being heard.
fn drive(work: impl Future<Output = Result<Exit, Stopped>>) -> Result<Exit, Stopped> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let failed = |error| Stopped::failed(Problem::error(format!("starting the runtime: {error}")));
    let runtime = built.map_err(failed)?;
    runtime.block_on(async { signals::catch_file_limit() }).map_err(failed)?;
    let done = runtime.block_on(async {
        let done = work.await;
        end_sessions("other").await;
        done
    });
    // What is not over by now is not waited for, and its program does not live on.
    turnbuckle_tools::kill_all_groups();
    // The turn's end is in the log. The last task that drops the store or a hook shuts it down, and is waited for; only a
    // moment after an interruption, since a tool may still read a slow disk.
    let interrupted = matches!(done, Ok(Exit::Cancelled) | Err(_));
    runtime.shutdown_timeout(if interrupted { LEAVING } else { CLOSING });
    done
}
