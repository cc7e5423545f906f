//! The site of `stale`.

use replimeter_model::{
    load::LoadSpec,
    plan::{PlanError, contradiction, requires},
    read_consistency::ReadConsistency,
    target::Target,
    time_span::TimeSpan,
};

use super::StaleSettings;
use crate::front::{
    settings::Remedy,
    site::{SitePlan, Through},
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
    /// Rejects settings that a site does not have, or that only a site has.
    pub(super) fn check_site(&self, targets: &[Target]) -> Result<(), PlanError> {
        if self.through != Some(Through::Http) {
            return match self.primary_for {
                Some(_) => requires("primary_for", "through = http"),
                None => Ok(()),
            };
        }
        let off = [ReadConsistency::Off];
        let levels = self.read_consistency.as_ref();
        let direct = [
            ("writer", self.writer.is_some()),
            ("reader", self.reader.is_some()),
            (
                "read-consistency",
                levels.is_some_and(|levels| *levels != off),
            ),
            ("session-reset", self.session_reset.is_some()),
            ("check-load-reads", self.check_load_reads.is_some()),
            ("rows", self.rows.is_some()),
            ("pace", self.pace.is_some()),
        ];
        if let Some((key, _)) = direct.iter().find(|(_, given)| *given) {
            return contradiction(format!(
                "{key} is of reads by statements: leave it out, or through = http"
            ));
        }
        let posts = |load: &&LoadSpec| matches!(load.workload.as_str(), "post-insert" | "select");
        let mut loads = self.cases.iter().flat_map(|case| &case.0);
        if let Some(load) = loads.find(posts) {
            return contradiction(format!(
                "the load {load} has the table of the site's posts: use another workload"
            ));
        }
        if targets.iter().any(|one| matches!(one, Target::Nodes(_))) {
            return contradiction(
                "through = http needs a sandbox; for a site in front of your own servers use replimeter front",
            );
        }
        Ok(())
    }
}
