//! Conditions of `--fail-if` and their evaluation.

use replimeter_model::{
    compare::{Basis, CompareRow, Condition, FailWhen, Outcome, Quantity},
    suggest,
};
use replimeter_render::compare::{amount, percent};
use replimeter_run::{cli_error::CliError, figures::FigureSpec};

use super::matching::Pair;

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

/// How conditions are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judging {
    pub(super) basis: Basis,
    pub(super) when: FailWhen,
    /// The joint confidence level of all conditions.
    pub(super) level: f64,
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

    /// Evaluates the condition for one row, of this pair.
    pub(super) fn judge(
        &self,
        row: &CompareRow,
        pair: &Pair,
        judging: Judging,
    ) -> Result<Condition, CliError> {
        let held = self.limit(row.unit)?;
        let (value, limit, ends) = held.against(pair, judging.level);
        let beyond = |number: f64| {
            if self.above {
                number > limit
            } else {
                number < limit
            }
        };
        let of_runs = matches!(held, ConditionLimit::Value(_));
        let outcome = if judging.when == FailWhen::Estimated {
            match value.is_nan() {
                true => Outcome::Inconclusive,
                false if beyond(value) => Outcome::Failed,
                false => Outcome::Passed,
            }
        } else {
            match ends.map(|ends| ends.map(beyond)) {
                // What differs within two runs does not show what other runs would.
                _ if judging.basis == Basis::WithinRuns && !of_runs => Outcome::Inconclusive,
                Some([true, true]) => Outcome::Failed,
                Some([false, false]) => Outcome::Passed,
                Some(_) | None => Outcome::Inconclusive,
            }
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
        let reason = match ends {
            None if row.a.starts == 1 || row.b.starts == 1 => {
                "one start of the servers shows no difference"
            }
            None if value.is_nan() => "the change has no size",
            None => "the figure has no interval",
            Some(_) if judging.basis == Basis::WithinRuns && !of_runs => {
                "how much equal runs differ is not known"
            }
            Some(_) => "the interval contains the limit",
        };
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
            verdict: format!(
                "{figure}{interval}: {}",
                words(outcome, judging.when, reason)
            ),
        })
    }
}

impl ConditionLimit {
    /// Returns the value to compare, the limit, and the interval of the value.
    fn against(self, pair: &Pair, level: f64) -> (f64, f64, Option<[f64; 2]>) {
        let (a, b) = (&pair.a, &pair.b);
        match self {
            Self::Relative(limit) => {
                let ratio = pair.log_ratio();
                let ends = ratio.map(|ratio| ratio.interval(level).map(f64::exp_m1));
                let value = if a.value > 0.0 {
                    b.value / a.value - 1.0
                } else {
                    f64::NAN
                };
                (value, limit, ends)
            }
            Self::Difference(limit) => {
                let ends = pair.difference().map(|apart| apart.interval(level));
                (b.value - a.value, limit, ends)
            }
            Self::Value(limit) => (b.value, limit, b.spread().map(|b| b.interval(level))),
        }
    }
}

/// Returns the outcome in words; `reason` is why it is inconclusive.
fn words(outcome: Outcome, when: FailWhen, reason: &str) -> String {
    match (outcome, when) {
        (Outcome::Failed, FailWhen::Estimated) => "failed, the figure is beyond the limit".into(),
        (Outcome::Passed, FailWhen::Estimated) => "passed, the figure is within the limit".into(),
        (Outcome::Failed, _) => "failed, the whole interval is beyond the limit".into(),
        (Outcome::Passed, _) => "passed, the whole interval is within the limit".into(),
        (Outcome::Inconclusive, FailWhen::Possible) => format!("failed, {reason}"),
        (Outcome::Inconclusive, _) => format!("inconclusive, {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::compare::{Better, Dimension};
    use replimeter_run::figures::JudgedBy;
    use replimeter_stats::compare::{Resampled, RunSpread};

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
    fn verdicts_name_what_decided() {
        for (when, part) in [
            (FailWhen::Proven, "interval is"),
            (FailWhen::Estimated, "figure is"),
            (FailWhen::Possible, "interval is"),
        ] {
            let failed = words(Outcome::Failed, when, "");
            assert!(failed.contains(part) && failed.ends_with("beyond the limit"));
            let passed = words(Outcome::Passed, when, "");
            assert!(passed.contains(part) && passed.ends_with("within the limit"));
        }
        let open = |when| words(Outcome::Inconclusive, when, "why");
        assert_eq!(open(FailWhen::Possible), "failed, why");
        assert_eq!(open(FailWhen::Proven), "inconclusive, why");
    }

    static SPEC: FigureSpec = FigureSpec {
        name: "lag.p99",
        unit: Quantity::Us,
        better: Better::Lower,
        by: JudgedBy::Ratio,
        statistic: None,
        dimensions: &[],
        needs: "",
    };

    fn pair(a: Resampled, b: Resampled, basis: Basis) -> Pair {
        Pair {
            spec: &SPEC,
            of: Vec::new(),
            a,
            b,
            runs: [3, 3],
            basis,
            known: RunSpread::of(&[&[98.0, 99.0, 100.0, 101.0, 102.0]]),
        }
    }

    fn outcome(text: &str, pair: &Pair, when: FailWhen) -> Outcome {
        let judging = Judging {
            basis: pair.basis,
            when,
            level: 0.95,
        };
        let row = row("lag.p99", Quantity::Us);
        let condition = FailIf::parse(text).unwrap();
        condition.judge(&row, pair, judging).unwrap().outcome
    }

    #[test]
    fn condition_needs_the_whole_interval() {
        use Outcome::{Failed, Inconclusive, Passed};
        let a = Resampled::of_interval(100.0, Some([98.0, 102.0]), 9);
        let b = Resampled::of_interval(112.0, Some([109.0, 115.0]), 9);
        let alternating = pair(a.clone(), b.clone(), Basis::AlternatingRuns);
        for (text, by_interval, by_figure) in [
            ("lag.p99 > +5%", Failed, Failed),
            ("lag.p99 > +11%", Inconclusive, Failed),
            ("lag.p99 > +14%", Inconclusive, Passed),
            ("lag.p99 > +40%", Passed, Passed),
            ("lag.p99 < +20us", Failed, Failed),
            ("lag.p99 > 110us", Inconclusive, Failed),
        ] {
            let found = [FailWhen::Proven, FailWhen::Possible, FailWhen::Estimated]
                .map(|when| outcome(text, &alternating, when));
            assert_eq!(found, [by_interval, by_interval, by_figure], "{text}");
        }
        let bare = Resampled::without_resamples(200.0, 1);
        let bare = pair(bare, b.clone(), Basis::AlternatingRuns);
        assert_eq!(
            outcome("lag.p99 > +5%", &bare, FailWhen::Proven),
            Inconclusive
        );
        // Runs one after the other show what differs between them, not between their settings.
        let alone = pair(a.clone(), b.clone(), Basis::WithinRuns);
        for (text, wanted) in [
            ("lag.p99 > +5%", Inconclusive),
            ("lag.p99 > +1us", Inconclusive),
            ("lag.p99 > 50us", Failed),
        ] {
            assert_eq!(outcome(text, &alone, FailWhen::Proven), wanted, "{text}");
        }
        // Equal runs differ by 1.6 µs: 12 are more, by 5.7 to 18.3.
        let known = pair(a, b, Basis::KnownSpread);
        for (text, wanted) in [
            ("lag.p99 > +5us", Failed),
            ("lag.p99 > +10us", Inconclusive),
            ("lag.p99 > +19us", Passed),
        ] {
            assert_eq!(outcome(text, &known, FailWhen::Proven), wanted, "{text}");
        }
    }
}
