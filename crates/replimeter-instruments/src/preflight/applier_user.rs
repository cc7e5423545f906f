//! Replicas that apply with the privileges of an account.

use replimeter_engine::{
    ErrorKind, ServerError,
    dialect::{
        applier_user::{ApplierUser, READ_HINT},
        group::CHANNELS as GROUP,
    },
    membership::Membership,
};
use replimeter_model::replication::Relation;

use crate::{SCHEMA, TABLE, discovery::Source};

/// Privileges on the schema that a replica needs to apply what commands write.
pub(crate) const APPLIER_PRIVILEGES: [&str; 6] =
    ["CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "INDEX"];

/// Privileges of which a replica needs one to set restricted variables of a session.
const VARIABLES: [&str; 3] = ["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER"];

/// What an account's privileges do to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestrictedApplier {
    /// Whether what a run writes certainly stops replication; otherwise it is unknown.
    pub(crate) stops: bool,
    /// The fact, without the server.
    pub(crate) fact: String,
    /// The remedy.
    pub(crate) hint: String,
}

/// Returns the channel by which a server gets the writer's writes, or how the channels of a group begin; `None` for other servers.
pub(crate) fn channel_of(
    membership: &Membership,
    relation: Relation,
    source: Option<Source>,
) -> Option<&str> {
    match relation {
        Relation::Channel => {
            let channel = membership.channels().get(source?.channel);
            channel.map(|channel| channel.name.as_str())
        }
        Relation::Group => Some(GROUP),
        _ => None,
    }
}

/// Returns what is known of the accounts of a channel.
pub(crate) fn restricted_appliers(
    channel: &str,
    users: &Result<Vec<ApplierUser>, ServerError>,
) -> Vec<RestrictedApplier> {
    let wanted = APPLIER_PRIVILEGES.join(", ");
    let users = match users {
        Ok(users) => users,
        Err(error) if error.kind == ErrorKind::Privilege => {
            return vec![RestrictedApplier {
                stops: false,
                fact: "whether its replication applies with the privileges of an account (PRIVILEGE_CHECKS_USER) could not be read"
                    .to_owned(),
                hint: READ_HINT.to_owned(),
            }];
        }
        Err(_) => return Vec::new(),
    };
    let of_channel = users.iter().filter(|user| match channel {
        GROUP => user.channel.starts_with(GROUP),
        name => user.channel == name,
    });
    let restricted = of_channel.filter_map(|user| {
        let account = &user.account;
        let Some(grants) = &user.grants else {
            return Some(RestrictedApplier {
                stops: false,
                fact: format!(
                    "its replication applies as {account}, whose privileges could not be read: without {wanted} on the schema \
                     `{SCHEMA}`, what a run writes stops it"
                ),
                hint: format!("check by hand: SHOW GRANTS FOR {account}"),
            });
        };
        let missing = grants.missing(&APPLIER_PRIVILEGES, SCHEMA, &TABLE).join(", ");
        let mut lacks = Vec::new();
        let mut statements = String::new();
        if !missing.is_empty() {
            lacks.push(format!("{missing} on the schema `{SCHEMA}`"));
            statements += &format!(" GRANT {wanted} ON `{SCHEMA}`.* TO {account};");
        }
        if user.sets_variables && !VARIABLES.iter().any(|one| grants.has(one, SCHEMA, &TABLE)) {
            lacks.push(format!("{} for CREATE TABLE", VARIABLES[0]));
            statements += &format!(" GRANT {} ON *.* TO {account};", VARIABLES[0]);
        }
        (!lacks.is_empty()).then(|| RestrictedApplier {
            stops: true,
            fact: format!(
                "its replication applies as {account}, who lacks {}: what a run writes would stop it",
                lacks.join(", and ")
            ),
            // Replicated, the statements would be refused like the run's.
            hint: format!("run on this replica: SET SESSION sql_log_bin = 0;{statements}"),
        })
    });
    restricted.collect()
}

#[cfg(test)]
mod tests {
    use replimeter_engine::grants::Grants;

    use super::*;

    fn user(channel: &str, grants: Option<&str>) -> Result<Vec<ApplierUser>, ServerError> {
        Ok(vec![ApplierUser {
            channel: channel.to_owned(),
            account: "'a'@'localhost'".to_owned(),
            sets_variables: true,
            grants: grants.map(|line| Grants::parse([line])),
        }])
    }

    #[test]
    fn account_without_privileges_stops_its_channel_only() {
        let shop = user(
            "",
            Some("GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`localhost`"),
        );
        let found = restricted_appliers("", &shop);
        assert!(found[0].stops, "{found:?}");
        assert!(
            found[0].hint.contains("GRANT CREATE, DROP, INSERT, UPDATE, DELETE, INDEX ON `replimeter`.* TO 'a'@'localhost';"),
            "{found:?}"
        );
        assert_eq!(restricted_appliers("other", &shop), []);
        assert_eq!(restricted_appliers(GROUP, &shop), []);
        let group = user(
            "group_replication_applier",
            Some("GRANT USAGE ON *.* TO `a`@`localhost`"),
        );
        assert!(restricted_appliers(GROUP, &group)[0].stops);
        let all = user("", Some("GRANT ALL PRIVILEGES ON *.* TO `a`@`localhost`"));
        assert_eq!(restricted_appliers("", &all), []);
        assert!(!restricted_appliers("", &user("", None))[0].stops);
        let own = "GRANT CREATE, DROP, INSERT, UPDATE, DELETE, INDEX ON `replimeter`.* TO `a`@`localhost`";
        let found = restricted_appliers("", &user("", Some(own)));
        assert!(
            found[0].hint.ends_with(
                "sql_log_bin = 0; GRANT SESSION_VARIABLES_ADMIN ON *.* TO 'a'@'localhost';"
            ),
            "{found:?}"
        );
    }
}
