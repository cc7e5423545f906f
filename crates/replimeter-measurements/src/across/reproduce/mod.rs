//! The published experiments and their repetition: tables, and findings that agree in shape.
//!
//! Published figures are facts from the five sources; `docs/reference/reproduce.md` names them.

pub mod charts;
mod gate;
mod histogram;
mod overhead;
mod replicas;
mod report;
mod stale;
mod sweep;

use std::{collections::BTreeSet, fmt::Write as _};

use replimeter_model::{
    estimate::Estimate,
    reproduce::{Claim, ReproduceDocument, Table, Verdict},
};
use replimeter_render::format::or_dash;

pub use self::report::claims_of;
pub use self::{
    gate::{GatedRun, gate},
    histogram::{histogram, histogram_published},
    overhead::{link_for_published, overhead, overhead_published},
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

/// Returns a published finding; `why` explains a possible disagreement and is kept unless the finding agrees.
fn claim(claim: &str, published: &str, ours: String, verdict: Verdict, why: &str) -> Claim {
    Claim {
        published: Some(published.to_owned()),
        ..question(claim, ours, verdict, why)
    }
}

/// Returns the answer to a question that the publication does not ask.
fn question(claim: &str, ours: String, verdict: Verdict, why: &str) -> Claim {
    let why = if verdict == Verdict::Agrees {
        String::new()
    } else {
        why.to_owned()
    };
    Claim {
        claim: claim.to_owned(),
        product: None,
        published: None,
        ours,
        verdict,
        why,
    }
}

/// Returns whether a figure lies in a range: agrees if its whole interval does, differs if none of it does,
/// else open. A figure without an interval decides nothing.
fn within(estimate: Estimate, least: f64, most: f64) -> Verdict {
    match estimate.ends() {
        Some([low, high]) if low >= least && high <= most => Verdict::Agrees,
        Some([low, high]) if high < least || low > most => Verdict::Differs,
        _ => Verdict::Open,
    }
}

/// A measured figure in words, and its verdict.
struct Judged {
    text: String,
    verdict: Verdict,
}

/// A measured figure in a run that changes the supposed cause of a difference.
struct Changed {
    judged: Judged,
    /// Whether the change was chosen from the published figures.
    chosen: bool,
}

/// Returns the words and the verdict of a finding with those of a run that changes the supposed cause. It explains a difference if it
/// agrees; an open finding stays open.
fn with_changed(own: Judged, changed: Option<Changed>) -> (String, Verdict) {
    let Some(Changed { judged, chosen }) = changed else {
        return (own.text, own.verdict);
    };
    let agrees = judged.verdict == Verdict::Agrees;
    let verdict = match own.verdict {
        Verdict::Differs if agrees && chosen => Verdict::Consistent,
        Verdict::Differs if agrees => Verdict::Explained,
        verdict => verdict,
    };
    let there = if agrees && verdict == Verdict::Open {
        ", which agrees there"
    } else {
        ""
    };
    (format!("{}; {}{there}", own.text, judged.text), verdict)
}

/// Returns `of` less `from`, two independent figures, with an interval from theirs: the distances of both ends are
/// combined as the variances of a difference are (Zou & Donner 2008).
fn difference(of: Estimate, from: Estimate) -> Estimate {
    let Some(value) = of.value.zip(from.value).map(|(of, from)| of - from) else {
        return Estimate::default();
    };
    let distance = |estimate: Estimate| {
        let (value, [low, high]) = estimate.value.zip(estimate.ends())?;
        Some([value - low, high - value])
    };
    let ends = distance(of).zip(distance(from));
    let ends = ends.map(|([below, above], [from_below, from_above])| {
        [
            value - below.hypot(from_above),
            value + above.hypot(from_below),
        ]
    });
    Estimate::with_ends(Some(value), ends)
}

/// Returns the ratio of two independent positive figures, in the same way on their logarithms.
fn ratio(of: Estimate, to: Estimate) -> Estimate {
    let logarithm = |estimate: Estimate| {
        let value = estimate.value.filter(|value| *value > 0.0);
        let ends = estimate.ends().filter(|[low, _]| *low > 0.0);
        Estimate::with_ends(value.map(f64::ln), ends.map(|ends| ends.map(f64::ln)))
    };
    let of_logarithms = difference(logarithm(of), logarithm(to));
    Estimate::with_ends(
        of_logarithms.value.map(f64::exp),
        of_logarithms.ends().map(|ends| ends.map(f64::exp)),
    )
}

/// Formats a figure with its interval; a dash without a figure.
fn shown(estimate: Estimate, format: impl Fn(f64) -> String) -> String {
    or_dash(estimate.value, |value| match estimate.ends() {
        Some(ends) => {
            let [low, high] = ends.map(&format);
            format!("{} [{low}, {high}]", format(value))
        }
        None => format!("{}, without an interval", format(value)),
    })
}

/// Returns the counts of all verdicts in one sentence.
#[must_use]
pub fn answer(document: &ReproduceDocument) -> String {
    let experiments = document.experiments.iter();
    let published = experiments.flat_map(|experiment| {
        let published = experiment.claims.iter();
        published.filter(|claim| claim.published.is_some())
    });
    let claims: Vec<&Claim> = published.collect();
    let of = |verdict| {
        claims
            .iter()
            .filter(|claim| claim.verdict == verdict)
            .count()
    };
    // A finding on several products is one.
    let distinct: BTreeSet<&str> = claims.iter().map(|claim| claim.claim.as_str()).collect();
    let failed = document
        .experiments
        .iter()
        .filter(|experiment| experiment.error.is_some())
        .count();
    let several = claims.len() - distinct.len();
    let several = match several {
        0 => String::new(),
        several => format!(
            " ({} verdicts, {several} of them on a second product)",
            claims.len()
        ),
    };
    let mut text = format!(
        "Of {} published findings{several}: same shape here {}, different for a cause that is shown {}, different {}, undecided {}.",
        distinct.len(),
        of(Verdict::Agrees),
        of(Verdict::Explained),
        of(Verdict::Differs) + of(Verdict::Consistent),
        of(Verdict::Open)
    );
    for (verdict, words) in [
        (
            Verdict::Consistent,
            "of those that differ agree with settings from the published figures",
        ),
        (Verdict::NotJudged, "without an interval is not judged"),
    ] {
        if of(verdict) > 0 {
            let _ = write!(text, " {} {words}.", of(verdict));
        }
    }
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

    pub(super) fn estimate(value: f64, half: f64) -> Estimate {
        Estimate {
            value: Some(value),
            ci95: [value - half, value + half].into(),
        }
    }

    #[test]
    fn interval_across_the_range_end_is_open() {
        let judge = |value, half| within(estimate(value, half), 2.0, 4.0);
        assert_eq!(judge(3.1, 0.7), Verdict::Agrees);
        assert_eq!(judge(4.5, 0.6), Verdict::Open);
        assert_eq!(judge(1.2, 0.3), Verdict::Differs);
        assert_eq!(within(Estimate::of(3.0), 2.0, 4.0), Verdict::Open);
        assert_eq!(within(Estimate::default(), 2.0, 4.0), Verdict::Open);
    }

    #[test]
    fn only_a_difference_is_explained() {
        let judged = |verdict| Judged {
            text: "here".to_owned(),
            verdict,
        };
        let with = |changed, chosen| {
            [Verdict::Agrees, Verdict::Differs, Verdict::Open].map(|verdict| {
                let judged_there = judged(changed);
                let changed = Changed {
                    judged: judged_there,
                    chosen,
                };
                with_changed(judged(verdict), Some(changed)).1
            })
        };
        let [agrees, differs, open] = [Verdict::Agrees, Verdict::Differs, Verdict::Open];
        assert_eq!(with(agrees, false), [agrees, Verdict::Explained, open]);
        assert_eq!(with(agrees, true), [agrees, Verdict::Consistent, open]);
        for changed in [differs, open] {
            assert_eq!(with(changed, false), [agrees, differs, open]);
        }
        let there = Changed {
            judged: judged(agrees),
            chosen: false,
        };
        assert_eq!(
            with_changed(judged(open), Some(there)).0,
            "here; here, which agrees there"
        );
    }

    #[test]
    fn findings_are_counted_once_and_questions_never() {
        let on = |product: &str, verdict| Claim {
            product: Some(product.to_owned()),
            ..claim("A wait", "3 times", String::new(), verdict, "")
        };
        let claims = vec![
            on("MariaDB", Verdict::Agrees),
            on("MySQL", Verdict::Consistent),
            question("Why?", String::new(), Verdict::Agrees, ""),
            claim("A stall", "46 s", String::new(), Verdict::NotJudged, ""),
        ];
        let experiment = Experiment {
            claims,
            ..Experiment::default()
        };
        let document = ReproduceDocument {
            experiments: vec![experiment],
            ..ReproduceDocument::default()
        };
        assert_eq!(
            answer(&document),
            "Of 2 published findings (3 verdicts, 1 of them on a second product): same shape here 1, different for a cause that is shown 0, \
             different 1, undecided 0. 1 of those that differ agree with settings from the published figures. 1 without an interval is not \
             judged."
        );
    }

    #[test]
    fn combined_interval_has_the_width_of_a_difference() {
        let close = |found: Estimate, value: f64, low: f64, high: f64| {
            let [found_low, found_high] = found.ends().unwrap();
            let pairs = [
                (found.value.unwrap(), value),
                (found_low, low),
                (found_high, high),
            ];
            pairs.iter().all(|(one, other)| (one - other).abs() < 1e-9)
        };
        // 3 and 4 combine to 5.
        assert!(close(
            difference(estimate(30.0, 3.0), estimate(10.0, 4.0)),
            20.0,
            15.0,
            25.0
        ));
        // The inverse ratio has the inverse interval.
        let (one, other) = (estimate(30.0, 3.0), estimate(10.0, 4.0));
        let [low, high] = ratio(other, one).ends().unwrap();
        assert!(close(ratio(one, other), 3.0, 1.0 / high, 1.0 / low));
        let exact = ratio(one, estimate(10.0, 0.0));
        assert!(close(exact, 3.0, 2.7, 3.3));
        assert_eq!(ratio(one, Estimate::of(10.0)).ends(), None);
        assert_eq!(ratio(one, estimate(0.0, 1.0)), Estimate::default());
    }

    pub(super) fn verdicts(claims: &[Claim]) -> Vec<Verdict> {
        claims.iter().map(|claim| claim.verdict).collect()
    }

    pub(crate) fn example() -> ReproduceDocument {
        let (ours, claims) = overhead(&report::example(), None);
        let experiment = Experiment {
            number: 5,
            title: "The price <b>".to_owned(),
            question: "What does waiting cost?".to_owned(),
            published: overhead_published(),
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
