//! The id of a session's last write.

use mysql::{SessionStateInfo, session_state_change::SessionStateChange};
use replimeter_model::engine::Engine;

use crate::{ServerError, Session, dialect::galera, facts::ServerFacts};

const OPERATION: &str = "cannot read the GTID of a write";

/// How a session learns the id of its last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenId {
    /// The answer to the write contains it: no round trip (MariaDB, MySQL).
    InTheAnswer,
    /// Read after the write, one round trip (Galera, whose `last_gtid` may be from another node's
    /// number space).
    AskedFor,
}

impl WrittenId {
    /// Makes the session report the ids of its writes.
    ///
    /// # Errors
    /// When the server assigns none, with the setting to enable.
    pub fn prepare(session: &mut Session, facts: &ServerFacts) -> Result<Self, ServerError> {
        let galera = galera::node_state(session)?.is_some();
        if !facts.on("log_bin") && !galera {
            let hint = "start the server with log_bin, or use --method poll";
            return Err(session.precondition(
                OPERATION,
                "its binary log is off, so its transactions have no GTIDs",
                hint,
            ));
        }
        if galera {
            let operation = "cannot read the GTID of a write to the Galera cluster";
            session.value(operation, "SELECT WSREP_LAST_WRITTEN_GTID()")?;
            return Ok(Self::AskedFor);
        }
        match facts.engine {
            Engine::MariaDb => session.run(
                OPERATION,
                "SET SESSION session_track_system_variables = 'last_gtid'",
            )?,
            Engine::MySql => {
                if !facts.get("gtid_mode").eq_ignore_ascii_case("on") {
                    let cause = format!(
                        "gtid_mode is {}, so its transactions have no GTIDs",
                        facts.get("gtid_mode")
                    );
                    return Err(session.precondition(
                        OPERATION,
                        cause,
                        "set gtid_mode=ON, or use --method poll",
                    ));
                }
                session.run(OPERATION, "SET SESSION session_track_gtids = OWN_GTID")?;
            }
        }
        Ok(Self::InTheAnswer)
    }

    /// Returns the GTID of the session's last write, as the server spells it; `None` when it
    /// reports none.
    ///
    /// # Errors
    /// When the connection breaks.
    pub fn of_last_write(self, session: &mut Session) -> Result<Option<String>, ServerError> {
        if self == Self::AskedFor {
            return session.value(OPERATION, "SELECT WSREP_LAST_WRITTEN_GTID()");
        }
        session.session_state(OPERATION, gtid_in)
    }

    /// Returns the same for a caller of this `operation` who needs it.
    ///
    /// # Errors
    /// When the server reports none, or the connection breaks.
    pub fn required_of_last_write(
        self,
        session: &mut Session,
        operation: &str,
    ) -> Result<String, ServerError> {
        self.of_last_write(session)?.ok_or_else(|| {
            session.precondition(
                operation,
                "the server did not return the GTID of a write",
                "set sql_log_bin=ON, connect without a proxy, or use --method poll",
            )
        })
    }
}

/// Returns the GTID in one session-state change of the answer.
fn gtid_in(change: &SessionStateInfo<'_>) -> Option<String> {
    match change.decode().ok()? {
        SessionStateChange::SystemVariables(variables) => {
            let gtid = variables
                .iter()
                .find(|variable| variable.name_bytes() == b"last_gtid")?;
            Some(gtid.value_str().into_owned()).filter(|text| !text.is_empty())
        }
        SessionStateChange::Gtids(gtids) => gtid_text(gtids.as_bytes()),
        _ => None,
    }
}

/// Returns the GTID after MySQL's prefix of one byte for its encoding and one or more for its
/// length, none of which can begin a UUID.
fn gtid_text(bytes: &[u8]) -> Option<String> {
    let (encoding, rest) = bytes.split_first()?;
    let (length, rest) = match rest.split_first()? {
        (252, rest) => (
            usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?])),
            rest.get(2..)?,
        ),
        (length, rest) => (usize::from(*length), rest),
    };
    if *encoding != 0 {
        return None;
    }
    String::from_utf8(rest.get(..length)?.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gtid_text_follows_encoding_and_length() {
        let gtid = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23";
        let mut bytes = vec![0, gtid.len() as u8];
        bytes.extend(gtid.as_bytes());
        assert_eq!(gtid_text(&bytes).as_deref(), Some(gtid));
        assert_eq!(gtid_text(&bytes[..20]), None, "cut off");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = gtid_text(&bytes);
        }
    }
}
