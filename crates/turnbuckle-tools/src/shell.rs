//! The shell tool: commands in the project's folder, and the rules by which they are allowed.

pub mod rules;
