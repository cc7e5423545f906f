//! The facts of a server: engine, version, global variables, identity.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use replimeter_model::{engine::Engine, manifest::ServerRecord};

use crate::{ServerError, Session, grants::Grants, identity::Identity};

/// Facts of a server, read in one statement.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// MariaDB or MySQL.
    pub engine: Engine,
    /// Its full version text.
    pub version: String,
    /// Every global variable in effect.
    pub variables: BTreeMap<String, String>,
}

/// Returns the engine that a version text belongs to.
fn engine(version: &str, version_comment: &str) -> Engine {
    let says = |text: &str| text.to_ascii_lowercase().contains("mariadb");
    if says(version) || says(version_comment) {
        Engine::MariaDb
    } else {
        Engine::MySql
    }
}

/// Returns whether the variable's value may contain a secret; such values are blanked in records.
fn secret(name: &str) -> bool {
    /// Parts of names: of secrets, and of statements, commands and addresses that can include one. Names of key files
    /// are shown.
    const PARTS: [&str; 18] = [
        "password",
        "passwd",
        "passphrase",
        "pwd",
        "auth",
        "secret",
        "credential",
        "token",
        "private_key",
        "access_key",
        "filekey",
        "role_id",
        "init_connect",
        "init_slave",
        "init_replica",
        "notify_cmd",
        "headers",
        "http_proxy",
    ];
    PARTS.iter().any(|part| name.contains(part))
        && !name.starts_with("have_")
        && !name.ends_with("_plugin")
        && !name.ends_with("_token_size")
}

impl ServerFacts {
    /// Reads the facts from the server.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn read(session: &mut Session) -> Result<Self, ServerError> {
        let variables = session.pairs(
            "cannot read the server's variables",
            "SHOW GLOBAL VARIABLES",
        )?;
        let get = |name: &str| variables.get(name).cloned().unwrap_or_default();
        let version = get("version");
        Ok(Self {
            engine: engine(&version, &get("version_comment")),
            version,
            variables,
        })
    }

    /// Returns a global variable's value; "" when the server does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    /// Returns whether a switch is on.
    #[must_use]
    pub fn on(&self, name: &str) -> bool {
        matches!(self.get(name), "ON" | "1" | "YES")
    }

    /// Returns why the server accepts no writes of ordinary users, if so.
    #[must_use]
    pub fn read_only(&self) -> Option<&'static str> {
        // MariaDB 12 has more values than ON and OFF.
        ["super_read_only", "read_only"]
            .into_iter()
            .find(|name| !matches!(self.get(name), "" | "OFF" | "0"))
    }

    /// Returns its error log, if that is a file.
    #[must_use]
    pub fn error_log(&self) -> Option<PathBuf> {
        let file = Some(self.get("log_error")).filter(|file| !matches!(*file, "" | "stderr"))?;
        Some(Path::new(self.get("datadir")).join(file.trim_start_matches("./")))
    }

    /// Returns the largest packet it accepts, in bytes.
    #[must_use]
    pub fn max_allowed_packet(&self) -> Option<u64> {
        self.get("max_allowed_packet").parse().ok()
    }

    /// Returns what distinguishes it from other servers: id, UUID, place.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let place = ["hostname", "port", "datadir"].map(|name| self.get(name));
        Identity::new(self.get("server_id"), self.get("server_uuid"), place)
    }

    /// Returns the record for the manifest, secrets blanked.
    #[must_use]
    pub fn record(&self, session: &Session) -> ServerRecord {
        let blanked = self.variables.iter().map(|(name, value)| {
            let shown =
                if secret(name) && !value.is_empty() && !matches!(value.as_str(), "ON" | "OFF") {
                    "(blanked)"
                } else {
                    value
                };
            (name.clone(), shown.to_owned())
        });
        ServerRecord {
            name: session.name().to_owned(),
            address: session.address(),
            dialect: self.engine.name().to_owned(),
            version: format!("{} {}", self.version, self.get("version_comment"))
                .trim()
                .to_owned(),
            tls: if session.tls() {
                "encrypted".to_owned()
            } else {
                "plain".to_owned()
            },
            variables: blanked.collect(),
            ..ServerRecord::default()
        }
    }
}

/// Returns the privileges of the session's user; `None` when the server does not show them.
///
/// # Errors
/// When the connection breaks.
pub fn grants(session: &mut Session, engine: Engine) -> Result<Option<Grants>, ServerError> {
    let operation = "cannot read the user's privileges";
    let mut statement = "SHOW GRANTS".to_owned();
    // MySQL lists privileges granted through roles only when asked for the roles.
    if engine == Engine::MySql
        && let Ok(Some(roles)) = session.value(operation, "SELECT CURRENT_ROLE()")
        && roles != "NONE"
    {
        statement = format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}");
    }
    shown_grants(session, operation, &statement)
}

/// Returns the privileges of another account of MySQL, quoted as the server reports it, with those of its default roles; `None` when
/// the user may not read them.
///
/// # Errors
/// When the connection breaks.
pub(crate) fn grants_of(
    session: &mut Session,
    account: &str,
) -> Result<Option<Grants>, ServerError> {
    let operation = "cannot read an account's privileges";
    let mut statement = format!("SHOW GRANTS FOR {account}");
    let roles = format!(
        "SELECT GROUP_CONCAT(QUOTE(DEFAULT_ROLE_USER), '@', QUOTE(DEFAULT_ROLE_HOST)) FROM mysql.default_roles \
         WHERE CONCAT(QUOTE(USER), '@', QUOTE(HOST)) = \"{account}\""
    );
    if let Ok(Some(roles)) = session.value(operation, &roles) {
        statement += &format!(" USING {roles}");
    }
    shown_grants(session, operation, &statement)
}

fn shown_grants(
    session: &mut Session,
    operation: &str,
    statement: &str,
) -> Result<Option<Grants>, ServerError> {
    match session.rows(operation, statement) {
        Ok(rows) => Ok(Some(Grants::parse(
            rows.iter().flat_map(|row| row.values()).map(String::as_str),
        ))),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(variables: &[(&str, &str)]) -> ServerFacts {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        ServerFacts {
            engine: Engine::MariaDb,
            version: "10.11.6-MariaDB".to_owned(),
            variables,
        }
    }

    #[test]
    fn read_only_is_read_from_every_spelling() {
        assert_eq!(facts(&[("read_only", "OFF")]).read_only(), None);
        for value in ["ON", "NO_LOCK", "NO_LOCK_NO_ADMIN"] {
            let facts = facts(&[("read_only", value)]);
            assert_eq!(facts.read_only(), Some("read_only"), "{value}");
        }
        assert_eq!(
            facts(&[("read_only", "ON"), ("super_read_only", "ON")]).read_only(),
            Some("super_read_only")
        );
    }

    #[test]
    fn error_log_is_a_file_or_unknown() {
        let log = |file: &str| {
            let facts = facts(&[("log_error", file), ("datadir", "/var/lib/mysql/")]);
            facts.error_log().map(|log| log.display().to_string())
        };
        assert_eq!(log("/log/my.err").as_deref(), Some("/log/my.err"));
        assert_eq!(log("./my.err").as_deref(), Some("/var/lib/mysql/my.err"));
        assert_eq!(log("stderr").or(log("")), None);
    }

    #[test]
    fn variables_with_secrets_are_recognized() {
        for name in [
            "report_password",
            "wsrep_sst_auth",
            "rpl_semi_sync_password",
            "ssl_passphrase",
            "init_connect",
            "init_slave",
            "init_replica",
            "wsrep_notify_cmd",
            "hashicorp_key_management_token",
            "keyring_hashicorp_secret_id",
            "keyring_hashicorp_role_id",
            "authentication_ldap_simple_bind_root_pwd",
            "s3_access_key",
            "s3_secret_key",
            "file_key_management_filekey",
            "feedback_http_proxy",
            "telemetry.otlp_exporter_otlp_traces_headers",
            "version_tokens_session",
        ] {
            assert!(secret(name), "{name}");
        }
        for name in [
            "default_authentication_plugin",
            "sync_binlog",
            "ssl_key",
            "init_file",
            "key_buffer_size",
            "innodb_ft_max_token_size",
            "have_crypt",
        ] {
            assert!(!secret(name), "{name}");
        }
    }

    #[test]
    fn engine_is_detected_from_version_text() {
        assert_eq!(
            engine("10.11.6-MariaDB-0+deb12u1-log", "Debian 12"),
            Engine::MariaDb
        );
        assert_eq!(
            engine("9.7.0", "MySQL Community Server - GPL"),
            Engine::MySql
        );
        assert_eq!(engine("8.0.36-28", "Percona Server (GPL)"), Engine::MySql);
    }
}
