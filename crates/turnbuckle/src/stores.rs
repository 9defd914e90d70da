//! Stores that need nothing but memory.

mod memory;

pub use memory::MemoryStore;
