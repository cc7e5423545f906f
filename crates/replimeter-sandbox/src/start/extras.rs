//! Optional features of servers: the stamp functions `NOW_USEC()` and `NOW_NSEC()`, and the
//! FEDERATED engine.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use replimeter_engine::{ServerError, Session};
use replimeter_model::replication::Mode;

use super::{Started, Starter};
use crate::{binaries::Install, engine, error::SandboxError, process};

impl Starter<'_> {
    /// Returns a plugin folder for one server: links to its own plugins, and the stamp library. The
    /// system's folder is not changed. `None` when there is nothing to add.
    pub(super) fn plugin_folder(
        &self,
        install: &Install,
        folder: &Path,
    ) -> Result<Option<PathBuf>, SandboxError> {
        let Some(library) = &self.installs.udf else {
            return Ok(None);
        };
        let disk = SandboxError::disk;
        let plugins = folder.join("plugins");
        fs::create_dir(&plugins).map_err(disk("create the folder", &plugins))?;
        if let Some(own) = &install.plugins {
            for entry in fs::read_dir(own).map_err(disk("read the folder", own))? {
                let entry = entry.map_err(disk("read the folder", own))?;
                let link = plugins.join(entry.file_name());
                symlink(entry.path(), &link).map_err(disk("create the link", &link))?;
            }
        }
        // A copy: the servers' user may have no access to the folder of this program.
        let copy = plugins.join(engine::UDF_LIBRARY);
        // A library of this name in the server's own folder is another version of it.
        let _ = fs::remove_file(&copy);
        fs::copy(library, &copy).map_err(disk("copy the library to", &copy))?;
        for (path, mode) in [(&copy, 0o644), (&plugins, 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .map_err(disk("set the permissions of", path))?;
        }
        Ok(Some(plugins))
    }

    /// Checks that every server has the requested features: its init file sets them up before it
    /// accepts connections, and an error there does not end it.
    pub(super) fn prove_extras(&self, started: &[Started]) -> Result<(), SandboxError> {
        let spec = &self.settings.spec;
        if !spec.udf && !spec.federated {
            return Ok(());
        }
        self.on_all(started, |server| {
            let mut session = Session::open(&server.member.node)?;
            let refuse = |what: String, hint: &str| SandboxError::Impossible {
                what: format!(
                    "{} {what}; the end of its log:\n{}",
                    server.member.node.name,
                    process::log_tail(&server.member.log())
                ),
                hint: hint.to_owned(),
            };
            if spec.udf {
                let called = session.value(
                    "cannot call the functions of the stamp library",
                    "SELECT CONCAT(NOW_USEC(), NOW_NSEC())",
                );
                called.map_err(|error| {
                    // MariaDB does not report an error in an init file; a repeated statement does.
                    let again = self.define_functions(&mut session).err().unwrap_or(error);
                    refuse(
                        format!("did not load NOW_USEC(): {}", again.cause),
                        "check that the library (REPLIMETER_UDF) is built for this machine and its C library",
                    )
                })?;
            }
            if spec.federated {
                let support = session.value(
                    "cannot read the list of engines",
                    "SELECT SUPPORT FROM information_schema.ENGINES WHERE ENGINE = 'FEDERATED'",
                )?;
                if !matches!(support.as_deref(), Some("YES" | "DEFAULT")) {
                    return Err(refuse(
                        "has not enabled the FEDERATED engine".to_owned(),
                        "see the log above",
                    ));
                }
            }
            Ok(())
        })
    }

    fn define_functions(&self, session: &mut Session) -> Result<(), ServerError> {
        let operation = "cannot define the functions of the stamp library";
        session.run(operation, "SET SESSION sql_log_bin=0")?;
        if self.mode() == Mode::Galera {
            session.run(operation, "SET SESSION wsrep_on=0")?;
        }
        engine::functions()
            .iter()
            .try_for_each(|sql| session.run(operation, sql))
    }
}
