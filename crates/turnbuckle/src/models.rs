//! Models that need nothing but the runtime.

mod demo;
mod script;

pub use demo::Demo;
pub use script::{OnExhausted, Script, ScriptCall, ScriptError, ScriptFault, ScriptReply};
