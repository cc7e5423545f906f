//! Which transactions a server has: one notion for every engine and every measurement.

mod commit_id;
mod executed;
mod gtid_set;
mod written_id;

use std::{collections::BTreeMap, fmt, str::FromStr};

use replimeter_model::{bug::REPORT_BUG, engine::Engine, replication::Mode};

pub use self::{
    commit_id::{CommitId, CommitSource, MAX_TAG_LENGTH, OriginServer, Tag, Uuid},
    executed::{Executed, executed},
    gtid_set::{DomainCommit, GtidError, GtidSet, Interval, domain_commits},
    written_id::WrittenId,
};
pub(crate) use self::{executed::last_of, gtid_set::joined};
use crate::{ServerError, Session, dialect::Channel, facts::ServerFacts};

/// The transactions that a server has written, received or applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// MariaDB: the last one of each domain. Numbers of a domain continue across its servers, and have no gaps unless a client sets them.
    Domains(Vec<DomainCommit>),
    /// MySQL: the set of all of them.
    Set(GtidSet),
}

/// The numbers of one source that a position has.
pub enum Numbers<'a> {
    /// Those up to this one.
    UpTo(u64),
    /// Those in these intervals.
    In(&'a [Interval]),
}

impl Numbers<'_> {
    /// Returns whether this number is one of them.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        match self {
            Self::UpTo(last) => number <= *last,
            Self::In(intervals) => intervals
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&number)),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Domains(last) => {
                let last: Vec<_> = last.iter().map(ToString::to_string).collect();
                f.write_str(&last.join(","))
            }
            Self::Set(set) => set.fmt(f),
        }
    }
}

/// Positions of servers of two engines, which number transactions differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnginesDiffer;

impl EnginesDiffer {
    /// Returns the error of the replica that was compared.
    #[must_use]
    pub fn on(self, replica: &Session) -> ServerError {
        replica.precondition(
            "cannot be compared with its primary",
            "they run different engines, whose positions cannot be compared",
            "measure by polling (`replimeter lag --method poll`), or measure a replica that runs the engine of its primary",
        )
    }
}

impl FromStr for Position {
    type Err = GtidError;

    /// A set has UUIDs, followed by colons.
    fn from_str(text: &str) -> Result<Self, GtidError> {
        if text.contains(':') {
            GtidSet::parse(text).map(Self::Set)
        } else {
            domain_commits(text).map(Self::Domains)
        }
    }
}

const OPERATION: &str = "cannot read the server's GTID position";

/// What commit ids are called in texts.
pub const ID: &str = "GTID";
/// The part of a hint that makes servers assign ids to commits.
pub const ENABLE_IDS: &str = "turn on GTIDs and binary logs";

/// Checks that the server's transactions can be counted by their ids.
///
/// # Errors
/// When it assigns none, of this operation.
pub fn check_counted(
    session: &Session,
    facts: &ServerFacts,
    operation: &str,
) -> Result<(), ServerError> {
    let mode = facts.get("gtid_mode");
    if facts.variables.contains_key("gtid_binlog_pos") || mode == "ON" {
        return Ok(());
    }
    Err(session.precondition(
        operation,
        format!("transactions are counted by GTID, but gtid_mode is {mode}"),
        "enable GTIDs: gtid_mode=ON, enforce_gtid_consistency=ON",
    ))
}

impl Position {
    /// Reads the position of the server that is written to.
    ///
    /// # Errors
    /// When the server refuses, or the connection breaks.
    pub fn written(engine: Engine, session: &mut Session) -> Result<Self, ServerError> {
        Self::read(engine, session, "SELECT @@GLOBAL.gtid_binlog_pos")
    }

    /// Reads the position of a replica.
    ///
    /// # Errors
    /// When the server refuses, or the connection breaks.
    pub fn applied(engine: Engine, session: &mut Session) -> Result<Self, ServerError> {
        Self::read(engine, session, "SELECT @@GLOBAL.gtid_slave_pos")
    }

    /// Reads the position of the server that is written to in a replication mode.
    ///
    /// # Errors
    /// When the server refuses, or the connection breaks.
    pub fn written_in(
        mode: Mode,
        engine: Engine,
        session: &mut Session,
    ) -> Result<Self, ServerError> {
        match mode {
            Mode::Galera => Self::of_member(session),
            _ => Self::written(engine, session),
        }
    }

    /// Reads the position of another server in a replication mode.
    ///
    /// # Errors
    /// When the server refuses, or the connection breaks.
    pub fn applied_in(
        mode: Mode,
        engine: Engine,
        session: &mut Session,
    ) -> Result<Self, ServerError> {
        match mode {
            Mode::Galera => Self::of_member(session),
            _ => Self::applied(engine, session),
        }
    }

    /// Reads the position of a member of a synchronous cluster that numbers its transactions itself: those that it has committed.
    fn of_member(session: &mut Session) -> Result<Self, ServerError> {
        let counters =
            session.pairs(OPERATION, "SHOW GLOBAL STATUS LIKE 'wsrep_last_committed'")?;
        let last = counters.values().next().and_then(|last| last.parse().ok());
        let sequence = last.ok_or_else(|| {
            session.precondition(
                OPERATION,
                "it is not a member of a Galera cluster",
                "see the server's error log",
            )
        })?;
        Ok(Self::Domains(vec![DomainCommit {
            domain: 0,
            server: 0,
            sequence,
        }]))
    }

    /// Returns what the channels of a server have received.
    ///
    /// # Errors
    /// When the server shows no position.
    pub fn received(engine: Engine, channels: &[Channel]) -> Result<Self, GtidError> {
        let texts = |name| {
            let texts = channels.iter().filter_map(|channel| channel.raw.get(name));
            let texts = texts.filter(|text| !text.is_empty()).map(String::as_str);
            texts.collect::<Vec<_>>().join(",")
        };
        match engine {
            Engine::MariaDb => domain_commits(&texts("Gtid_IO_Pos")).map(Self::Domains),
            Engine::MySql => GtidSet::parse(&texts("Retrieved_Gtid_Set")).map(Self::Set),
        }
    }

    /// Returns whether what a replica's channels have received leaves out what it received before its log of it was emptied, so that what
    /// it has executed belongs to it, too.
    #[must_use]
    pub fn forgets_received(engine: Engine) -> bool {
        engine == Engine::MySql
    }

    /// Returns the transactions of both.
    #[must_use]
    pub fn joined(mut self, other: &Self) -> Self {
        match (&mut self, other) {
            (Self::Domains(own), Self::Domains(other)) => own.extend_from_slice(other),
            (Self::Set(own), Self::Set(other)) => own.add(other),
            _ => {}
        }
        self
    }

    fn read(engine: Engine, session: &mut Session, of_mariadb: &str) -> Result<Self, ServerError> {
        let sql = match engine {
            Engine::MariaDb => of_mariadb,
            Engine::MySql => "SELECT @@GLOBAL.gtid_executed",
        };
        let text = session.value(OPERATION, sql)?.unwrap_or_default();
        let position = match engine {
            Engine::MariaDb => domain_commits(&text).map(Self::Domains),
            Engine::MySql => GtidSet::parse(&text).map(Self::Set),
        };
        position.map_err(|error| session.precondition(OPERATION, error.to_string(), REPORT_BUG))
    }

    /// Returns the numbers of this source that it has.
    #[must_use]
    pub fn numbers(&self, source: &CommitSource) -> Numbers<'_> {
        match (self, source) {
            (Self::Domains(last), CommitSource::Domain(domain, _)) => {
                let same = last.iter().filter(|gtid| gtid.domain == *domain);
                Numbers::UpTo(same.map(|gtid| gtid.sequence).max().unwrap_or(0))
            }
            (Self::Set(set), CommitSource::Uuid(uuid, tag)) => {
                Numbers::In(set.intervals(&uuid.to_string(), tag.as_str()))
            }
            _ => Numbers::In(&[]),
        }
    }

    /// Returns whether it has all transactions of another position of its engine.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Domains(own), Self::Domains(other)) => {
                let own = last_of_domains(own);
                other.iter().all(|wanted| {
                    own.get(&wanted.domain)
                        .is_some_and(|last| *last >= wanted.sequence)
                })
            }
            (Self::Set(own), Self::Set(other)) => other.subtract(own).is_empty(),
            _ => false,
        }
    }

    /// Returns the number of its transactions; larger is more, among replicas of one primary.
    #[must_use]
    pub fn total(&self) -> u64 {
        match self {
            Self::Domains(last) => last
                .iter()
                .fold(0, |sum, gtid| sum.saturating_add(gtid.sequence)),
            Self::Set(set) => set.count(),
        }
    }

    /// Returns the number of transactions from the origins in `written`.
    ///
    /// # Errors
    /// When the positions are of two engines.
    pub fn count(&self, written: &Self) -> Result<u64, EnginesDiffer> {
        match (self, written) {
            (Self::Set(own), Self::Set(written)) => {
                let uuids = written.uuids();
                Ok(own.of(|uuid| uuids.contains(uuid)).count())
            }
            (Self::Domains(own), Self::Domains(written)) => {
                let written = last_of_domains(written);
                let own = last_of_domains(own).into_iter();
                let own = own.filter(|(domain, _)| written.contains_key(domain));
                Ok(own.map(|(_, sequence)| sequence).sum())
            }
            _ => Err(EnginesDiffer),
        }
    }

    /// Returns the number of transactions of `written` that are missing.
    ///
    /// # Errors
    /// When the positions are of two engines.
    pub fn behind(&self, written: &Self) -> Result<u64, EnginesDiffer> {
        match (self, written) {
            (Self::Set(own), Self::Set(written)) => Ok(written.subtract(own).count()),
            (Self::Domains(own), Self::Domains(written)) => {
                let own = last_of_domains(own);
                let missing = last_of_domains(written).into_iter().map(|(domain, last)| {
                    last.saturating_sub(own.get(&domain).copied().unwrap_or(0))
                });
                Ok(missing.sum())
            }
            _ => Err(EnginesDiffer),
        }
    }
}

fn last_of_domains(gtids: &[DomainCommit]) -> BTreeMap<u32, u64> {
    let mut last = BTreeMap::new();
    for gtid in gtids {
        let known = last.entry(gtid.domain).or_insert(0);
        *known = gtid.sequence.max(*known);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Position {
        text.parse().unwrap()
    }

    #[test]
    fn unwritten_domains_do_not_count() {
        let (written, applied) = (of("0-1-100,2-1-7"), of("0-1-90,2-1-7,5-9-1000"));
        assert_eq!(
            (
                written.count(&written),
                applied.count(&written),
                applied.behind(&written)
            ),
            (Ok(107), Ok(97), Ok(10))
        );
        assert_eq!(of("").behind(&written), Ok(107));
        assert_eq!(
            of("0-1-120,2-1-7").behind(&written),
            Ok(0),
            "read a moment later"
        );
    }

    #[test]
    fn gtid_sets_with_gaps_and_foreign_transactions_compare() {
        let (a, b) = (
            "3e11fa47-71ca-11e1-9e33-c80aa9429562",
            "4e11fa47-71ca-11e1-9e33-c80aa9429562",
        );
        let written = of(&format!("{a}:1-100"));
        let applied = of(&format!("{a}:1-50:60,{b}:1-9"));
        assert_eq!(
            (applied.count(&written), applied.behind(&written)),
            (Ok(51), Ok(49))
        );
        assert!(written.covers(&of(&format!("{a}:7-9"))) && !applied.covers(&written));
    }

    #[test]
    fn positions_of_two_engines_are_not_compared() {
        let (set, domains) = (of("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"), of("0-1-9"));
        for (own, written) in [(&set, &domains), (&domains, &set)] {
            assert_eq!(own.count(written), Err(EnginesDiffer));
            assert_eq!(own.behind(written), Err(EnginesDiffer));
        }
    }

    #[test]
    fn every_domain_must_be_applied() {
        assert!(of("0-1-10,1-1-3").covers(&of("0-1-10")));
        assert!(
            of("0-2-11").covers(&of("0-1-10")),
            "numbers of a domain continue across its servers"
        );
        assert!(!of("0-1-9").covers(&of("0-1-10")) && !of("1-1-10").covers(&of("0-1-10")));
        assert!(of("").covers(&of("")), "nothing was received");
    }
}
