//! Counts a server's transactions, and those that another server lacks.

use std::collections::BTreeMap;

use replimeter_engine::{
    ServerError, Session,
    dialect::gtid::{DomainGtid, GtidSet, domain_gtids},
};
use replimeter_model::engine::Engine;

/// Transactions that a server has committed or applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// MySQL: the set of all GTIDs.
    Set(GtidSet),
    /// MariaDB: the last sequence number of each domain. Numbers have no gaps unless a client sets
    /// them.
    Domains(BTreeMap<u32, u64>),
}

const OPERATION: &str = "cannot read the server's GTID position";

/// Positions of servers of two engines, which number transactions differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnginesDiffer;

impl EnginesDiffer {
    /// Returns the error of the replica that was compared.
    pub(crate) fn on(self, replica: &Session) -> ServerError {
        replica.precondition(
            "cannot count the transactions that it lacks",
            "it and its primary run different engines, whose GTIDs cannot be compared",
            "measure a replica that runs the engine of its primary",
        )
    }
}

fn domains(gtids: &[DomainGtid]) -> BTreeMap<u32, u64> {
    let mut last = BTreeMap::new();
    for gtid in gtids {
        let known = last.entry(gtid.domain).or_insert(0);
        *known = gtid.sequence.max(*known);
    }
    last
}

impl Position {
    /// Reads the position of the server that is written to.
    pub(crate) fn written(engine: Engine, session: &mut Session) -> Result<Self, ServerError> {
        Self::read(engine, session, "SELECT @@GLOBAL.gtid_binlog_pos")
    }

    /// Reads the position of a replica.
    pub(crate) fn applied(engine: Engine, session: &mut Session) -> Result<Self, ServerError> {
        Self::read(engine, session, "SELECT @@GLOBAL.gtid_slave_pos")
    }

    /// Reads the position of a Galera node: the cluster's transactions that it has committed.
    pub(crate) fn galera(session: &mut Session) -> Result<Self, ServerError> {
        let counters =
            session.pairs(OPERATION, "SHOW GLOBAL STATUS LIKE 'wsrep_last_committed'")?;
        let last = counters.values().next().and_then(|last| last.parse().ok());
        let last = last.ok_or_else(|| {
            session.precondition(
                OPERATION,
                "it is not a member of a Galera cluster",
                "see the server's error log",
            )
        })?;
        Ok(Self::Domains(BTreeMap::from([(0, last)])))
    }

    fn read(engine: Engine, session: &mut Session, of_mariadb: &str) -> Result<Self, ServerError> {
        let sql = match engine {
            Engine::MariaDb => of_mariadb,
            Engine::MySql => "SELECT @@GLOBAL.gtid_executed",
        };
        let text = session.value(OPERATION, sql)?.unwrap_or_default();
        let position = match engine {
            Engine::MariaDb => domain_gtids(&text).map(|gtids| Self::Domains(domains(&gtids))),
            Engine::MySql => GtidSet::parse(&text).map(Self::Set),
        };
        position.map_err(|error| {
            session.precondition(OPERATION, error.to_string(), "report this as a bug")
        })
    }

    /// Returns the number of transactions from the origins in `written`.
    pub(crate) fn count(&self, written: &Self) -> Result<u64, EnginesDiffer> {
        match (self, written) {
            (Self::Set(own), Self::Set(written)) => {
                let uuids = written.uuids();
                Ok(own.of(|uuid| uuids.contains(uuid)).count())
            }
            (Self::Domains(own), Self::Domains(written)) => Ok(own
                .iter()
                .filter(|(domain, _)| written.contains_key(*domain))
                .map(|(_, sequence)| *sequence)
                .sum()),
            _ => Err(EnginesDiffer),
        }
    }

    /// Returns the number of transactions of `written` that are missing.
    pub(crate) fn behind(&self, written: &Self) -> Result<u64, EnginesDiffer> {
        match (self, written) {
            (Self::Set(own), Self::Set(written)) => Ok(written.subtract(own).count()),
            (Self::Domains(own), Self::Domains(written)) => {
                let missing = written.iter().map(|(domain, last)| {
                    last.saturating_sub(own.get(domain).copied().unwrap_or(0))
                });
                Ok(missing.sum())
            }
            _ => Err(EnginesDiffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_domains(text: &str) -> Position {
        Position::Domains(domains(&domain_gtids(text).unwrap()))
    }

    #[test]
    fn unwritten_domains_do_not_count() {
        let (written, applied) = (
            of_domains("0-1-100,2-1-7"),
            of_domains("0-1-90,2-1-7,5-9-1000"),
        );
        assert_eq!(
            (
                written.count(&written),
                applied.count(&written),
                applied.behind(&written)
            ),
            (Ok(107), Ok(97), Ok(10))
        );
        assert_eq!(of_domains("").behind(&written), Ok(107));
        assert_eq!(
            of_domains("0-1-120,2-1-7").behind(&written),
            Ok(0),
            "read a moment later"
        );
    }

    #[test]
    fn gtid_sets_with_gaps_and_foreign_transactions_compare() {
        let set = |text: &str| Position::Set(GtidSet::parse(text).unwrap());
        let (a, b) = (
            "3e11fa47-71ca-11e1-9e33-c80aa9429562",
            "4e11fa47-71ca-11e1-9e33-c80aa9429562",
        );
        let written = set(&format!("{a}:1-100"));
        let applied = set(&format!("{a}:1-50:60,{b}:1-9"));
        assert_eq!(
            (applied.count(&written), applied.behind(&written)),
            (Ok(51), Ok(49))
        );
    }

    #[test]
    fn positions_of_two_engines_are_not_compared() {
        let set =
            Position::Set(GtidSet::parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9").unwrap());
        let domains = of_domains("0-1-9");
        for (own, written) in [(&set, &domains), (&domains, &set)] {
            assert_eq!(own.count(written), Err(EnginesDiffer));
            assert_eq!(own.behind(written), Err(EnginesDiffer));
        }
    }
}
