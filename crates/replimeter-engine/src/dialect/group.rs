//! The state of a MySQL group as one of its members sees it.

use crate::{ServerError, Session};

/// How the names of a group's own channels begin.
pub const CHANNELS: &str = "group_replication_";

/// One member as this server sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its `server_uuid`.
    pub uuid: String,
    /// The address that it announces, host and port.
    pub address: String,
    /// `ONLINE`, `RECOVERING`, `UNREACHABLE`, `OFFLINE`, `ERROR`.
    pub state: String,
    /// `PRIMARY` or `SECONDARY`; every member of a multi-primary group is `PRIMARY`.
    pub role: String,
}

/// The group as one of its members sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// The group's name, a UUID.
    pub name: String,
    /// This server's `server_uuid`.
    pub uuid: String,
    /// Every member that it sees.
    pub members: Vec<Member>,
    /// Whether only one member takes writes.
    pub single_primary: bool,
    /// `group_replication_consistency`.
    pub consistency: String,
}

impl GroupState {
    /// Returns this server's entry among the members.
    #[must_use]
    pub fn own_member(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.uuid == self.uuid)
    }

    /// Returns the number of members that are online.
    #[must_use]
    pub fn online(&self) -> usize {
        self.members
            .iter()
            .filter(|member| member.state == "ONLINE")
            .count()
    }

    /// Returns a one-line description.
    #[must_use]
    pub fn description(&self) -> String {
        let own = self
            .own_member()
            .map_or("not a member", |member| member.state.as_str());
        format!(
            "{own}, {} of {} members online",
            self.online(),
            self.members.len()
        )
    }
}

/// Returns the group's state; `None` when the server belongs to no group.
///
/// # Errors
/// When the privilege is missing or the connection breaks.
pub fn group_state(session: &mut Session) -> Result<Option<GroupState>, ServerError> {
    let operation = "cannot read the state of the group";
    let variables = session
        .pairs(operation, "SHOW GLOBAL VARIABLES WHERE Variable_name LIKE 'group_replication_%' OR Variable_name = 'server_uuid'")?;
    let of = |name: &str| variables.get(name).cloned().unwrap_or_default();
    if of("group_replication_group_name").is_empty() {
        return Ok(None);
    }
    // The columns of 8.0 and later; earlier versions have no role.
    let rows = session.rows(
        operation,
        "SELECT * FROM performance_schema.replication_group_members",
    )?;
    let members: Vec<Member> = rows
        .iter()
        .map(|row| {
            let of = |name: &str| row.get(name).cloned().unwrap_or_default();
            let address = format!("{}:{}", of("MEMBER_HOST"), of("MEMBER_PORT"));
            Member {
                uuid: of("MEMBER_ID"),
                address,
                state: of("MEMBER_STATE"),
                role: of("MEMBER_ROLE"),
            }
        })
        .filter(|member| !member.uuid.is_empty())
        .collect();
    if members.is_empty() {
        return Ok(None);
    }
    Ok(Some(GroupState {
        name: of("group_replication_group_name"),
        uuid: of("server_uuid"),
        members,
        single_primary: of("group_replication_single_primary_mode") == "ON",
        consistency: of("group_replication_consistency"),
    }))
}
