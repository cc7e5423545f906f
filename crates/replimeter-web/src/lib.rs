//! HTTP: a server with safe limits, the web front, a small site in front of a primary and its replicas, and its clients;
//! and an exporter of what a running measurement shows.
//!
//! The only crate with an asynchronous runtime, which stays on the threads of its servers and clients.

pub mod balancer;
pub mod client;
pub mod exporter;
pub mod front;
mod host;
mod open_files;
mod page;
mod server;
mod visitor_stream;

pub use server::HttpServer;
