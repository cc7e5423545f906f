//! Capabilities of an installation, determined by its files: distributions omit parts, so a version
//! number guarantees nothing.

use std::path::{Path, PathBuf};

use replimeter_model::{engine::Engine, words};

words! {
    /// A capability of a server.
    pub enum Capability {
        /// Asynchronous replication.
        Async = "async",
        /// A replica that has replicas of its own.
        Chain = "chain",
        /// Semi-synchronous replication.
        SemiSync = "semi-sync",
        /// A Galera cluster.
        Galera = "galera",
        /// The transfer of a whole data directory to a joining Galera node, by rsync.
        StateTransfer = "state-transfer",
        /// MySQL's Group Replication.
        Group = "group",
        /// Tables stored on another server.
        Federated = "federated",
    }
}

impl Capability {
    /// Returns whether a complete installation of the engine has it.
    fn is_of(self, engine: Engine) -> bool {
        match self {
            Self::Async | Self::Chain | Self::SemiSync | Self::Federated => true,
            Self::Galera | Self::StateTransfer => engine == Engine::MariaDb,
            Self::Group => engine == Engine::MySql,
        }
    }
}

/// How the server provides semi-synchronous replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SemiSync {
    /// Built into the server (MariaDB since 10.3.3).
    BuiltIn,
    /// As plugins; their file names in the form for `--plugin-load-add`.
    Plugins {
        /// The primary's.
        source: String,
        /// The replica's.
        replica: String,
    },
}

/// The programs that transfer data to a Galera node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTransfer {
    /// `wsrep_sst_rsync`.
    pub script: PathBuf,
    /// `rsync`.
    pub rsync: PathBuf,
}

/// A missing capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingPart {
    /// The capability.
    pub capability: Capability,
    /// The missing files, and a hint on what to install.
    pub hint: String,
}

/// The capabilities of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    engine: Engine,
    /// Semi-synchronous replication.
    pub semi_sync: Option<SemiSync>,
    /// Galera's library, for `wsrep_provider`.
    pub galera: Option<PathBuf>,
    /// Galera's state transfer by rsync. A cluster whose nodes start from copies of one data
    /// directory does not need it.
    pub state_transfer: Option<StateTransfer>,
    /// Whether MySQL's Group Replication plugin exists.
    pub group_replication: bool,
    /// Whether a plugin file of the FEDERATED engine exists. MySQL may have the engine built in,
    /// which no file shows: there, `false` means unknown.
    pub federated: bool,
}

/// The files of an installation.
pub(crate) struct InstalledFiles<'a> {
    pub(crate) engine: Engine,
    pub(crate) version: &'a str,
    /// `--basedir`.
    pub(crate) base: &'a Path,
    /// The folder that contains `usr/`.
    pub(crate) root: &'a Path,
    pub(crate) plugins: Option<&'a Path>,
    /// The folders of programs, in this order.
    pub(crate) tools: &'a [PathBuf],
}

impl Capabilities {
    /// Determines the capabilities from the files.
    pub(crate) fn of(files: &InstalledFiles<'_>) -> Self {
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
            // The script needs one of these to find used ports, and fails without.
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

    /// Returns whether it has the capability.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        match capability {
            Capability::Async | Capability::Chain => true,
            Capability::SemiSync => self.semi_sync.is_some(),
            Capability::Galera => self.galera.is_some(),
            Capability::StateTransfer => self.state_transfer.is_some(),
            Capability::Group => self.group_replication,
            Capability::Federated => self.federated,
        }
    }

    /// Returns the names of its capabilities.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        Capability::ALL
            .into_iter()
            .filter(|capability| self.has(*capability))
            .map(Capability::name)
            .collect()
    }

    /// Returns the capabilities that a complete installation of its engine has and this one lacks.
    #[must_use]
    pub fn missing(&self) -> Vec<MissingPart> {
        let unknown = |capability: Capability| {
            capability == Capability::Federated && self.engine == Engine::MySql
        };
        let lacks = |capability: &Capability| {
            capability.is_of(self.engine) && !self.has(*capability) && !unknown(*capability)
        };
        Capability::ALL
            .into_iter()
            .filter(lacks)
            .map(|capability| self.lack(capability))
            .collect()
    }

    /// Checks that it has the capability.
    ///
    /// # Errors
    /// The missing files, and what to install.
    pub fn require(&self, capability: Capability) -> Result<(), MissingPart> {
        if self.has(capability) {
            Ok(())
        } else {
            Err(self.lack(capability))
        }
    }

    fn lack(&self, capability: Capability) -> MissingPart {
        let hint = match (capability, self.engine) {
            (Capability::Async | Capability::Chain, _) => "every server can do this",
            (Capability::SemiSync, Engine::MariaDb) => {
                "semisync_master.so and semisync_slave.so were not found among its plugins; install MariaDB 10.3.3 or newer, \
                 where it is built in, or run `make servers`"
            }
            (Capability::SemiSync, Engine::MySql) => {
                "semisync_source.so and semisync_replica.so (or semisync_master.so and semisync_slave.so) were not found \
                 among its plugins; install mysql-server (Debian, Ubuntu) or run `make servers`"
            }
            (Capability::Galera, Engine::MariaDb) => {
                "libgalera_smm.so was not found; install galera-4 (Debian, Ubuntu) or run `make servers`"
            }
            (Capability::StateTransfer, Engine::MariaDb) => {
                "wsrep_sst_rsync, rsync, or one of ss and lsof was not found; install mariadb-server, rsync and lsof (Debian, \
                 Ubuntu) or run `make servers`"
            }
            (Capability::Galera | Capability::StateTransfer, Engine::MySql) => {
                "Galera is a part of MariaDB; use a MariaDB server, or Group Replication with MySQL"
            }
            (Capability::Group, Engine::MySql) => {
                "group_replication.so was not found among its plugins; install mysql-server (Debian, Ubuntu) or run `make servers`"
            }
            (Capability::Group, Engine::MariaDb) => {
                "Group Replication is a part of MySQL; use a MySQL server, or Galera with MariaDB"
            }
            (Capability::Federated, _) => {
                "ha_federatedx.so was not found among its plugins; install mariadb-server (Debian, Ubuntu) or run `make servers`"
            }
        };
        MissingPart {
            capability,
            hint: hint.to_owned(),
        }
    }
}

fn semi_sync(files: &InstalledFiles<'_>, plugin: impl Fn(&str) -> bool) -> Option<SemiSync> {
    // A server with both generations prefers the new one, and must load both plugins of the same
    // generation.
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
    // Built-in features leave no file: the only use of a version number here.
    (files.engine == Engine::MariaDb && version_numbers(files.version) >= vec![10, 3, 3])
        .then_some(SemiSync::BuiltIn)
}

fn galera(files: &InstalledFiles<'_>) -> Option<PathBuf> {
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
    // A link's name has no version; both names lead to the same file.
    folders
        .map(|folder| folder.join("libgalera_smm.so"))
        .find(|path| path.is_file())
}

/// Returns the numbers of a version, so that 10.11 is newer than 10.6.
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

    /// Returns a folder with these (empty) files, and what is found in it.
    fn capabilities(
        engine: Engine,
        version: &str,
        files: &[&str],
    ) -> (tempfile::TempDir, Capabilities) {
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
        let found = Capabilities::of(&InstalledFiles {
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
    fn distribution_mariadb_has_every_capability() {
        let (root, found) = capabilities(
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
                .require(Capability::Group)
                .unwrap_err()
                .hint
                .contains("part of MySQL")
        );
    }

    #[test]
    fn bare_mariadb_names_packages_to_install() {
        let (_root, found) = capabilities(Engine::MariaDb, "11.4.2", &["bin/mariadbd"]);
        assert_eq!(found.names(), ["async", "chain", "semi-sync"]);
        let missing = found.missing();
        let names: Vec<_> = missing
            .iter()
            .map(|missing| missing.capability.name())
            .collect();
        assert_eq!(names, ["galera", "state-transfer", "federated"]);
        assert!(
            missing[0]
                .hint
                .contains("libgalera_smm.so was not found; install galera-4")
        );
    }

    #[test]
    fn galera_library_is_found_near_vendor_binary() {
        let (root, found) = capabilities(
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
    fn semi_sync_depends_on_the_version() {
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
        let (_root, found) = capabilities(Engine::MySql, "5.7.44", &old);
        assert_eq!(
            found.semi_sync,
            plugins("semisync_master.so", "semisync_slave.so")
        );
        let (_root, found) = capabilities(Engine::MariaDb, "10.2.44", &old);
        assert_eq!(
            found.semi_sync,
            plugins("semisync_master.so", "semisync_slave.so")
        );
        let (_root, found) = capabilities(Engine::MariaDb, "10.2.44", &[]);
        assert_eq!(found.semi_sync, None);
        let both = [
            old[0],
            old[1],
            "lib/plugin/semisync_source.so",
            "lib/plugin/semisync_replica.so",
        ];
        let (_root, found) = capabilities(Engine::MySql, "8.0.36", &both);
        assert_eq!(
            found.semi_sync,
            plugins("semisync_source.so", "semisync_replica.so")
        );
        let (_root, found) = capabilities(Engine::MySql, "8.0.36", &[old[0]]);
        assert_eq!(
            found.semi_sync, None,
            "a primary's plugin alone is of no use"
        );
    }

    #[test]
    fn mysql_never_has_galera() {
        let files = [
            "usr/lib/galera/libgalera_smm.so",
            "usr/lib/mysql/plugin/group_replication.so",
        ];
        let (_root, found) = capabilities(Engine::MySql, "9.7.4", &files);
        assert_eq!(found.names(), ["async", "chain", "group"]);
        assert!(
            found
                .require(Capability::Galera)
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
