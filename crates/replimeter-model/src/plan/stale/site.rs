//! The site of `stale`.

use super::{ReadConsistency, StaleSettings, distinct};
use crate::{
    load::LoadSpec,
    plan::{
        PlanError, contradiction,
        front::{self, Remedy},
        site::SitePlan,
    },
    time_span::TimeSpan,
};

/// The site of `stale`, and its visitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleSite {
    /// The site.
    pub site: SitePlan,
    /// Remedies, measured one after another; never empty.
    pub remedies: Vec<Remedy>,
    /// Time after a post for which `primary-for` reads from the primary.
    pub primary_for: TimeSpan,
    /// Whether the visitor keeps its connection; measured one after the other, never empty.
    pub keep_alive: Vec<bool>,
}

impl StaleSettings {
    /// Fills in the settings of the site, and returns it.
    pub(super) fn site(&mut self) -> Result<Option<StaleSite>, PlanError> {
        let more = [
            ("remedy", self.remedy.is_some()),
            ("primary-for", self.primary_for.is_some()),
            ("keep-alive", self.keep_alive.is_some()),
        ];
        let given = (&mut self.fronts, &mut self.front_cost);
        let Some(site) = SitePlan::of(&mut self.through, given, &more)? else {
            return Ok(None);
        };
        let off = [ReadConsistency::Off];
        let direct = [
            ("writer", self.writer.is_some()),
            ("reader", self.reader.is_some()),
            (
                "read-consistency",
                self.read_consistency
                    .as_ref()
                    .is_some_and(|levels| *levels != off),
            ),
            ("session-reset", self.session_reset.is_some()),
            ("check-load-reads", self.check_load_reads.is_some()),
            ("rows", self.rows.is_some()),
            ("pace", self.pace.is_some()),
        ];
        if let Some((key, _)) = direct.iter().find(|(_, given)| *given) {
            return contradiction(&format!(
                "{key} is of reads by statements: leave it out, or through = http"
            ));
        }
        let posts = |load: &LoadSpec| matches!(load.workload.as_str(), "post-insert" | "select");
        let cases = self.cases.iter().flat_map(|case| &case.0);
        if let Some(load) = self.load.iter().chain(cases).find(|load| posts(load)) {
            return Err(PlanError::Contradiction(format!(
                "the load {load} has the table of the site's posts: use another workload"
            )));
        }
        let remedies = self.remedy.get_or_insert_with(|| {
            vec![
                Remedy::None,
                Remedy::Sticky,
                Remedy::WaitForGtid,
                Remedy::PrimaryFor,
                Remedy::PrimaryAlways,
            ]
        });
        let remedies = distinct(remedies, "remedy")?;
        let primary_for = front::primary_for(
            &mut self.primary_for,
            remedies.contains(&Remedy::PrimaryFor),
        )?;
        Ok(Some(StaleSite {
            site,
            remedies,
            primary_for,
            keep_alive: self
                .keep_alive
                .map_or_else(|| vec![true, false], |one| vec![one]),
        }))
    }
}
