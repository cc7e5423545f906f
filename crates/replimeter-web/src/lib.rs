//! HTTP: a server with safe limits, and the web front, a small site in front of a primary and its replicas.
//!
//! The only crate with an asynchronous runtime, which stays on the threads of its servers.

pub mod balancer;
pub mod front;
mod host;
mod server;

pub use server::HttpServer;
