//! Sandboxes: real servers that Replimeter starts, owns and removes completely.
//!
//! The only crate that spawns processes. The servers end with the tool, whatever the cause: each is
//! a direct child with a parent-death signal, spawned by a thread that lives as long as the tool.
//! The next start removes what a killed tool leaves on disk.

pub mod abilities;
mod access;
pub mod add;
mod archive;
pub mod binaries;
mod copy;
mod cpus;
mod crash;
mod engine;
pub mod error;
pub mod guard;
pub mod home;
pub mod kept;
pub mod link;
mod member;
mod network;
mod ports;
mod process;
mod registry;
mod sandbox;
mod seed;
mod settings;
pub mod source;
mod start;
pub mod user;

pub use abilities::{Abilities, Ability};
pub use access::{CREDENTIALS, endpoint};
pub use binaries::{Install, Search};
pub use error::SandboxError;
pub use home::Home;
pub use member::Member;
pub use registry::destroy_all;
pub use sandbox::Sandbox;
pub use settings::Settings;
