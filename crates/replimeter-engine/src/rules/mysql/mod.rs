//! Checks of MariaDB and MySQL.

mod errant;

pub use self::errant::errant;
