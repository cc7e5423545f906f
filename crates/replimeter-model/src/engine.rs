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
        self.names()[0]
    }

    /// Returns its name in shapes and manifests.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.names()[1]
    }

    fn names(self) -> [&'static str; 2] {
        match self {
            Self::MariaDb => ["MariaDB", "mariadb"],
            Self::MySql => ["MySQL", "mysql"],
        }
    }
}

/// Returns the product of a family that a document names; a name that is unknown stays as it is.
#[must_use]
pub fn product(name: &str) -> &str {
    Engine::named(name).map_or(name, |engine| engine.product())
}
