//! Read replicas.

use replimeter_instruments::scale::{
    results::{ScaleDocument, ScaleRow},
    settings::ScalePhase,
};
use replimeter_model::{
    estimate::Estimate,
    reproduce::{Claim, Table, Verdict},
};

use super::{Changed, Judged, claim, fixed, ratio, shown, table, with_changed, within};
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

/// Returns the measured table and the findings, of a run through a web site as it was published. `apart` is one without the
/// site, whose servers are hosts of their own.
#[must_use]
pub fn replicas(site: &ScaleDocument, apart: Option<&ScaleDocument>) -> (Table, Vec<Claim>) {
    let (inserts, selects) = ([INSERTS, INSERTS_OF_NONE], [SELECTS, SELECTS_OF_NONE]);
    let lines = counts(site).into_iter().map(|replicas| {
        let row = |phase| row(site, replicas, phase);
        vec![
            replicas.to_string(),
            cell(row(ScalePhase::Insert), inserts),
            cell(row(ScalePhase::Select), selects),
            cell(row(ScalePhase::Mixed), inserts),
            cell(row(ScalePhase::Mixed), selects),
        ]
    });
    let table = table(&HEADINGS, lines);
    let cores = site.client.cores;
    let here = format!(
        "all servers, the site and its driver share this machine's {cores} cores, to which a replica adds none"
    );
    let percent = |value: f64| format!("{value:.0} %");
    // The figure of a run, formatted, and its verdict.
    let percent_of_none = |document: &ScaleDocument, phase, [least, most]: [f64; 2]| {
        let found = figure(row(document, 1, phase), INSERTS_OF_NONE);
        Judged {
            text: format!("{} of none", shown(found, percent)),
            verdict: within(found, least, most),
        }
    };
    let percent_of_one = |document: &ScaleDocument, phase, pick, [least, most]: [f64; 2]| {
        let [two, one] = [2, 1].map(|replicas| figure(row(document, replicas, phase), pick));
        let found = ratio(two, one);
        let text = shown(found, |ratio| percent(ratio * 100.0));
        Judged {
            text: format!("{text} of one replica's"),
            verdict: within(found, least, most),
        }
    };
    // With the same of the servers apart, and the verdict on the cause: shared cores.
    let judged = |of: &dyn Fn(&ScaleDocument) -> Judged| {
        let on_hosts = apart.map(of);
        let changed = on_hosts.map(|judged| Changed {
            judged: Judged {
                text: format!("without the site, on hosts of their own {}", judged.text),
                ..judged
            },
            chosen: false,
        });
        with_changed(of(site), changed)
    };
    let here_only = |judged| with_changed(judged, None);
    let alone = here_only(percent_of_none(site, ScalePhase::Insert, [24.0, 100.0]));
    let second = here_only(percent_of_one(
        site,
        ScalePhase::Insert,
        INSERTS,
        [0.4, 1.0],
    ));
    let mixed = judged(&|document| percent_of_none(document, ScalePhase::Mixed, [100.0, 350.0]));
    let doubled =
        judged(&|document| percent_of_one(document, ScalePhase::Mixed, SELECTS, [1.5, 3.8]));
    let finding = |text: &str, published: &str, (ours, verdict): (String, Verdict)| {
        claim(text, published, ours, verdict, &here)
    };
    let claims = vec![
        finding(
            "The first replica lowers pure inserts (to 24 to 100 %)",
            "49 % of none",
            alone,
        ),
        finding(
            "The second lowers them further (to 40 to 100 % of one replica's)",
            "80 % of one replica's",
            second,
        ),
        finding(
            "Under selects one replica raises inserts, since the primary no longer answers them (100 to 350 %)",
            "173 % of none",
            mixed,
        ),
        finding(
            "Selects under inserts nearly double from one replica to two (150 to 380 %)",
            "188 % of one replica's",
            doubled,
        ),
    ];
    (table, claims)
}

#[cfg(test)]
mod tests {
    use replimeter_instruments::scale::results::{PercentOfNone, ScaleResults};
    use replimeter_model::reproduce::Verdict;

    use super::*;
    use crate::across::reproduce::tests::verdicts;

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
        let of = |rows| ScaleDocument {
            results: ScaleResults {
                rows,
                ..ScaleResults::default()
            },
            ..ScaleDocument::default()
        };
        let published = of(vec![
            row(0, "insert", Some(1908.23), None, None),
            row(1, "insert", Some(925.07), None, Some(48.5)),
            row(2, "insert", Some(743.93), None, Some(39.0)),
            row(0, "mixed", Some(458.24), Some(68.56), None),
            row(1, "mixed", Some(794.92), Some(69.32), Some(173.5)),
            row(2, "mixed", Some(635.59), Some(130.2), Some(138.7)),
        ]);
        let (ours, claims) = replicas(&published, None);
        assert_eq!(verdicts(&claims), [Verdict::Agrees; 4], "{claims:#?}");
        assert_eq!(
            ours.lines[1],
            ["1", "925 (−52 %)", "–", "795 (+74 %)", "69"]
        );
        assert!(claims.iter().all(|claim| claim.why.is_empty()));
        // On shared cores a replica takes from the primary; on hosts of their own it does not.
        let shared = of(vec![
            row(0, "mixed", Some(740.0), Some(660.0), None),
            row(1, "mixed", Some(670.0), Some(570.0), Some(91.0)),
            row(2, "mixed", Some(580.0), Some(510.0), Some(78.0)),
        ]);
        let (_, claims) = replicas(&shared, Some(&published));
        assert_eq!(
            verdicts(&claims)[2..],
            [Verdict::Explained; 2],
            "{claims:#?}"
        );
        // 1,430 % is not 173 %.
        let far = of(vec![row(1, "mixed", Some(9000.0), None, Some(1430.0))]);
        assert_eq!(verdicts(&replicas(&far, None).1)[2], Verdict::Differs);
        assert!(
            claims[2]
                .ours
                .contains("; without the site, on hosts of their own 174 %"),
            "{claims:#?}"
        );
        let (_, claims) = replicas(&shared, None);
        assert_eq!(verdicts(&claims)[2..], [Verdict::Differs; 2]);
    }
}
