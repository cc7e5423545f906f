//! Which server a connection has reached: a name can lead to several.

use std::sync::{Arc, OnceLock};

use crate::ServerError;

/// Distinguishes one server from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `server_id`.
    pub server_id: u64,
    /// `server_uuid` (MySQL); empty on MariaDB.
    pub uuid: String,
    /// Host name, port and data directory, as the server sees them.
    pub place: String,
}

impl Identity {
    /// Returns an identity from what the server's variables say.
    pub(crate) fn new(server_id: &str, uuid: &str, [host, port, folder]: [&str; 3]) -> Self {
        Self {
            server_id: server_id.parse().unwrap_or(0),
            uuid: uuid.to_owned(),
            place: format!("{host}:{port} {folder}"),
        }
    }

    /// Reads the answer to [`question`]; `None` if it is not one, or not for this `proof`.
    fn parse(answer: &str, proof: &str) -> Option<Self> {
        let mut lines = answer.splitn(6, '\n');
        let mut line = || lines.next();
        if line()? != proof {
            return None;
        }
        Some(Self::new(line()?, line()?, [line()?, line()?, line()?]))
    }

    /// Returns whether both are one server, which may have been restarted. MySQL's UUID is that of a data directory, so that it stays
    /// if a service moves that to another machine.
    #[must_use]
    pub fn is_same_server(&self, other: &Self) -> bool {
        (self.server_id, &self.uuid) == (other.server_id, &other.uuid)
            && (!self.uuid.is_empty() || self.place == other.place)
    }
}

/// Returns the statement that asks a server for its identity, and for this text of letters and digits.
pub(crate) fn question(proof: &str) -> String {
    format!(
        "SELECT CONCAT_WS('\n', '{proof}', @@GLOBAL.server_id, /*M! '', */ /*!50720 @@server_uuid, */ @@hostname, @@port, @@datadir)"
    )
}

/// The identity that the first connection to a server found, shared by all copies of its [`Node`](crate::Node).
#[derive(Clone, Debug, Default)]
pub struct RecordedIdentity(Arc<Found>);

#[derive(Debug, Default)]
struct Found {
    first: OnceLock<Identity>,
    /// The error of the first connection that reached another server.
    other: OnceLock<ServerError>,
}

/// Why a connection is not used.
pub(crate) enum Unconfirmed {
    /// The answer is not one to the question.
    NoAnswer,
    /// Another server answered.
    Other(ServerError),
}

impl RecordedIdentity {
    /// Compares the answer to [`question`] with what the first connection found; `error` has the server's name and address.
    pub(crate) fn confirm(
        &self,
        answer: &str,
        proof: &str,
        error: impl FnOnce(&str, String, &str) -> ServerError,
    ) -> Result<(), Unconfirmed> {
        let found = Identity::parse(answer, proof).ok_or(Unconfirmed::NoAnswer)?;
        let first = self.0.first.get_or_init(|| found.clone());
        if first.is_same_server(&found) {
            return Ok(());
        }
        let named = |identity: &Identity| match identity.uuid.as_str() {
            "" => format!("{}, server_id {}", identity.place, identity.server_id),
            uuid => format!("{}, server_uuid {uuid}", identity.place),
        };
        let error = error(
            "is not always the same server",
            format!(
                "two connections reached different servers ({} and {})",
                named(first),
                named(&found)
            ),
            "name the servers behind the load balancer, or, after a failover, run again",
        );
        self.0.other.get_or_init(|| error.clone());
        Err(Unconfirmed::Other(error))
    }

    /// Returns one that is known from earlier connections.
    #[must_use]
    pub fn of(first: Option<Identity>) -> Self {
        let found = Found::default();
        if let Some(first) = first {
            // It is empty.
            let _ = found.first.set(first);
        }
        Self(Arc::new(found))
    }

    /// Returns what the first connection found.
    #[must_use]
    pub fn first(&self) -> Option<&Identity> {
        self.0.first.get()
    }

    /// Returns the error of the first connection that reached another server.
    #[must_use]
    pub fn other(&self) -> Option<&ServerError> {
        self.0.other.get()
    }
}
