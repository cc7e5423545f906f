//! Sandboxes: real servers that Replimeter starts, owns and removes completely.
//!
//! The only crate that spawns processes. The servers end with the tool, regardless of the cause: each is
//! a direct child with a parent-death signal, spawned by a thread that lives as long as the tool.
//! The next start removes what a killed tool leaves on disk.

mod access;
pub mod add;
pub mod binaries;
pub mod capabilities;
mod copy;
mod cpus;
mod crash;
mod engine;
pub mod error;
mod flush;
pub mod home;
pub mod link;
pub mod managed;
mod member;
mod network;
mod ports;
mod process;
pub mod programs;
pub mod reaper;
mod registry;
mod sandbox;
mod settings;
pub mod source;
mod start;
mod template;
pub mod user;

pub use access::{CREDENTIALS, endpoint};
pub use binaries::{Install, Search};
pub use capabilities::{Capabilities, Capability};
pub use error::SandboxError;
pub use home::Home;
pub use member::Member;
pub use registry::RunningSandboxes;
pub use sandbox::Sandbox;
pub use settings::Settings;
