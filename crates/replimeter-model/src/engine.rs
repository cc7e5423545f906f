//! The families of servers.

use serde::{Deserialize, Serialize};

words! {
    /// A family of servers.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Engine {
        /// MariaDB Server.
        MariaDb = "mariadb",
        /// MySQL Server.
        MySql = "mysql",
    }
}

/// Example of a server's URL in messages.
pub const EXAMPLE_URL: &str = "mysql://user@host:3306/";

impl Engine {
    /// Returns the product's name.
    #[must_use]
    pub fn product(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }
}

/// Returns the product of a family that a document names; a name that is unknown stays as it is.
#[must_use]
pub fn product(name: &str) -> &str {
    Engine::named(name).map_or(name, |engine| engine.product())
}
