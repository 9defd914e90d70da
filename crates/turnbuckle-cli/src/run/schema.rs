//! `--schema FILE`: what the answer must look like.

use std::path::Path;

use turnbuckle::message::Content;
use turnbuckle::{OutputSchema, UserInput};

use crate::Stopped;
use crate::problem::{Problem, with_causes};
use crate::read_file::{CONFIGURATION, read_file};

/// The message, with the shape that the file asks for.
pub(super) fn shaped(message: Content, file: Option<&Path>) -> Result<UserInput, Stopped> {
    match file {
        Some(file) => Ok(UserInput::new(message).with_schema(read(file)?)),
        None => Ok(UserInput::new(message)),
    }
}

fn read(file: &Path) -> Result<OutputSchema, Stopped> {
    let wrong = |why: String| {
        let problem = Problem::error(format!("the schema {}: {why}", file.display()));
        Stopped::usage(problem.hint("a JSON schema, such as { \"type\": \"object\", \"required\": [\"n\"] }"))
    };
    let text = read_file(file, CONFIGURATION).map_err(|error| {
        let problem = Problem::error(format!("the schema {}: {error}", file.display()));
        Stopped::usage(problem.hint(error.hint("is the path right?")))
    })?;
    let schema = serde_json::from_str(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    OutputSchema::new(schema).map_err(|error| wrong(with_causes(&error)))
}
