//! Servers that were out of use behind fronts.

use std::time::{Duration, Instant};

use replimeter_model::warning::{Warning, WarningCode};
use replimeter_web::front::UseChange;

/// All such servers of a site.
#[derive(Default)]
pub(crate) struct Outages(Vec<Outage>);

struct Outage {
    server: String,
    number: u64,
    /// Why it was out of use for the first time.
    reason: String,
    /// The outages that have ended.
    ended: Duration,
    since: Option<Instant>,
}

impl Outages {
    /// Adds a change.
    pub(crate) fn add(&mut self, change: &UseChange) {
        let known = self.0.iter_mut().find(|one| one.server == change.server);
        match (known, &change.reason) {
            (None, None) => {}
            (None, Some(reason)) => self.0.push(Outage {
                server: change.server.clone(),
                number: 1,
                reason: reason.clone(),
                ended: Duration::ZERO,
                since: Some(change.at),
            }),
            (Some(outage), Some(_)) if outage.since.is_none() => {
                outage.number += 1;
                outage.since = Some(change.at);
            }
            // It is out of use for another reason.
            (Some(_), Some(_)) => {}
            (Some(outage), None) => {
                let lasted = outage.since.take().map(|since| change.at - since);
                outage.ended += lasted.unwrap_or_default();
            }
        }
    }

    /// Returns a warning about each server, as of `now`; `hint` completes a hint about the server with a name.
    pub(crate) fn warnings(
        &self,
        now: Instant,
        hint: impl Fn(&str, &str) -> String,
    ) -> impl Iterator<Item = Warning> {
        self.0.iter().map(move |outage| {
            let lasts = outage.since.map(|since| now - since);
            let seconds = (outage.ended + lasts.unwrap_or_default()).as_secs_f64();
            let times = match outage.number {
                1 => String::new(),
                number => format!(" {number} times,"),
            };
            let (code, still) = match lasts {
                Some(_) => (WarningCode::ServerLost, ", until the end"),
                None => (WarningCode::Reconnected, ""),
            };
            Warning::new(
                code,
                format!(
                    "{} was out of use{times} for {seconds:.1} s{still}: {}",
                    outage.server, outage.reason
                ),
                hint(&outage.server, "see the server's error log; in that time requests were answered by the other servers, or refused"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_of_a_server_are_one_warning() {
        let began = Instant::now();
        let mut outages = Outages::default();
        for (server, reason, second) in [
            ("primary", None, 0),
            ("replica1", Some("stopped"), 1),
            ("replica1", Some("gone"), 2),
            ("replica1", None, 3),
            ("replica2", Some("gone"), 4),
            ("replica1", Some("gone"), 5),
            ("replica1", None, 6),
        ] {
            outages.add(&UseChange {
                server: server.to_owned(),
                reason: reason.map(str::to_owned),
                at: began + Duration::from_secs(second),
            });
        }
        let warnings: Vec<(WarningCode, String)> = outages
            .warnings(began + Duration::from_secs(10), |_, hint| hint.to_owned())
            .map(|warning| (warning.code, warning.message))
            .collect();
        assert_eq!(
            warnings,
            [
                (
                    WarningCode::Reconnected,
                    "replica1 was out of use 2 times, for 3.0 s: stopped".to_owned()
                ),
                (
                    WarningCode::ServerLost,
                    "replica2 was out of use for 6.0 s, until the end: gone".to_owned()
                ),
            ]
        );
    }
}
