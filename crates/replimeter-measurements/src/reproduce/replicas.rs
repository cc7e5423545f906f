//! Read replicas.

use replimeter_model::{
    plan::ScalePhase,
    reproduce::{Claim, Table, Verdict},
    scale::{ScaleDocument, ScaleRow},
};

use super::{claim, fixed, judged, table};
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

/// Formats the percentage of no replica; a value below 100 % agrees.
fn inserts_of_none(row: Option<&ScaleRow>) -> (String, Verdict) {
    let (value, ends) = row.map_or((None, None), INSERTS_OF_NONE);
    let shown = or_dash(value, |value| match ends {
        Some([low, high]) => format!("{value:.0} % of none [{low:.0}, {high:.0}]"),
        None => format!("{value:.0} % of none, without an interval"),
    });
    let verdict = match ends {
        Some([_, high]) if high < 100.0 => Verdict::Agrees,
        Some([low, _]) if low > 100.0 => Verdict::Differs,
        _ => Verdict::Open,
    };
    (shown, verdict)
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
    let here = format!(
        "all servers and the load share this machine's {} cores, disk and memory; the published test had two hosts (with a fixed share of the cores for each server, \
         --cpus-per-server, selects increase here too)",
        document.client.cores
    );
    // The second replica relative to the first.
    let ratio = |phase, pick: FigureOf| {
        let [one, two] = [1, 2].map(|replicas| row(replicas, phase).and_then(|row| pick(row).0));
        let ratio = two? / one.filter(|one| *one > 0.0)?;
        Some(ratio)
    };
    let of_one = |ratio: f64| format!("{:.0} % of one replica's", ratio * 100.0);
    let second = ratio(ScalePhase::Insert, INSERTS);
    let doubled = ratio(ScalePhase::Mixed, SELECTS);
    let (alone, alone_verdict) = inserts_of_none(row(1, ScalePhase::Insert));
    let (mixed, mixed_verdict) = inserts_of_none(row(1, ScalePhase::Mixed));
    let claims = vec![
        claim(
            "The first replica lowers pure inserts",
            "49 % of none",
            alone,
            alone_verdict,
            &here,
        ),
        claim(
            "The second lowers them further",
            "80 % of one replica's",
            or_dash(second, of_one),
            judged(second, |ratio| ratio < 0.95, |ratio| ratio > 1.05),
            &here,
        ),
        claim(
            "Under selects one replica raises inserts, since the primary no longer answers them",
            "173 % of none",
            mixed,
            match mixed_verdict {
                Verdict::Agrees => Verdict::Differs,
                Verdict::Differs => Verdict::Agrees,
                Verdict::Open => Verdict::Open,
            },
            &here,
        ),
        claim(
            "Selects under inserts nearly double from one replica to two",
            "188 % of one replica's",
            or_dash(doubled, of_one),
            judged(doubled, |ratio| ratio > 1.5, |ratio| ratio < 1.2),
            &here,
        ),
    ];
    (table, claims)
}

#[cfg(test)]
mod tests {
    use replimeter_model::scale::{PercentOfNone, ScaleResults};

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
            selects_per_s: selects,
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
