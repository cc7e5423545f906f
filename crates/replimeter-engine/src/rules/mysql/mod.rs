//! Checks of MariaDB and MySQL.

mod errant;
mod members;
mod semi_sync;
mod settings;

pub use self::{errant::errant, members::members, semi_sync::acknowledgements};
