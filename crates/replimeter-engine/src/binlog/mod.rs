//! Follows a server's binary log as a replica would, without storing it.
//!
//! [`Decoder`] turns bytes into transactions, [`Follower`] receives the bytes from a server,
//! [`fitness`] checks beforehand whether a server can be followed.

mod connect;
mod decoder;
mod event;
pub mod fitness;
mod follower;
mod gtid;
mod tables;

pub use connect::Start;
pub use decoder::{Arrived, Counts, Decoder, Position, StreamError};
pub use event::CommitTimes;
pub use follower::{Follower, Heard};
pub use gtid::{Gtid, LONGEST_TAG, Tag, Uuid};
pub use tables::{TableId, Tables};
