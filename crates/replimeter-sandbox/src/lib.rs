//! Sandboxes: real servers that we start, own and remove without a trace.
//!
//! The only crate that spawns processes. Whatever ends the tool ends its
//! servers: each is a direct child with a parent-death signal, spawned by a
//! thread that lives as long as the tool. What a killed tool leaves on disk the
//! next start removes.

pub mod binaries;
mod copy;
mod engine;
pub mod error;
pub mod home;
mod ports;
mod process;
mod registry;
mod seed;
mod topology;
pub mod user;

pub use binaries::{Install, Search};

pub use error::SandboxError;
pub use home::Home;
pub use registry::destroy_all;
pub use topology::{Sandbox, Settings};
