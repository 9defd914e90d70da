//! Tools that need nothing but the runtime: functions, questions to people, work for clients, other agents.

mod function;
mod search_history;
mod sub_agent;

#[cfg(feature = "schemars")]
pub use function::function;
pub use function::{Ask, FunctionTool, client, function_with_schema, human};
pub use search_history::SearchHistory;
pub use sub_agent::SubAgent;
