//! The published experiments and their repetition: tables, and findings that agree in shape.
//!
//! Published figures are facts from the five sources; `docs/reference/reproduce.md` names them.

pub mod charts;
mod histogram;
mod overhead;
mod replicas;
mod report;
mod stale;
mod sweep;

use std::fmt::Write as _;

use replimeter_model::{
    estimate::Estimate,
    reproduce::{Claim, ReproduceDocument, Table, Verdict},
};

pub use self::report::claims_of;
pub use self::{
    histogram::{histogram, histogram_published},
    overhead::{price, price_published},
    replicas::{replicas, replicas_published},
    report::report,
    stale::{stale, stale_published},
    sweep::{sweep, sweep_published},
};

fn table(headings: &[&str], lines: impl IntoIterator<Item = Vec<String>>) -> Table {
    Table {
        headings: headings.iter().map(|&heading| heading.into()).collect(),
        lines: lines.into_iter().collect(),
    }
}

/// Returns a published table.
fn fixed(headings: &[&str], lines: &[&[&str]]) -> Table {
    let line = |line: &&[&str]| line.iter().map(|&cell| cell.into()).collect();
    table(headings, lines.iter().map(line))
}

/// Returns a finding; `why` explains a possible disagreement and is kept unless the finding agrees.
fn claim(claim: &str, published: &str, ours: String, verdict: Verdict, why: &str) -> Claim {
    let why = if verdict == Verdict::Agrees {
        String::new()
    } else {
        why.to_owned()
    };
    Claim {
        claim: claim.to_owned(),
        published: published.to_owned(),
        ours,
        verdict,
        why,
    }
}

/// Agrees above one bound, differs below the other, open between them.
fn judged(
    value: Option<f64>,
    agrees: impl Fn(f64) -> bool,
    differs: impl Fn(f64) -> bool,
) -> Verdict {
    match value {
        Some(value) if agrees(value) => Verdict::Agrees,
        Some(value) if differs(value) => Verdict::Differs,
        _ => Verdict::Open,
    }
}

/// Returns whether a figure lies in a range: agrees if its whole interval does, differs if none of it does,
/// else open.
fn within(estimate: Option<Estimate>, least: f64, most: f64) -> Verdict {
    let Some((value, ends)) =
        estimate.and_then(|estimate| Some((estimate.value?, estimate.ends())))
    else {
        return Verdict::Open;
    };
    let [low, high] = ends.unwrap_or([value, value]);
    match () {
        () if low >= least && high <= most => Verdict::Agrees,
        () if high < least || low > most => Verdict::Differs,
        () => Verdict::Open,
    }
}

/// Returns the counts of all verdicts in one sentence.
#[must_use]
pub fn answer(document: &ReproduceDocument) -> String {
    let claims = || {
        document
            .experiments
            .iter()
            .flat_map(|experiment| &experiment.claims)
    };
    let of = |verdict| claims().filter(|claim| claim.verdict == verdict).count();
    let failed = document
        .experiments
        .iter()
        .filter(|experiment| experiment.error.is_some())
        .count();
    let mut text = format!(
        "Of {} published findings, {} have the same shape here, {} differ, and {} are undecided.",
        claims().count(),
        of(Verdict::Agrees),
        of(Verdict::Differs),
        of(Verdict::Open)
    );
    if failed > 0 {
        let _ = write!(
            text,
            " {failed} of {} experiments failed.",
            document.experiments.len()
        );
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use replimeter_model::reproduce::Experiment;

    use super::*;
    use crate::cost::report;
    use replimeter_render::{markdown, terminal};

    #[test]
    fn interval_across_the_range_end_is_open() {
        let judge = |value, low, high| {
            within(
                Some(Estimate {
                    value: Some(value),
                    ci95: [Some(low), Some(high)].into(),
                }),
                2.0,
                4.0,
            )
        };
        assert_eq!(judge(3.1, 2.4, 3.8), Verdict::Agrees);
        assert_eq!(judge(4.5, 3.9, 5.2), Verdict::Open);
        assert_eq!(judge(1.2, 1.0, 1.5), Verdict::Differs);
        assert_eq!(within(Some(Estimate::of(3.0)), 2.0, 4.0), Verdict::Agrees);
        assert_eq!(within(None, 2.0, 4.0), Verdict::Open);
    }

    pub(super) fn verdicts(claims: &[Claim]) -> Vec<Verdict> {
        claims.iter().map(|claim| claim.verdict).collect()
    }

    pub(crate) fn example() -> ReproduceDocument {
        let (ours, claims) = price(&report::example());
        let experiment = Experiment {
            number: 5,
            title: "The price <b>".to_owned(),
            question: "What does waiting cost?".to_owned(),
            published: price_published(),
            ours,
            claims,
            ..Experiment::default()
        };
        let broken = Experiment {
            number: 4,
            error: Some("galera is missing".to_owned()),
            ..Experiment::default()
        };
        let mut document = ReproduceDocument {
            experiments: vec![broken, experiment],
            size: "small".to_owned(),
            ..ReproduceDocument::default()
        };
        document.headline = answer(&document);
        document
    }

    #[test]
    fn every_format_has_both_tables_and_verdicts() {
        let document = example();
        assert!(
            document.headline.contains("1 of 2 experiments failed"),
            "{}",
            document.headline
        );
        let verdict = document.experiments[1].claims[0].verdict.name();
        let report = super::report(&document);
        for form in [terminal::render(&report), markdown::render(&report)] {
            for wanted in [
                "7451.26 (969.24)",
                verdict,
                "galera is missing",
                "waiting cost",
            ] {
                assert!(form.contains(wanted), "`{wanted}` is missing in {form}");
            }
        }
    }
}
