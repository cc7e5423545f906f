//! The names of figures in conditions: which there are, and why a comparison has no figure of a known name.

use std::collections::BTreeMap;

use replimeter_model::{compare::CompareRow, suggest};
use replimeter_render::figures::count;
use replimeter_run::{
    Registry,
    cli_error::CliError,
    figures::{Figure, FigureSpec},
};

/// The width of the list of figures in the help.
const WIDTH: usize = 78;

/// The figures that the runs of one side have, with the number of samples of the run that has the most.
#[derive(Default)]
pub(super) struct RecordedFigures(BTreeMap<&'static str, u64>);

impl RecordedFigures {
    /// Adds a figure of a run.
    pub(super) fn add(&mut self, figure: &Figure) {
        let samples = self.0.entry(figure.spec.name).or_default();
        *samples = figure.drawn.samples.max(*samples);
    }

    /// Returns the number of samples of a figure's group; 0 without any.
    fn samples(&self, specs: &[&FigureSpec], group: &str) -> u64 {
        let of_group = specs.iter().filter(|spec| spec.group() == group);
        let samples = of_group.filter_map(|spec| self.0.get(spec.name));
        samples.copied().max().unwrap_or(0)
    }
}

/// Returns the specification of a figure of a measurement.
///
/// # Errors
/// No figure has this name: the error names the closest, or the command that has it.
pub(crate) fn find(
    registry: &Registry,
    command: &str,
    name: &str,
) -> Result<&'static FigureSpec, CliError> {
    let specs_of = |command: &str| {
        let entry = registry.get(command);
        entry.map_or_else(Vec::new, |entry| entry.figure_specs())
    };
    let specs = specs_of(command);
    if let Some(spec) = specs.iter().find(|spec| spec.name == name) {
        return Ok(spec);
    }
    let list = format!("its figures: {}", words(&specs).join(" "));
    let has = |specs: &[&FigureSpec]| specs.iter().any(|spec| spec.name == name);
    let mut entries = registry.entries();
    if let Some(other) = entries.find(|entry| has(&entry.figure_specs())) {
        return Err(CliError::usage(
            format!(
                "`{name}` is a figure of `{}`, and these are runs of `{command}`",
                other.name()
            ),
            format!("use a figure of `{command}`; {list}"),
        ));
    }
    // Users often remember only the last words.
    let end = format!(".{name}");
    let names = || specs.iter().map(|spec| spec.name);
    let ends = names().filter(|known| known.ends_with(&end));
    let near = ends.min_by_key(|known| known.len());
    let near = near.or_else(|| suggest::nearest(name, names()));
    let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    Err(CliError::usage(
        format!("`{command}` has no figure `{name}`{meant}"),
        list,
    ))
}

/// Returns the error for a known figure that a comparison does not have.
pub(super) fn absent(
    registry: &Registry,
    command: &str,
    spec: &FigureSpec,
    rows: &[CompareRow],
    recorded: [&RecordedFigures; 2],
) -> CliError {
    let specs = registry
        .get(command)
        .map_or_else(Vec::new, |entry| entry.figure_specs());
    absent_of(&specs, spec, rows, recorded)
}

/// Returns the same, of these figures of the measurement.
fn absent_of(
    specs: &[&FigureSpec],
    spec: &FigureSpec,
    rows: &[CompareRow],
    recorded: [&RecordedFigures; 2],
) -> CliError {
    let (name, group) = (spec.name, spec.group());
    let sides = || ["A", "B"].into_iter().zip(recorded);
    let lacking: Vec<&str> = sides()
        .filter(|(_, of)| !of.0.contains_key(name))
        .map(|(side, _)| side)
        .collect();
    let needed = spec
        .statistic
        .map_or(1, |statistic| statistic.min_samples());
    let few: Vec<(&str, u64)> = sides()
        .map(|(side, of)| (side, of.samples(specs, group)))
        .filter(|(_, samples)| (1..needed).contains(samples))
        .collect();
    // The statistic of the same samples with the most needed ones that both sides have.
    let instead = specs
        .iter()
        .filter(|other| other.group() == group && other.statistic.is_some())
        .filter(|other| rows.iter().any(|row| row.figure == other.name))
        .max_by_key(|other| other.statistic.map(|statistic| statistic.min_samples()))
        .map_or_else(String::new, |other| format!(", or name `{}`", other.name));
    let whose = lacking.join(" and ");
    let were = if lacking.len() > 1 { "were" } else { "was" };
    let (reason, hint) = if let Some(fewest) = few.iter().map(|(_, samples)| *samples).min() {
        let has: Vec<String> = few
            .iter()
            .map(|(side, samples)| format!("{side} has {}", count(*samples)))
            .collect();
        let times = needed.div_ceil(fewest);
        (
            format!("it needs {} samples, and {}", count(needed), has.join(", ")),
            format!(
                "a quantile needs ten samples beyond it: measure {times} times as long{instead}"
            ),
        )
    } else if lacking.is_empty() {
        (
            "A and B have it of nothing in common".to_owned(),
            "compare runs that observed the same replicas by the same methods".to_owned(),
        )
    } else if !spec.needs.is_empty() {
        (
            format!("{whose} {were} measured without {}", spec.needs),
            format!("measure both sides with {}{instead}", spec.needs),
        )
    } else {
        (
            format!("there is no sample of it in {whose}"),
            format!(
                "measure again{instead}; `replimeter compare --help` lists the figures of each command"
            ),
        )
    };
    CliError::usage(
        format!("this comparison has no figure `{name}`: {reason}"),
        hint,
    )
}

/// Returns the names of figures; of one group, the others have their statistic only.
fn words(specs: &[&FigureSpec]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut group = None;
    for spec in specs {
        let same = group == Some(spec.group());
        group = Some(spec.group());
        if let Some(last) = words.last_mut().filter(|_| !same) {
            last.push(',');
        }
        words.push(match spec.name.rsplit_once('.') {
            Some((_, statistic)) if same => format!(".{statistic}"),
            _ => spec.name.to_owned(),
        });
    }
    words
}

/// Returns the figures that a condition can name, by command, as a part of the help.
pub(super) fn list(registry: &Registry) -> String {
    let mut text = String::from("Figures of --fail-if:\n");
    for entry in registry.entries() {
        let mut line = " ".to_owned();
        for word in words(&entry.figure_specs()) {
            if line.len() + 1 + word.len() > WIDTH {
                text.push_str(&(line + "\n"));
                line = "   ".to_owned();
            }
            line.push(' ');
            line.push_str(&word);
        }
        text.push_str(&(line + "\n"));
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use replimeter_model::compare::{Better, Quantity};
    use replimeter_run::figures::{JudgedBy, Statistic};

    use super::*;

    fn spec(name: &'static str, statistic: Statistic, needs: &'static str) -> FigureSpec {
        FigureSpec {
            name,
            unit: Quantity::Us,
            better: Better::Lower,
            by: JudgedBy::Ratio,
            statistic: Some(statistic),
            dimensions: &[],
            needs,
        }
    }

    fn said(spec: &FigureSpec, specs: &[&FigureSpec], a: &[(&'static str, u64)]) -> String {
        let of = |known: &[(&'static str, u64)]| RecordedFigures(known.iter().copied().collect());
        let row = CompareRow {
            figure: "lag.p90".to_owned(),
            ..CompareRow::default()
        };
        let b = of(&[("lag.p90", 5_000), ("lag.p99", 5_000)]);
        let failure = absent_of(specs, spec, &[row], [&of(a), &b]);
        format!("{} / {}", failure.message, failure.hint)
    }

    #[test]
    fn absent_quantile_states_the_needed_samples() {
        let (p90, p99) = (
            spec("lag.p90", Statistic::P90, ""),
            spec("lag.p99", Statistic::P99, ""),
        );
        let text = said(&p99, &[&p90, &p99], &[("lag.p90", 250)]);
        assert_eq!(
            text,
            "this comparison has no figure `lag.p99`: it needs 1,000 samples, and A has 250 / \
             a quantile needs ten samples beyond it: measure 4 times as long, or name `lag.p90`"
        );
    }

    #[test]
    fn absent_figure_states_what_it_needs() {
        let load = spec("lag.load.p99", Statistic::P99, "a background load (--load)");
        let text = said(&load, &[&load], &[("lag.p90", 250)]);
        assert!(
            text.contains("A and B were measured without a background load (--load)"),
            "{text}"
        );
    }
}
