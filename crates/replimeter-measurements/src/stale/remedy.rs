//! A remedy of a site, and what it did in the rounds of a case.

use replimeter_engine::dialect::sync_reads::WAITS_FOR_POST;
use replimeter_instruments::{
    front::{results::RequestKind, settings::Remedy},
    resources::ResourceWatch,
    stale::{
        Visitor,
        results::{RemedyCost, StalePhase, StaleRound, StaleRow},
    },
};
use replimeter_model::{resources::ServerUse, time::Nanos};
use replimeter_stats::{series::distribution, signed::SignedHistogram};
use replimeter_web::{
    client::PostingVisitor,
    front::{Fronts, Traffic},
};
use serde::{Deserialize, Serialize};

/// How a visitor of a site is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SiteCase {
    pub(super) remedy: Remedy,
    /// Whether the visitor keeps its connection.
    pub(super) keep_alive: bool,
    /// Whether one visitor's pages come from several servers.
    #[serde(default)]
    pub(super) several: bool,
}

impl SiteCase {
    /// Returns what the visitor's connections are called.
    pub(super) fn connections(self) -> &'static str {
        if self.keep_alive {
            "keep-alive"
        } else {
            "new-connections"
        }
    }

    /// Returns whether a visitor's own post must be on every page, however late it is.
    pub(super) fn promises_own_post(self) -> bool {
        matches!(self.remedy, Remedy::WaitForCommit | Remedy::PrimaryAlways)
    }
}

/// Returns what a remedy does.
pub(super) fn words(remedy: Remedy) -> &'static str {
    match remedy {
        Remedy::None => "replicas in turn",
        Remedy::Sticky => "one replica for each visitor",
        Remedy::WaitForCommit => WAITS_FOR_POST,
        Remedy::PrimaryFor => "the primary for some time after a post",
        Remedy::PrimaryAlways => "the primary",
    }
}

/// What a site did in the counted rounds of one case.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SiteUse {
    rounds: u64,
    pages: u64,
    primary_pages: u64,
    fell_back: u64,
    /// Waits on replicas.
    waits: SignedHistogram,
    uses: Vec<ServerUse>,
}

impl SiteUse {
    /// Adds what it did in another start.
    pub(super) fn add(&mut self, more: Self) {
        self.rounds += more.rounds;
        self.pages += more.pages;
        self.primary_pages += more.primary_pages;
        self.fell_back += more.fell_back;
        self.waits.merge(&more.waits);
        ServerUse::add_all(&mut self.uses, &more.uses);
    }

    /// Returns the cost of the remedy, with the latencies of its row.
    pub(super) fn cost(&self, row: &StaleRow) -> RemedyCost {
        let uses = self.uses.iter();
        RemedyCost {
            shape: row.shape.clone(),
            load: row.load.clone(),
            read_consistency: row.read_consistency.clone(),
            session_reset: row.session_reset.clone(),
            rounds: self.rounds,
            pages: self.pages,
            primary_pages: self.primary_pages,
            primary_percent: (self.pages > 0)
                .then(|| self.primary_pages as f64 / self.pages as f64 * 100.0),
            fell_back: self.fell_back,
            wait: distribution(&self.waits),
            post_latency: row.write_latency.clone(),
            page_latency: row.read_latency.clone(),
            servers: uses.map(|used| used.per_operation(self.rounds)).collect(),
        }
    }
}

/// The counted rounds of a case: those with an immediate reload, so that the waits of the curve are no cost.
pub(super) struct Counted<'a> {
    fronts: &'a Fronts,
    traffic: Traffic,
    rounds: u64,
    span: Option<[Nanos; 2]>,
}

impl<'a> Counted<'a> {
    pub(super) fn new(fronts: &'a Fronts) -> Self {
        // What came before.
        drop(fronts.take_traffic());
        Self {
            fronts,
            traffic: Traffic::default(),
            rounds: 0,
            span: None,
        }
    }

    pub(super) fn add(&mut self, round: &StaleRound) {
        if round.phase != StalePhase::AtOnce {
            return;
        }
        self.rounds += 1;
        let last = round.reads.iter().filter_map(|read| read.fresh_end).max();
        let [_, end] = self.span.get_or_insert([round.send; 2]);
        *end = last.unwrap_or(round.ack);
    }

    /// Takes the requests of the fronts, which keep a limited number.
    pub(super) fn take_traffic(&mut self) {
        self.traffic.append(self.fronts.take_traffic());
    }
}

/// A site, and its visitor in one case.
pub(super) struct SiteInUse<'a> {
    pub(super) watch: &'a ResourceWatch,
    pub(super) visitor: PostingVisitor,
    pub(super) counted: Counted<'a>,
}

impl<'a> SiteInUse<'a> {
    /// Returns the visitor, and what counts its rounds.
    pub(super) fn parts(&mut self) -> (&mut dyn Visitor, &mut Counted<'a>) {
        (&mut self.visitor, &mut self.counted)
    }

    /// Returns what the site did in the counted rounds.
    pub(super) fn take_use(&mut self) -> SiteUse {
        // Nothing is known after the last reading.
        let _ = self.watch.read();
        let counted = &mut self.counted;
        counted.take_traffic();
        let Some([began, end]) = counted.span else {
            return SiteUse::default();
        };
        let mut used = SiteUse {
            rounds: counted.rounds,
            uses: self.watch.over(began, end),
            ..SiteUse::default()
        };
        let pages = counted.traffic.answered.iter();
        let pages = pages.filter(|one| one.kind == RequestKind::Page);
        for page in pages.filter(|page| began <= page.at && page.at <= end) {
            used.pages += 1;
            used.primary_pages += u64::from(page.server == 0);
            used.fell_back += u64::from(page.fell_back);
            if page.wait > Nanos(0) {
                used.waits.record(page.wait);
            }
        }
        used
    }
}
