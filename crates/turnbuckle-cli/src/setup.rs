//! `turnbuckle init`, `completions`, `man` and `schema`: what is needed once, before anything runs.

mod init;
mod template;

use std::io::Write as _;
use std::path::Path;

pub(crate) use init::init;

use crate::Stopped;
use crate::args::{Completions, Man, command};
use crate::config;
use crate::exit::Exit;
use crate::output;
use crate::problem::Problem;

const PROGRAM: &str = "turnbuckle";

/// Prints a script that completes commands and options in a shell.
pub(crate) fn completions(args: &Completions) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), PROGRAM, &mut script);
    print(&script)
}

/// Prints the man page, or writes one for each command.
pub(crate) fn man(args: &Man) -> Result<Exit, Stopped> {
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        render(command(), &mut page).map_err(|error| failed("the man page", &error))?;
        return Ok(print(&page));
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(&folder.display().to_string(), &error))?;
    let mut whole = command();
    whole.build();
    write_page(&whole, PROGRAM, folder)?;
    for inner in whole.get_subcommands().filter(|inner| inner.get_name() != "help") {
        write_page(inner, &format!("{PROGRAM}-{}", inner.get_name()), folder)?;
    }
    output::say(&format!("man pages are in {}", folder.display()));
    Ok(Exit::Completed)
}

/// Prints the JSON schema of `turnbuckle.toml`, for editors.
pub(crate) fn schema() -> Exit {
    print(format!("{:#}\n", config::json_schema()).as_bytes())
}

fn write_page(command: &clap::Command, name: &str, folder: &Path) -> Result<(), Stopped> {
    let path = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    let written = render(command.clone(), &mut page).and_then(|()| std::fs::write(&path, page));
    written.map_err(|error| failed(&path.display().to_string(), &error))
}

fn render(command: clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    clap_mangen::Man::new(command).render(page)
}

fn failed(what: &str, error: &std::io::Error) -> Stopped {
    Stopped::failed(Problem::error(format!("{what} cannot be written: {error}")))
}

/// To stdout. A closed one is not an error.
fn print(text: &[u8]) -> Exit {
    let _ = std::io::stdout().lock().write_all(text);
    Exit::Completed
}
