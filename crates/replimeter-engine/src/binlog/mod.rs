//! Follows a server's binary log as a replica would, without storing it.
//!
//! [`Decoder`] turns bytes into transactions, [`Follower`] receives the bytes from a server,
//! [`requirements`] checks beforehand whether a server can be followed.

mod connect;
mod decoder;
mod event;
mod follower;
pub mod requirements;
mod resume;
mod tables;

pub use connect::StartPosition;
pub use decoder::{CompleteTransaction, Decoder, Position, StreamCounts, StreamError};
pub use event::CommitTimes;
pub use follower::{Follower, ReadProgress};
pub use tables::{TableId, Tables};
