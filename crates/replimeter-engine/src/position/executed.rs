//! Which transactions a server has executed, those that it wrote and those that it applied.

use std::fmt::Write as _;

use super::{
    CommitSource, Numbers, Position,
    gtid_set::{DomainCommit, GtidSet, domain_commits},
};
use crate::{ServerError, Session, dialect::log::LogSettings, facts::ServerFacts};

/// Which transactions a server has executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed {
    /// MySQL: every one of them.
    Set(GtidSet),
    /// MariaDB: the last one of each server in each domain.
    Domains {
        /// In the binary log, written here or logged while applying
        /// (`gtid_binlog_state`).
        logged: Vec<DomainCommit>,
        /// Applied as a replica (`gtid_slave_pos`).
        applied: Vec<DomainCommit>,
    },
    /// Unknown, with the reason.
    Unknown(String),
}

impl Default for Executed {
    fn default() -> Self {
        Self::Unknown("not asked".to_owned())
    }
}

impl Executed {
    /// Returns the transactions that a text lists; none for another text.
    #[must_use]
    pub fn listed(text: &str) -> Self {
        match text.parse() {
            Ok(Position::Set(set)) => Self::Set(set),
            Ok(Position::Domains(logged)) => Self::Domains {
                logged,
                applied: Vec::new(),
            },
            Err(error) => Self::Unknown(error.to_string()),
        }
    }

    /// Returns whether it has the transaction with this number of a source.
    #[must_use]
    pub fn has(&self, source: &CommitSource, number: u64) -> bool {
        match (self, source) {
            (Self::Domains { logged, .. }, CommitSource::Domain(domain, server)) => {
                last_of(logged, *domain, *server).is_some_and(|last| number <= last)
            }
            (Self::Set(set), CommitSource::Uuid(uuid, tag)) => {
                Numbers::In(set.intervals(&uuid.to_string(), tag.as_str())).contains(number)
            }
            _ => false,
        }
    }

    /// Returns whether it lacks transactions that it had `before`.
    #[must_use]
    pub fn lacks(&self, before: &Self) -> bool {
        match (before, self) {
            (Self::Set(before), Self::Set(now)) => !before.subtract(now).is_empty(),
            (Self::Domains { logged: before, .. }, Self::Domains { logged: now, .. }) => before
                .iter()
                .any(|old| last_of(now, old.domain, old.server) < Some(old.sequence)),
            _ => false,
        }
    }

    /// Returns the number of its transactions that a new primary has not, and their ids; `None` where they cannot be determined.
    #[must_use]
    pub fn errant(&self, new: &Self) -> Option<(u64, String)> {
        match (self, new) {
            (Self::Set(old), Self::Set(new)) => {
                let more = old.subtract(new);
                Some((more.count(), more.to_string()))
            }
            (Self::Domains { logged: old, .. }, Self::Domains { logged, applied }) => {
                Some(errant_of_domains(old, logged, applied))
            }
            _ => None,
        }
    }

    /// Returns at least how many transactions it has that another server does not have; `None` where they cannot be determined. The exact
    /// number, if positions are sets; otherwise those of one origin count once, since their numbers continue those of others.
    #[must_use]
    pub fn errant_at_least(&self, other: &Self) -> Option<u64> {
        match (self, other) {
            (Self::Domains { logged: own, .. }, Self::Domains { logged, applied }) => {
                let has = |last: &DomainCommit| {
                    [logged, applied].iter().any(|known| {
                        last_of(known, last.domain, last.server) >= Some(last.sequence)
                    })
                };
                Some(own.iter().filter(|last| !has(last)).count() as u64)
            }
            _ => self.errant(other).map(|(count, _)| count),
        }
    }

    /// Returns the position up to which it has written, itself or as a replica that logs; `None` if that is not known.
    #[must_use]
    pub fn written(&self, facts: &ServerFacts) -> Option<Position> {
        match self {
            Self::Set(set) => Some(Position::Set(set.clone())),
            Self::Domains { logged, .. } if LogSettings::of(facts).on => {
                Some(Position::Domains(logged.clone()))
            }
            Self::Domains { .. } | Self::Unknown(_) => None,
        }
    }

    /// Returns the position up to which it has applied; `None` if that is not known.
    #[must_use]
    pub fn applied(self) -> Option<Position> {
        match self {
            Self::Set(set) => Some(Position::Set(set)),
            Self::Domains { applied, .. } => Some(Position::Domains(applied)),
            Self::Unknown(_) => None,
        }
    }
}

/// Returns the last number of a server in a domain.
pub(crate) fn last_of(known: &[DomainCommit], domain: u32, server: u32) -> Option<u64> {
    let same = known
        .iter()
        .filter(|one| (one.domain, one.server) == (domain, server));
    same.map(|one| one.sequence).max()
}

/// A server reports only its last number of each domain and origin; the transactions between the two
/// last numbers exist on only one server.
fn errant_of_domains(
    old: &[DomainCommit],
    logged: &[DomainCommit],
    applied: &[DomainCommit],
) -> (u64, String) {
    let (mut count, mut text) = (0u64, String::new());
    for last in old {
        let known = [logged, applied].map(|known| last_of(known, last.domain, last.server));
        let has = known.into_iter().flatten().max().unwrap_or(0);
        if last.sequence <= has {
            continue;
        }
        count = count.saturating_add(last.sequence - has);
        let first = DomainCommit {
            sequence: has + 1,
            ..*last
        };
        let separator = if text.is_empty() { "" } else { "," };
        let _ = if first == *last {
            write!(text, "{separator}{last}")
        } else {
            write!(text, "{separator}{first}…{last}")
        };
    }
    (count, text)
}

/// Reads which transactions the server has executed.
///
/// # Errors
/// When the connection breaks.
pub fn executed(facts: &ServerFacts, session: &mut Session) -> Result<Executed, ServerError> {
    let operation = "cannot read which transactions the server has executed";
    let has = |name: &str| facts.variables.contains_key(name);
    // Read one by one: SHOW VARIABLES truncates long values.
    if has("gtid_executed") {
        let text = session
            .value(operation, "SELECT @@GLOBAL.gtid_executed")?
            .unwrap_or_default();
        return Ok(GtidSet::parse(&text)
            .map_or_else(|error| Executed::Unknown(error.to_string()), Executed::Set));
    }
    if has("gtid_binlog_state") {
        let applied = session
            .value(operation, "SELECT @@GLOBAL.gtid_slave_pos")?
            .unwrap_or_default();
        // Afterwards: what was applied is in it, unless it left nothing to log.
        let logged = session
            .value(operation, "SELECT @@GLOBAL.gtid_binlog_state")?
            .unwrap_or_default();
        return Ok(match (domain_commits(&logged), domain_commits(&applied)) {
            (Ok(logged), Ok(applied)) => Executed::Domains { logged, applied },
            (Err(error), _) | (_, Err(error)) => Executed::Unknown(error.to_string()),
        });
    }
    Ok(Executed::Unknown("the server has no GTIDs".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errant_rest_is_computed_in_both_dialects() {
        let set = |text: &str| Executed::Set(GtidSet::parse(text).unwrap());
        let uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
        let rest = set(&format!("{uuid}:1-10")).errant(&set(&format!(
            "{uuid}:1-7,4e11fa47-71ca-11e1-9e33-c80aa9429562:1"
        )));
        assert_eq!(rest, Some((3, format!("{uuid}:8-10"))));
        let domains = |logged: &str, applied: &str| Executed::Domains {
            logged: domain_commits(logged).unwrap(),
            applied: domain_commits(applied).unwrap(),
        };
        let rest = domains("0-1-10", "").errant(&domains("0-1-7,0-2-8", "0-1-7"));
        assert_eq!(rest, Some((3, "0-1-8…0-1-10".to_owned())));
        assert_eq!(
            domains("0-1-8", "").errant(&domains("0-1-7", "")),
            Some((1, "0-1-8".to_owned()))
        );
        assert_eq!(
            domains("0-1-7", "").errant(&domains("", "0-1-7")),
            Some((0, String::new()))
        );
        assert_eq!(
            Executed::Unknown(String::new()).errant(&domains("", "")),
            None
        );
    }
}
