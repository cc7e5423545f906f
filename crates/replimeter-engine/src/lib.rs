//! One database server: connections, facts, the state of its replication, privileges of its user.
//!
//! Relations between servers (who replicates from whom) are determined in `replimeter-instruments`;
//! [`source`] is the interface by which a run requests servers, which `replimeter-sandbox`
//! implements.

pub mod binlog;
pub mod dialect;
mod driver;
pub mod error;
pub mod facts;
pub mod filter;
pub mod grants;
pub mod namespace;
pub mod node;
pub mod option_file;
pub mod session;
pub mod source;
pub mod wire;

pub use driver::Interrupter;
pub use error::{ErrorKind, ServerError};
pub use node::Node;
pub use session::Session;
