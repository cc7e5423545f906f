//! Repeated prepared statements on a dedicated connection, at the cost of the system calls:
//! Replimeter logs in, builds the packets and only scans the answers.
//!
//! No socket blocks and nothing waits here: every operation is a future, which an event loop polls when the socket is ready.

mod connection;
mod login;
mod login_exchange;
mod packet;
mod scan;
pub mod server_side;
mod stream;
mod tls;

pub use self::{
    connection::{PreparedStatement, StatementError, WireConnection, WireTarget},
    login::login_packets,
    packet::{Binder, ParameterValue},
    scan::{Answer, ResponseScanner, ServerRefusal, StatementResult, WireError},
};
