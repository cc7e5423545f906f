//! What an installation can do, told by its files: distributions leave parts
//! out, so that a version number promises nothing.

use std::path::{Path, PathBuf};

use replimeter_model::engine::Engine;

/// One thing that a server can or cannot do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Asynchronous replication.
    Async,
    /// A replica that is itself replicated from.
    Chain,
    /// Semi-synchronous replication.
    SemiSync,
    /// A Galera cluster.
    Galera,
    /// The transfer of a whole data directory to a joining Galera node, by rsync.
    StateTransfer,
    /// MySQL's Group Replication.
    Group,
    /// Tables that live on another server.
    Federated,
}

impl Ability {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 7] = [
        Self::Async,
        Self::Chain,
        Self::SemiSync,
        Self::Galera,
        Self::StateTransfer,
        Self::Group,
        Self::Federated,
    ];

    /// The word for it in lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Async => "async",
            Self::Chain => "chain",
            Self::SemiSync => "semi-sync",
            Self::Galera => "galera",
            Self::StateTransfer => "state-transfer",
            Self::Group => "group",
            Self::Federated => "federated",
        }
    }

    /// Whether an engine has it at all, in a complete installation.
    fn is_of(self, engine: Engine) -> bool {
        match self {
            Self::Async | Self::Chain | Self::SemiSync | Self::Federated => true,
            Self::Galera | Self::StateTransfer => engine == Engine::MariaDb,
            Self::Group => engine == Engine::MySql,
        }
    }
}

/// How semi-synchronous replication is had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SemiSync {
    /// It is part of the server (MariaDB since 10.3.3).
    BuiltIn,
    /// Plugins hold it; their file names as `--plugin-load-add` takes them.
    Plugins {
        /// The primary's.
        source: String,
        /// The replica's.
        replica: String,
    },
}

/// The programs that bring a Galera node its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTransfer {
    /// `wsrep_sst_rsync`.
    pub script: PathBuf,
    /// `rsync`.
    pub rsync: PathBuf,
}

/// What an ability lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Which ability.
    pub ability: Ability,
    /// What was not found, and what to install.
    pub hint: String,
}

/// What an installation can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    engine: Engine,
    /// Semi-synchronous replication.
    pub semi_sync: Option<SemiSync>,
    /// Galera's library, for `wsrep_provider`.
    pub galera: Option<PathBuf>,
    /// Galera's state transfer by rsync. A cluster whose nodes start from copies of
    /// one data directory does without.
    pub state_transfer: Option<StateTransfer>,
    /// Whether MySQL's Group Replication plugin is there.
    pub group_replication: bool,
    /// Whether a plugin file of the FEDERATED engine is there. MySQL may have the
    /// engine built in, which no file tells: `false` is no answer there.
    pub federated: bool,
}

/// The files of an installation.
pub(crate) struct Files<'a> {
    pub(crate) engine: Engine,
    pub(crate) version: &'a str,
    /// `--basedir`.
    pub(crate) base: &'a Path,
    /// What `usr/` would be in.
    pub(crate) root: &'a Path,
    pub(crate) plugins: Option<&'a Path>,
    /// Where programs are looked for, in this order.
    pub(crate) tools: &'a [PathBuf],
}

impl Abilities {
    /// Looks at the files.
    pub(crate) fn of(files: &Files<'_>) -> Self {
        let plugin = |name: &str| {
            files
                .plugins
                .is_some_and(|folder| folder.join(name).is_file())
        };
        let tool = |name: &str| {
            files
                .tools
                .iter()
                .map(|folder| folder.join(name))
                .find(|path| path.is_file())
        };
        let mariadb = files.engine == Engine::MariaDb;
        let state_transfer = || {
            // The script asks one of these which ports are taken, and does nothing without.
            ["ss", "lsof", "sockstat"].into_iter().find_map(tool)?;
            Some(StateTransfer {
                script: tool("wsrep_sst_rsync")?,
                rsync: tool("rsync")?,
            })
        };
        Self {
            engine: files.engine,
            semi_sync: semi_sync(files, plugin),
            galera: mariadb.then(|| galera(files)).flatten(),
            state_transfer: mariadb.then(state_transfer).flatten(),
            group_replication: !mariadb && plugin("group_replication.so"),
            federated: plugin("ha_federatedx.so") || plugin("ha_federated.so"),
        }
    }

    /// Whether it can do this.
    #[must_use]
    pub fn has(&self, ability: Ability) -> bool {
        match ability {
            Ability::Async | Ability::Chain => true,
            Ability::SemiSync => self.semi_sync.is_some(),
            Ability::Galera => self.galera.is_some(),
            Ability::StateTransfer => self.state_transfer.is_some(),
            Ability::Group => self.group_replication,
            Ability::Federated => self.federated,
        }
    }

    /// The names of what it can do.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        Ability::ALL
            .into_iter()
            .filter(|ability| self.has(*ability))
            .map(Ability::name)
            .collect()
    }

    /// What a complete installation of its engine could do and this one cannot.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        let unknown =
            |ability: Ability| ability == Ability::Federated && self.engine == Engine::MySql;
        let lacks = |ability: &Ability| {
            ability.is_of(self.engine) && !self.has(*ability) && !unknown(*ability)
        };
        Ability::ALL
            .into_iter()
            .filter(lacks)
            .map(|ability| self.lack(ability))
            .collect()
    }

    /// Checks that it can do this.
    ///
    /// # Errors
    /// What was not found, and what to install.
    pub fn require(&self, ability: Ability) -> Result<(), Missing> {
        if self.has(ability) {
            Ok(())
        } else {
            Err(self.lack(ability))
        }
    }

    fn lack(&self, ability: Ability) -> Missing {
        let hint = match (ability, self.engine) {
            (Ability::Async | Ability::Chain, _) => "every server can do this",
            (Ability::SemiSync, Engine::MariaDb) => {
                "semisync_master.so and semisync_slave.so were not found among its plugins; install MariaDB 10.3.3 or newer, \
                 where it is built in, or run `make servers`"
            }
            (Ability::SemiSync, Engine::MySql) => {
                "semisync_source.so and semisync_replica.so (or semisync_master.so and semisync_slave.so) were not found \
                 among its plugins; install mysql-server (Debian, Ubuntu) or run `make servers`"
            }
            (Ability::Galera, Engine::MariaDb) => {
                "libgalera_smm.so was not found; install galera-4 (Debian, Ubuntu) or run `make servers`"
            }
            (Ability::StateTransfer, Engine::MariaDb) => {
                "wsrep_sst_rsync, rsync, or one of ss and lsof was not found; install mariadb-server, rsync and lsof (Debian, \
                 Ubuntu) or run `make servers`"
            }
            (Ability::Galera | Ability::StateTransfer, Engine::MySql) => {
                "Galera is a part of MariaDB; use a MariaDB server, or Group Replication with MySQL"
            }
            (Ability::Group, Engine::MySql) => {
                "group_replication.so was not found among its plugins; install mysql-server (Debian, Ubuntu) or run `make servers`"
            }
            (Ability::Group, Engine::MariaDb) => {
                "Group Replication is a part of MySQL; use a MySQL server, or Galera with MariaDB"
            }
            (Ability::Federated, _) => {
                "ha_federatedx.so was not found among its plugins; install mariadb-server (Debian, Ubuntu) or run `make servers`"
            }
        };
        Missing {
            ability,
            hint: hint.to_owned(),
        }
    }
}

fn semi_sync(files: &Files<'_>, plugin: impl Fn(&str) -> bool) -> Option<SemiSync> {
    // A server that has both generations prefers the new one, and must load both
    // plugins of the same.
    for (source, replica) in [
        ("semisync_source.so", "semisync_replica.so"),
        ("semisync_master.so", "semisync_slave.so"),
    ] {
        if plugin(source) && plugin(replica) {
            return Some(SemiSync::Plugins {
                source: source.to_owned(),
                replica: replica.to_owned(),
            });
        }
    }
    // No file tells what is built in: the one place where a version number counts.
    (files.engine == Engine::MariaDb && version_numbers(files.version) >= vec![10, 3, 3])
        .then_some(SemiSync::BuiltIn)
}

fn galera(files: &Files<'_>) -> Option<PathBuf> {
    let inside = [
        "lib/galera-4",
        "lib/galera",
        "lib64/galera-4",
        "lib64/galera",
        "lib",
        "lib64",
    ];
    let usr = files.root.join("usr");
    let roots = [files.base, usr.as_path()];
    let folders = roots
        .into_iter()
        .flat_map(|root| inside.map(|folder| root.join(folder)));
    // A link, where there is one, names no version; both lead to the same file.
    folders
        .map(|folder| folder.join("libgalera_smm.so"))
        .find(|path| path.is_file())
}

/// The numbers of a version, so that 10.11 is newer than 10.6.
pub(crate) fn version_numbers(version: &str) -> Vec<u64> {
    version
        .split('.')
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with these (empty) files, and what is found in it.
    fn abilities(engine: Engine, version: &str, files: &[&str]) -> (tempfile::TempDir, Abilities) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let base = if root.path().join("usr").is_dir() {
            root.path().join("usr")
        } else {
            root.path().to_owned()
        };
        let plugins = ["lib/mysql/plugin", "lib/plugin"].map(|folder| base.join(folder));
        let tools = [base.join("bin")];
        let found = Abilities::of(&Files {
            engine,
            version,
            base: &base,
            root: root.path(),
            plugins: plugins
                .iter()
                .find(|folder| folder.is_dir())
                .map(PathBuf::as_path),
            tools: &tools,
        });
        (root, found)
    }

    #[test]
    fn a_complete_mariadb_of_a_distribution() {
        let (root, found) = abilities(
            Engine::MariaDb,
            "10.11.19",
            &[
                "usr/lib/galera/libgalera_smm.so",
                "usr/lib/mysql/plugin/ha_federatedx.so",
                "usr/bin/wsrep_sst_rsync",
                "usr/bin/rsync",
                "usr/bin/lsof",
            ],
        );
        assert_eq!(
            found.names(),
            [
                "async",
                "chain",
                "semi-sync",
                "galera",
                "state-transfer",
                "federated"
            ]
        );
        assert_eq!(found.semi_sync, Some(SemiSync::BuiltIn));
        assert_eq!(
            found.galera.as_deref(),
            Some(&*root.path().join("usr/lib/galera/libgalera_smm.so"))
        );
        assert_eq!(found.missing(), []);
        assert!(
            found
                .require(Ability::Group)
                .unwrap_err()
                .hint
                .contains("part of MySQL")
        );
    }

    #[test]
    fn a_bare_mariadb_says_what_to_install() {
        let (_root, found) = abilities(Engine::MariaDb, "11.4.2", &["bin/mariadbd"]);
        assert_eq!(found.names(), ["async", "chain", "semi-sync"]);
        let missing = found.missing();
        let names: Vec<_> = missing
            .iter()
            .map(|missing| missing.ability.name())
            .collect();
        assert_eq!(names, ["galera", "state-transfer", "federated"]);
        assert!(
            missing[0]
                .hint
                .contains("libgalera_smm.so was not found; install galera-4")
        );
    }

    #[test]
    fn galera_beside_a_vendors_binary() {
        let (root, found) = abilities(
            Engine::MariaDb,
            "11.4.2",
            &["lib/galera-4/libgalera_smm.so"],
        );
        assert_eq!(
            found.galera.as_deref(),
            Some(&*root.path().join("lib/galera-4/libgalera_smm.so"))
        );
    }

    #[test]
    fn semi_sync_by_generation() {
        let plugins = |source: &str, replica: &str| {
            Some(SemiSync::Plugins {
                source: source.to_owned(),
                replica: replica.to_owned(),
            })
        };
        let old = [
            "lib/plugin/semisync_master.so",
            "lib/plugin/semisync_slave.so",
        ];
        let (_root, found) = abilities(Engine::MySql, "5.7.44", &old);
        assert_eq!(
            found.semi_sync,
            plugins("semisync_master.so", "semisync_slave.so")
        );
        let (_root, found) = abilities(Engine::MariaDb, "10.2.44", &old);
        assert_eq!(
            found.semi_sync,
            plugins("semisync_master.so", "semisync_slave.so")
        );
        let (_root, found) = abilities(Engine::MariaDb, "10.2.44", &[]);
        assert_eq!(found.semi_sync, None);
        let both = [
            old[0],
            old[1],
            "lib/plugin/semisync_source.so",
            "lib/plugin/semisync_replica.so",
        ];
        let (_root, found) = abilities(Engine::MySql, "8.0.36", &both);
        assert_eq!(
            found.semi_sync,
            plugins("semisync_source.so", "semisync_replica.so")
        );
        let (_root, found) = abilities(Engine::MySql, "8.0.36", &[old[0]]);
        assert_eq!(
            found.semi_sync, None,
            "a primary's plugin alone is of no use"
        );
    }

    #[test]
    fn mysql_has_no_galera_even_beside_its_library() {
        let files = [
            "usr/lib/galera/libgalera_smm.so",
            "usr/lib/mysql/plugin/group_replication.so",
        ];
        let (_root, found) = abilities(Engine::MySql, "9.7.4", &files);
        assert_eq!(found.names(), ["async", "chain", "group"]);
        assert!(
            found
                .require(Ability::Galera)
                .unwrap_err()
                .hint
                .contains("part of MariaDB")
        );
        let missing = found.missing();
        assert_eq!(missing.len(), 1);
        assert!(missing[0].hint.contains("semisync_source.so"));
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(version_numbers("10.11.6") > version_numbers("10.6.20"));
        assert!(version_numbers("11.4") < version_numbers("11.4.2"));
    }
}
