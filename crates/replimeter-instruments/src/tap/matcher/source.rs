//! Where transactions come from, and which of them a server has executed.

use std::collections::HashMap;

use replimeter_engine::{
    binlog::{Gtid, OriginServer, Tag, Uuid},
    dialect::gtid::{DomainGtid, Executed, GtidSet, domain_gtids},
};

/// The origin of a transaction: its GTID without the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionSource {
    /// MariaDB: domain and server.
    Domain(u32, u32),
    /// MySQL: UUID and tag.
    Uuid(Uuid, Tag),
}

impl TransactionSource {
    /// Returns the server that wrote the transactions.
    pub(super) fn origin(&self) -> OriginServer {
        match self {
            Self::Domain(_, server) => OriginServer::Id(*server),
            Self::Uuid(uuid, _) => OriginServer::Uuid(*uuid),
        }
    }
}

/// Splits a GTID into source and number.
#[must_use]
pub fn split(gtid: &Gtid) -> (TransactionSource, u64) {
    match gtid {
        Gtid::Domain(gtid) => (
            TransactionSource::Domain(gtid.domain, gtid.server),
            gtid.sequence,
        ),
        Gtid::Numbered { uuid, tag, number } => (TransactionSource::Uuid(*uuid, *tag), *number),
    }
}

/// What a server has executed, such as before its stream began.
#[derive(Debug, Default)]
pub(super) struct ExecutedBaseline {
    set: GtidSet,
    domains: HashMap<(u32, u32), u64>,
}

impl From<Executed> for ExecutedBaseline {
    fn from(executed: Executed) -> Self {
        match executed {
            Executed::Set(set) => Self {
                set,
                ..Self::default()
            },
            Executed::Domains { logged, .. } => Self::of_domains(&logged),
            Executed::Unknown(_) => Self::default(),
        }
    }
}

impl ExecutedBaseline {
    pub(super) fn read(executed: &str) -> Self {
        Self {
            set: GtidSet::parse(executed).unwrap_or_default(),
            ..Self::of_domains(&domain_gtids(executed).unwrap_or_default())
        }
    }

    fn of_domains(last: &[DomainGtid]) -> Self {
        let domains = last
            .iter()
            .map(|gtid| ((gtid.domain, gtid.server), gtid.sequence));
        Self {
            domains: domains.collect(),
            ..Self::default()
        }
    }

    pub(super) fn has(&self, source: &TransactionSource, number: u64) -> bool {
        match source {
            TransactionSource::Domain(domain, server) => self
                .domains
                .get(&(*domain, *server))
                .is_some_and(|last| number <= *last),
            TransactionSource::Uuid(uuid, tag) => {
                let uuid = uuid.to_string();
                let own = self
                    .set
                    .parts()
                    .find(|(part, of, _)| *part == uuid && *of == tag.as_str());
                own.is_some_and(|(_, _, intervals)| {
                    intervals
                        .iter()
                        .any(|(first, last)| (*first..=*last).contains(&number))
                })
            }
        }
    }
}
