//! `--schema FILE`: what the answer must look like.

use std::path::Path;

use turnbuckle::{OutputSchema, UserInput};

use crate::Stopped;
use crate::problem::{Problem, with_causes};

/// A schema is written by hand; a larger file is another file.
const MOST_BYTES: u64 = 1024 * 1024;

/// The message, with the shape that the file asks for.
pub(super) fn shaped(message: String, file: Option<&Path>) -> Result<UserInput, Stopped> {
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
    let size = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?.len();
    if size > MOST_BYTES {
        return Err(wrong(format!("it has {size} bytes, and {MOST_BYTES} are the most")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let schema = serde_json::from_str(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    OutputSchema::new(schema).map_err(|error| wrong(with_causes(&error)))
}
