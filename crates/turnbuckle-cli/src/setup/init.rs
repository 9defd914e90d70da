//! `turnbuckle init`: three questions, and a commented file.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use clap::ValueEnum as _;
use serde_json::json;

use super::template::{self, Answers, SCHEMA};
use crate::Stopped;
use crate::args::{Common, Init, InitTools};
use crate::check::shell::{self, ShellFault};
use crate::config;
use crate::confirm;
use crate::exit::Exit;
use crate::inspect::{print_all, unprintable};
use crate::model_name::ModelName;
use crate::output;
use crate::problem::Problem;
use crate::project::{OWN_FOLDER, Project};
use crate::show::{json_line, quoted};
use crate::store;
use crate::trust::{self, Gate};

/// The file.
const FILE: &str = "turnbuckle.toml";

/// Asks what no option says, writes the file into the current folder and accepts it.
pub(crate) fn init(args: &Init, common: &Common) -> Result<Exit, Stopped> {
    let path = Path::new(FILE);
    let is_there = path.symlink_metadata().is_ok();
    if is_there && !args.force {
        let what = format!("{FILE} is there already; it was left as it is");
        let hint = "`turnbuckle check` judges it; `--force` replaces it and keeps the old one as turnbuckle.toml.old";
        return Err(Stopped::usage(Problem::error(what).hint(hint)));
    }
    let answers = answers(args, common)?;
    if is_there {
        std::fs::rename(path, format!("{FILE}.old")).map_err(|error| failed(FILE, &error))?;
    }
    write_new(path, &template::text(&answers)).map_err(|error| failed(FILE, &error))?;
    write_schema().map_err(|error| failed(SCHEMA, &error))?;
    accept()?;
    if args.json {
        let Answers { model, tools, check } = &answers;
        let tools = tools.to_possible_value().map(|value| value.get_name().to_owned());
        let check = Some(check).filter(|check| !check.is_empty());
        let written = json!({ "file": FILE, "schema": SCHEMA, "model": model, "tools": tools, "check": check, "replaced": is_there });
        return print_all(&json_line(&written).map_err(unprintable)?);
    }
    output::say(&format!("{FILE} is written, and accepted for this folder"));
    output::say("next: `turnbuckle` to talk, `turnbuckle check` after you edited the file");
    Ok(Exit::Completed)
}

fn answers(args: &Init, common: &Common) -> Result<Answers, Stopped> {
    let asks = !args.yes && confirm::is_possible();
    let model = match (&common.model, asks) {
        (Some(model), _) => Some(model.clone()),
        (None, true) => asked_model()?,
        (None, false) => None,
    };
    if let Some(model) = &model {
        ModelName::parse(model).map_err(Stopped::usage)?;
    }
    let tools = match (args.tools, asks) {
        (Some(tools), _) => tools,
        (None, true) => asked_tools()?,
        (None, false) => InitTools::Ask,
    };
    let check = match (&args.check, asks) {
        (Some(check), _) => check.clone(),
        (None, true) => asked_check()?,
        // A command that nobody saw is not run after every turn.
        (None, false) => String::new(),
    };
    let said = [check.as_str(), model.as_deref().unwrap_or_default()];
    if said.iter().any(|text| text.chars().any(char::is_control)) {
        let problem = Problem::error("a model and a command are one line each, of characters that can be shown");
        return Err(Stopped::usage(problem.hint("put several commands into a script")));
    }
    if let Some(problem) = args.check.as_deref().and_then(doubt) {
        if problem.is_error() {
            return Err(Stopped::usage(problem));
        }
        output::report(&[problem]);
    }
    Ok(Answers { model, tools, check })
}

fn asked_model() -> Result<Option<String>, Stopped> {
    let found = ModelName::first_found();
    loop {
        let line =
            ask(&format!("1/3  Which model? For example anthropic:claude-sonnet-5-5 or ollama:llama3.2 [{found}]"))?;
        if line.is_empty() {
            // The key may be another one tomorrow, so it is not written down.
            return Ok(None);
        }
        match ModelName::parse(&line) {
            Ok(_) => return Ok(Some(line)),
            Err(problem) => output::report(&[problem]),
        }
    }
}

fn asked_tools() -> Result<InitTools, Stopped> {
    loop {
        let line =
            ask("2/3  May it edit files and run commands, asking you each time? Otherwise it only reads. [Y/n]")?;
        match line.to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(InitTools::Ask),
            "n" | "no" => return Ok(InitTools::Read),
            _ => output::say("please answer y or n"),
        }
    }
}

fn asked_check() -> Result<String, Stopped> {
    let guess = guessed_check(Path::new("."));
    let shown = if guess.is_empty() { "none" } else { guess };
    let mut doubted = None;
    loop {
        let line = ask(&format!("3/3  Which command must succeed before a turn may end? `-` for none [{shown}]"))?;
        let command = match line.as_str() {
            "" => guess.to_owned(),
            "-" => String::new(),
            _ => line,
        };
        match doubt(&command) {
            Some(problem) if problem.is_error() || doubted.as_ref() != Some(&command) => {
                let again = if problem.is_error() {
                    problem
                } else {
                    problem.hint("is it installed, and in PATH? The same answer again is taken as it is")
                };
                output::report(&[again]);
                doubted = Some(command);
            }
            _ => return Ok(command),
        }
    }
}

/// Why a command cannot succeed: an error if that will not change, a warning if the program may be installed later.
fn doubt(command: &str) -> Option<Problem> {
    Some(match shell::fault(command, Path::new("."))? {
        ShellFault::Syntax(complaint) => Problem::error(format!("this is no command of the shell: {complaint}")),
        ShellFault::NoSuchCommand { name, .. } => {
            let what = format!("the command begins with {name:?}, which is no program and nothing that `sh` knows");
            Problem::warning(what).hint("is it installed, and in PATH?")
        }
    })
}

/// What a project of this kind is mostly checked with.
fn guessed_check(folder: &Path) -> &'static str {
    let kinds = [
        ("Cargo.toml", "cargo check --quiet"),
        ("go.mod", "go build ./..."),
        ("tsconfig.json", "npx tsc --noEmit"),
        ("package.json", "npm test --silent"),
        ("pyproject.toml", "python3 -m compileall -q ."),
    ];
    kinds.iter().find(|(file, _)| folder.join(file).is_file()).map_or("", |(_, command)| command)
}

/// One line. The end of the input is no answer.
fn ask(question: &str) -> Result<String, Stopped> {
    let none =
        || Stopped::usage(Problem::error("there was no answer; nothing was written").hint("`--yes` asks nothing"));
    let mut err = io::stderr().lock();
    write!(err, "{question} ").and_then(|()| err.flush()).map_err(|_| none())?;
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line) {
        Ok(read) if read > 0 => Ok(line.trim().to_owned()),
        _ => {
            let _ = writeln!(err);
            Err(none())
        }
    }
}

/// Never through a link that somebody left in the folder, and never half.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = std::fs::File::create_new(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // The first error counts.
        let _left = std::fs::remove_file(path);
    }
    written
}

/// The schema of this very version, for the editor.
fn write_schema() -> io::Result<()> {
    store::make_own_folder(Path::new(SCHEMA))?;
    let folder = Path::new(OWN_FOLDER);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(format!("{:#}\n", config::json_schema()).as_bytes())?;
    file.persist(SCHEMA).map_err(|error| error.error)?;
    Ok(())
}

/// What was just written is what its author said.
fn accept() -> Result<(), Stopped> {
    let project = Project::discover().map_err(Stopped::usage)?;
    let loaded = config::load(&Common::default(), Gate::Judged);
    if project.folder != loaded.project.folder {
        return Ok(());
    }
    if loaded.problems.iter().any(Problem::is_error) {
        return Err(Stopped { problems: loaded.problems, exit: Exit::Usage });
    }
    trust::accept(&loaded.project.folder, &loaded.items, &loaded.user()).map_err(|problem| {
        let folder = quoted(&loaded.project.folder.display().to_string());
        Stopped::usage(problem.hint(format!("{FILE} is written in {folder}; `turnbuckle trust` accepts it later")))
    })
}

fn failed(what: &str, error: &io::Error) -> Stopped {
    Stopped::failed(Problem::error(format!("{what} cannot be written: {error}")))
}
