//! One database server: how to reach it, what it is and can do, what it says
//! of its replication, what its user may do.
//!
//! Relations between servers (who replicates from whom) are judged in
//! `replimeter-instruments`; [`source`] says what a run asks for to have servers started
//! or reached, and `replimeter-sandbox` does it.

pub mod binlog;
pub mod error;
pub mod facts;
pub mod filter;
pub mod flavour;
pub mod grants;
pub mod namespace;
pub mod node;
pub mod option_file;
pub mod session;
pub mod source;
pub mod wire;

pub use error::{ErrorKind, ServerError};
pub use node::Node;
pub use session::Session;
