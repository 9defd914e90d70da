//! The examples are the files beside this folder: `cargo run --example 01_hello`.
