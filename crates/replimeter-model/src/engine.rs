//! The families of servers.

use serde::{Deserialize, Serialize};

/// A family of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// MariaDB Server.
    MariaDb,
    /// MySQL Server.
    MySql,
}

impl Engine {
    /// All families.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::MySql];

    /// Returns the family of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Returns the product's name.
    #[must_use]
    pub fn product(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// Returns its name in shapes and manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }
}
