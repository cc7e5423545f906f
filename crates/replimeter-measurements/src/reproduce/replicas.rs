//! Read replicas.

use replimeter_model::{
    estimate::Estimate,
    plan::ScalePhase,
    reproduce::{Claim, Table},
    scale::{ScaleDocument, ScaleRow},
};

use super::{claim, fixed, ratio, shown, table, within};
use crate::scale::report::{
    FigureOf, INSERTS, INSERTS_OF_NONE, SELECTS, SELECTS_OF_NONE, counts, row,
};
use replimeter_render::format::{or_dash, per_second};

const HEADINGS: [&str; 5] = [
    "replicas",
    "insert alone /s",
    "select alone /s",
    "insert while selecting /s",
    "select while inserting /s",
];

/// Returns the published table.
#[must_use]
pub fn replicas_published() -> Table {
    fixed(
        &HEADINGS,
        &[
            &["0", "1,908", "609", "458", "69"],
            &["1", "925 (−51 %)", "–", "795 (+73 %)", "69"],
            &["2", "744 (−61 %)", "–", "636 (+39 %)", "130"],
        ],
    )
}

/// Formats a rate, and its difference from that of no replica.
fn cell(row: Option<&ScaleRow>, [per_s, of_none]: [FigureOf; 2]) -> String {
    or_dash(row, |row| {
        let per_s = per_second(per_s(row).0);
        match of_none(row).0.filter(|_| row.replicas > 0) {
            Some(percent) => format!("{per_s} ({:+.0} %)", percent - 100.0).replace('-', "−"),
            None => per_s,
        }
    })
}

/// Returns a figure of a row.
fn figure(row: Option<&ScaleRow>, pick: FigureOf) -> Estimate {
    let (value, ends) = row.map_or((None, None), pick);
    Estimate::with_ends(value, ends)
}

/// Returns the measured table and the findings.
#[must_use]
pub fn replicas(document: &ScaleDocument) -> (Table, Vec<Claim>) {
    let row = |replicas, phase| row(document, replicas, phase);
    let (inserts, selects) = ([INSERTS, INSERTS_OF_NONE], [SELECTS, SELECTS_OF_NONE]);
    let lines = counts(document).into_iter().map(|replicas| {
        vec![
            replicas.to_string(),
            cell(row(replicas, ScalePhase::Insert), inserts),
            cell(row(replicas, ScalePhase::Select), selects),
            cell(row(replicas, ScalePhase::Mixed), inserts),
            cell(row(replicas, ScalePhase::Mixed), selects),
        ]
    });
    let table = table(&HEADINGS, lines);
    let cores = document.client.cores;
    let here = match &document.results.cpus_per_server {
        Some(share) => format!(
            "each server has a share of this machine's {cores} cores ({share}), and all share its disk and memory; the published test had two hosts"
        ),
        None => format!(
            "all servers and the load share this machine's {cores} cores, disk and memory; the published test had two hosts"
        ),
    };
    let of_none = |phase| figure(row(1, phase), INSERTS_OF_NONE);
    let (alone, mixed) = (of_none(ScalePhase::Insert), of_none(ScalePhase::Mixed));
    // Two replicas relative to one.
    let of_one = |phase, pick| {
        let [two, one] = [2, 1].map(|replicas| figure(row(replicas, phase), pick));
        ratio(two, one)
    };
    let second = of_one(ScalePhase::Insert, INSERTS);
    let doubled = of_one(ScalePhase::Mixed, SELECTS);
    let percent = |value: f64| format!("{value:.0} %");
    let percent_of_none = |estimate| format!("{} of none", shown(estimate, percent));
    let percent_of_one = |estimate| {
        let percent = shown(estimate, |ratio| percent(ratio * 100.0));
        format!("{percent} of one replica's")
    };
    let claims = vec![
        claim(
            "The first replica lowers pure inserts",
            "49 % of none",
            percent_of_none(alone),
            within(alone, 0.0, 100.0),
            &here,
        ),
        claim(
            "The second lowers them further",
            "80 % of one replica's",
            percent_of_one(second),
            within(second, 0.0, 1.0),
            &here,
        ),
        claim(
            "Under selects one replica raises inserts, since the primary no longer answers them",
            "173 % of none",
            percent_of_none(mixed),
            within(mixed, 100.0, f64::INFINITY),
            &here,
        ),
        claim(
            "Selects under inserts nearly double from one replica to two (by half at least)",
            "188 % of one replica's",
            percent_of_one(doubled),
            within(doubled, 1.5, f64::INFINITY),
            &here,
        ),
    ];
    (table, claims)
}

#[cfg(test)]
mod tests {
    use replimeter_model::{
        reproduce::Verdict,
        scale::{PercentOfNone, ScaleResults},
    };

    use super::*;
    use crate::reproduce::tests::verdicts;

    #[test]
    fn published_figures_agree_with_themselves() {
        let row = |replicas,
                   phase: &str,
                   inserts: Option<f64>,
                   selects: Option<f64>,
                   percent: Option<f64>| ScaleRow {
            replicas,
            phase: phase.to_owned(),
            inserts_per_s: inserts,
            inserts_per_s_ci95: inserts.map(|per_s| [per_s * 0.95, per_s * 1.05]),
            selects_per_s: selects,
            selects_per_s_ci95: selects.map(|per_s| [per_s * 0.95, per_s * 1.05]),
            percent_of_none: PercentOfNone {
                inserts: percent,
                inserts_ci95: percent.map(|percent| [percent - 5.0, percent + 5.0]),
                ..PercentOfNone::default()
            },
            ..ScaleRow::default()
        };
        let published = ScaleDocument {
            results: ScaleResults {
                rows: vec![
                    row(0, "insert", Some(1908.23), None, None),
                    row(1, "insert", Some(925.07), None, Some(48.5)),
                    row(2, "insert", Some(743.93), None, Some(39.0)),
                    row(0, "mixed", Some(458.24), Some(68.56), None),
                    row(1, "mixed", Some(794.92), Some(69.32), Some(173.5)),
                    row(2, "mixed", Some(635.59), Some(130.2), Some(138.7)),
                ],
                ..ScaleResults::default()
            },
            ..ScaleDocument::default()
        };
        let (ours, claims) = replicas(&published);
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 4], "{claims:#?}");
        assert_eq!(
            ours.lines[1],
            ["1", "925 (−52 %)", "–", "795 (+74 %)", "69"]
        );
        assert!(claims.iter().all(|claim| claim.why.is_empty()));
    }
}
