//! One database server: connections, facts, the state of its replication, privileges of its user.
//!
//! Relations between servers (who replicates from whom) are determined in `replimeter-instruments`;
//! [`source`] is the interface by which a run requests servers, which `replimeter-sandbox`
//! implements.

mod answer;
mod attempt;
mod commit_guard;
pub mod control_group;
pub mod dialect;
mod driver;
mod error;
mod error_class;
pub mod facts;
pub mod filter;
pub mod follow;
pub mod grants;
pub mod heartbeat_table;
pub mod help;
pub mod identity;
mod login_error;
pub mod manifest;
pub mod membership;
pub mod namespace;
pub mod node;
mod opened;
pub mod option_file;
pub mod position;
pub mod reading;
pub mod rules;
pub mod session;
mod silent;
mod socket;
pub mod source;
pub mod sync;
mod unanswered;
pub mod wire;

pub use answer::check_answer;
pub use commit_guard::{CommitGuard, Fallback};
pub use driver::{Interrupter, call as catch_panic};
pub use error::{ErrorKind, ServerError, unless_disconnected};
pub use error_class::ErrorClass;
pub use node::{AllConnections, Connections, ERROR_LOG, Node};
pub use session::Session;
