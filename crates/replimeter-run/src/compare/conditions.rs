//! Conditions of `--fail-if` and their evaluation.

use replimeter_model::{
    compare::{CompareRow, Condition, FailWhen, Outcome, Quantity},
    suggest,
};
use replimeter_render::compare::{amount, percent};
use replimeter_stats::compare::{Resampled, beyond_lateness, difference, log_ratio};

use super::figures::FigureSpec;
use crate::cli_error::CliError;

/// The limit, and the value compared with it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ConditionLimit {
    /// B over A, less 1.
    Relative(f64),
    /// B less A.
    Difference(f64),
    /// B itself.
    Value(f64),
}

/// A condition as given: `lag.p99 of replica1 > +10%`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FailIf {
    text: String,
    figure: String,
    /// Only figures with this word in their label.
    of: Option<String>,
    /// Whether values above the limit fail, or values below it.
    above: bool,
    number: f64,
    signed: bool,
    unit: String,
}

fn syntax(text: &str, reason: &str) -> CliError {
    CliError::usage(
        format!("cannot read the condition `{text}`: {reason}"),
        "write FIGURE > LIMIT or FIGURE < LIMIT, such as 'lag.p99 > +10%', 'lag.p50 > +200us', 'cost.throughput < -5%' or 'lag.p99 of replica1 > 5ms'",
    )
}

impl FailIf {
    /// Parses a condition.
    pub(super) fn parse(text: &str) -> Result<Self, CliError> {
        let at = text
            .find(['<', '>'])
            .ok_or_else(|| syntax(text, "it has neither > nor <"))?;
        let (name, rest) = text.split_at(at);
        let above = rest.starts_with('>');
        let limit = rest[1..].trim();
        if limit.starts_with('=') {
            return Err(syntax(text, "only > and < are known"));
        }
        let (figure, of) = match name.split_once(" of ") {
            Some((figure, of)) => (figure.trim(), Some(of.trim().to_owned())),
            None => (name.trim(), None),
        };
        if figure.is_empty() {
            return Err(syntax(text, "it names no figure"));
        }
        let digits = limit.trim_start_matches(['+', '-']);
        let end = digits
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(digits.len());
        let (number, unit) = digits.split_at(end);
        let signed = limit.starts_with(['+', '-']);
        let number: f64 = number
            .parse()
            .map_err(|_| syntax(text, &format!("`{limit}` is not a limit")))?;
        let number = if limit.starts_with('-') {
            -number
        } else {
            number
        };
        let unit = unit.trim();
        if signed && unit == "%" && number <= -100.0 {
            return Err(syntax(text, "a decrease of 100 % or more is impossible"));
        }
        Ok(Self {
            text: text.to_owned(),
            figure: figure.to_owned(),
            of,
            above,
            number,
            signed,
            unit: unit.to_owned(),
        })
    }

    /// Returns the limit for figures of this unit.
    fn limit(&self, unit: Quantity) -> Result<ConditionLimit, CliError> {
        let wrong = |known: &str| {
            let given = if self.unit.is_empty() {
                "a limit without a unit".to_owned()
            } else {
                format!("the unit `{}`", self.unit)
            };
            syntax(
                &self.text,
                &format!("{given} does not fit {}; use {known}", self.figure),
            )
        };
        let scale = match (unit, self.unit.as_str()) {
            (_, "%") if self.signed => return Ok(ConditionLimit::Relative(self.number / 100.0)),
            (Quantity::Us, "ns") => 1e-3,
            (Quantity::Us, "us" | "µs") => 1.0,
            (Quantity::Us, "ms") => 1e3,
            (Quantity::Us, "s") => 1e6,
            (Quantity::Us, _) => return Err(wrong("+10%, +200us, 5ms or 1s")),
            (Quantity::PerS, "/s") => 1.0,
            (Quantity::PerS, _) => return Err(wrong("-5%, -100/s or 900/s")),
            (Quantity::Percent, "pp") if self.signed => 1.0,
            (Quantity::Percent, "%") => 1.0,
            (Quantity::Percent, _) => {
                return Err(wrong(
                    "+10% (of A's), +1pp (percentage points) or 2% (of all)",
                ));
            }
            (Quantity::Count, "") | (Quantity::Bytes, "" | "B") => 1.0,
            (Quantity::Bytes, "kB") => 1e3,
            (Quantity::Bytes, "MB") => 1e6,
            (Quantity::Count, _) => return Err(wrong("+10%, +5 or 3")),
            (Quantity::Bytes, _) => return Err(wrong("+10%, +5kB or 1MB")),
        };
        Ok(if self.signed {
            ConditionLimit::Difference(self.number * scale)
        } else {
            ConditionLimit::Value(self.number * scale)
        })
    }

    /// Returns the name of its figure.
    pub(super) fn figure(&self) -> &str {
        &self.figure
    }

    /// Checks that its limit has a unit of this figure.
    pub(super) fn check(&self, spec: &FigureSpec) -> Result<(), CliError> {
        self.limit(spec.unit).map(|_| ())
    }

    /// Returns the rows that the condition covers; `absent` is the error if there are none of its figure.
    pub(super) fn rows<'a>(
        &self,
        rows: &'a [CompareRow],
        absent: impl FnOnce() -> CliError,
    ) -> Result<Vec<(usize, &'a CompareRow)>, CliError> {
        let named: Vec<(usize, &CompareRow)> = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.figure == self.figure)
            .collect();
        if named.is_empty() {
            return Err(absent());
        }
        let Some(of) = &self.of else { return Ok(named) };
        let chosen: Vec<_> = named
            .iter()
            .copied()
            .filter(|(_, row)| row.of.iter().any(|one| one.value == *of))
            .collect();
        if chosen.is_empty() {
            let mut known: Vec<&str> = named
                .iter()
                .flat_map(|(_, row)| row.of.iter().map(|one| one.value.as_str()))
                .collect();
            known.sort_unstable();
            known.dedup();
            let meant = suggest::hint(of, known.iter().copied());
            let known = match known.is_empty() {
                true => String::new(),
                false => format!("use one of {}, or ", known.join(", ")),
            };
            return Err(CliError::usage(
                format!(
                    "this comparison has no figure `{}` of `{of}`{meant}",
                    self.figure
                ),
                format!(
                    "{known}leave out `of {of}`: the condition then is for every `{}`",
                    self.figure
                ),
            ));
        }
        Ok(chosen)
    }

    /// Evaluates the condition for one row; `level` is the joint confidence level of all conditions.
    pub(super) fn judge(
        &self,
        row: &CompareRow,
        a: &Resampled,
        b: &Resampled,
        when: FailWhen,
        level: f64,
    ) -> Result<Condition, CliError> {
        let held = self.limit(row.unit)?;
        let (value, limit, ends) = held.against(a, b, level);
        // Negated, so that values above the limit always fail.
        let beyond = |number: f64| {
            if self.above {
                number > limit
            } else {
                number < limit
            }
        };
        let turned = ends.map(
            |[low, high]| {
                if self.above { [low, high] } else { [high, low] }
            },
        );
        let decides = match when {
            FailWhen::Proven => turned.map(|[near, _]| near),
            FailWhen::Estimated => Some(value).filter(|value| !value.is_nan()),
            FailWhen::Possible => turned.map(|[_, far]| far),
        };
        let outcome = match decides.map(beyond) {
            None => Outcome::NotJudged,
            Some(true) => Outcome::Failed,
            Some(false) => Outcome::Passed,
        };
        let shown = |number: f64| match held {
            ConditionLimit::Relative(_) => percent(number * 100.0),
            ConditionLimit::Difference(_) | ConditionLimit::Value(_) => amount(row.unit, number),
        };
        let figure = if value.is_nan() {
            "no ratio, since A is not positive".to_owned()
        } else {
            shown(value)
        };
        let interval = ends.map_or_else(String::new, |[low, high]| {
            format!(" [{}, {}]", shown(low), shown(high))
        });
        let one_start = row.a.starts == 1 || row.b.starts == 1;
        let [low, high] = ends.map_or([None, None], |ends| ends.map(Some));
        let finite = |end: Option<f64>| end.filter(|end| end.is_finite());
        Ok(Condition {
            condition: self.text.clone(),
            label: if row.label.is_empty() {
                row.figure.clone()
            } else {
                format!("{} of {}", row.figure, row.label)
            },
            value: if value.is_finite() { value } else { 0.0 },
            limit,
            ci95: [low, high].map(finite).into(),
            outcome,
            verdict: format!("{figure}{interval}: {}", words(outcome, when, one_start)),
        })
    }
}

impl ConditionLimit {
    /// Returns the value to compare, the limit, and the interval of the value.
    fn against(self, a: &Resampled, b: &Resampled, level: f64) -> (f64, f64, Option<[f64; 2]>) {
        let both = a.spread().zip(b.spread());
        // What the client's lateness explains is not proven to be the servers'.
        let wider = |[low, high]: [f64; 2], logarithms| match beyond_lateness(a, b, logarithms) {
            Some(beyond) => {
                let [other_low, other_high] = beyond.remains.interval(level);
                [low.min(other_low), high.max(other_high)]
            }
            None => [low, high],
        };
        match self {
            Self::Relative(limit) => {
                let ratio = both.and_then(|(a, b)| log_ratio(&a, &b));
                let ends = ratio.map(|ratio| wider(ratio.interval(level), true).map(f64::exp_m1));
                let value = if a.value > 0.0 {
                    b.value / a.value - 1.0
                } else {
                    f64::NAN
                };
                (value, limit, ends)
            }
            Self::Difference(limit) => {
                let ends = both.map(|(a, b)| wider(difference(&a, &b).interval(level), false));
                (b.value - a.value, limit, ends)
            }
            Self::Value(limit) => (b.value, limit, b.spread().map(|b| b.interval(level))),
        }
    }
}

/// Returns the outcome in words: the figure, the whole or a part of its interval is beyond or within the limit.
fn words(outcome: Outcome, when: FailWhen, one_start: bool) -> &'static str {
    match (outcome, when) {
        (Outcome::NotJudged, FailWhen::Proven) if one_start => {
            "inconclusive, one start of the servers shows no difference"
        }
        (Outcome::Failed, FailWhen::Proven) => "failed, the whole interval is beyond the limit",
        (Outcome::Failed, FailWhen::Estimated) => "failed, the figure is beyond the limit",
        (Outcome::Failed, FailWhen::Possible) => {
            "failed, a part of the interval is beyond the limit"
        }
        (Outcome::Passed, FailWhen::Proven) => "passed, a part of the interval is within the limit",
        (Outcome::Passed, FailWhen::Estimated) => "passed, the figure is within the limit",
        (Outcome::Passed, FailWhen::Possible) => "passed, the whole interval is within the limit",
        (Outcome::NotJudged, FailWhen::Possible) => "failed, the figure has no interval",
        (Outcome::NotJudged, FailWhen::Proven) => "inconclusive, the figure has no interval",
        (Outcome::NotJudged, FailWhen::Estimated) => "inconclusive, the change has no size",
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::compare::Dimension;

    use super::*;

    fn row(figure: &str, unit: Quantity) -> CompareRow {
        CompareRow {
            figure: figure.to_owned(),
            unit,
            ..CompareRow::default()
        }
    }

    #[test]
    fn conditions_are_parsed_with_units() {
        let limit = |text: &str, unit| FailIf::parse(text).unwrap().limit(unit);
        assert_eq!(
            limit("lag.p99 > +10%", Quantity::Us).unwrap(),
            ConditionLimit::Relative(0.1)
        );
        assert_eq!(
            limit("lag.p99>5ms", Quantity::Us).unwrap(),
            ConditionLimit::Value(5000.0)
        );
        assert_eq!(
            limit("lag.p99 > -200us", Quantity::Us).unwrap(),
            ConditionLimit::Difference(-200.0)
        );
        assert_eq!(
            limit("cost.throughput < -5%", Quantity::PerS).unwrap(),
            ConditionLimit::Relative(-0.05)
        );
        assert_eq!(
            limit("stale.percent > 2%", Quantity::Percent).unwrap(),
            ConditionLimit::Value(2.0)
        );
        assert_eq!(
            limit("stale.percent > +1pp", Quantity::Percent).unwrap(),
            ConditionLimit::Difference(1.0)
        );
        let of = FailIf::parse("lag.p99 of replica1 > +10%").unwrap();
        assert_eq!(
            (of.figure.as_str(), of.of.as_deref(), of.above),
            ("lag.p99", Some("replica1"), true)
        );
        for (text, unit) in [
            ("lag.p99 > 10%", Quantity::Us),
            ("lag.p99 > 10", Quantity::Us),
            ("x < 5ms", Quantity::PerS),
        ] {
            assert!(limit(text, unit).is_err(), "{text}");
        }
        for text in [
            "",
            "lag.p99",
            "> 10%",
            "lag.p99 >= 10%",
            "lag.p99 > ten",
            "lag.p99 > 1.2.3ms",
            "lag.p99 > +",
            "lag.p50 > -200%",
        ] {
            assert!(FailIf::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_replica_of_a_condition_lists_the_known_ones() {
        let rows = [CompareRow {
            of: vec![Dimension {
                name: "replica".to_owned(),
                value: "replica1".to_owned(),
            }],
            ..row("lag.p99", Quantity::Us)
        }];
        let said = |text: &str| {
            let absent = || CliError::usage("absent", "");
            let failure = FailIf::parse(text).unwrap().rows(&rows, absent);
            let failure = failure.unwrap_err();
            format!("{} / {}", failure.message, failure.hint)
        };
        let of = said("lag.p99 of replica2 > +1%");
        assert!(
            of.contains("(did you mean `replica1`?)") && of.contains("use one of replica1, or"),
            "{of}"
        );
        assert!(said("lag.p50 > +1%").contains("absent"));
    }

    #[test]
    fn verdicts_name_the_part_of_the_interval() {
        for (when, part) in [
            (FailWhen::Proven, "interval is"),
            (FailWhen::Estimated, "figure is"),
            (FailWhen::Possible, "interval is"),
        ] {
            let failed = words(Outcome::Failed, when, false);
            assert!(failed.contains(part) && failed.ends_with("beyond the limit"));
            let passed = words(Outcome::Passed, when, false);
            assert!(passed.contains(part) && passed.ends_with("within the limit"));
        }
        assert!(words(Outcome::NotJudged, FailWhen::Possible, true).starts_with("failed"));
    }

    #[test]
    fn condition_uses_the_right_interval_end() {
        let row = row("lag.p99", Quantity::Us);
        let a = Resampled::of_interval(100.0, Some([98.0, 102.0]), 9);
        let b = Resampled::of_interval(112.0, Some([109.0, 115.0]), 9);
        let outcome = |text: &str, when| {
            FailIf::parse(text)
                .unwrap()
                .judge(&row, &a, &b, when, 0.95)
                .unwrap()
                .outcome
        };
        for (text, proven, estimated, possible) in [
            (
                "lag.p99 > +5%",
                Outcome::Failed,
                Outcome::Failed,
                Outcome::Failed,
            ),
            (
                "lag.p99 > +11%",
                Outcome::Passed,
                Outcome::Failed,
                Outcome::Failed,
            ),
            (
                "lag.p99 > +14%",
                Outcome::Passed,
                Outcome::Passed,
                Outcome::Failed,
            ),
            (
                "lag.p99 > +40%",
                Outcome::Passed,
                Outcome::Passed,
                Outcome::Passed,
            ),
            (
                "lag.p99 < +20us",
                Outcome::Failed,
                Outcome::Failed,
                Outcome::Failed,
            ),
            (
                "lag.p99 > 110us",
                Outcome::Passed,
                Outcome::Failed,
                Outcome::Failed,
            ),
        ] {
            let found = [FailWhen::Proven, FailWhen::Estimated, FailWhen::Possible]
                .map(|when| outcome(text, when));
            assert_eq!(found, [proven, estimated, possible], "{text}");
        }
        let bare = Resampled::without_resamples(200.0, 1);
        let judged = FailIf::parse("lag.p99 > +5%")
            .unwrap()
            .judge(&row, &bare, &b, FailWhen::Proven, 0.95)
            .unwrap();
        assert_eq!(judged.outcome, Outcome::NotJudged);
    }
}
