//! Sandboxes: real servers that we start, own and remove without a trace.
//!
//! The only crate that spawns processes. Whatever ends the tool ends its
//! servers: each is a direct child with a parent-death signal, spawned by a
//! thread that lives as long as the tool. What a killed tool leaves on disk the
//! next start removes.

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
