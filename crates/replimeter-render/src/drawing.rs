//! Histograms and timelines in characters, for outputs without charts.

use std::fmt::Write as _;

use replimeter_model::record::Bin;

use crate::{
    figures::{Unit, count},
    report::Timeline,
};

/// Width of a histogram's longest bar, in characters.
const BAR: f64 = 44.0;
/// Eighths of a character cell.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// Heights of a character.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns a histogram, one line per bar.
pub(crate) fn bars(bins: &[Bin]) -> String {
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(0);
    // The open bars at the ends must not determine the unit.
    let typical = bins
        .iter()
        .max_by_key(|bin| bin.count)
        .map_or(0.0, |bin| bin.to_us);
    let unit = Unit::for_size(typical);
    let ends: Vec<[String; 2]> = bins
        .iter()
        .map(|bin| [bin.from_us, bin.to_us].map(|us| unit.show(us)))
        .collect();
    let [low, high] = [0, 1].map(|end| {
        let widths = ends.iter().map(|ends| ends[end].chars().count());
        widths.max().unwrap_or(0)
    });
    let mut out = String::new();
    for (bin, ends) in bins.iter().zip(&ends) {
        let cells = bin.count as f64 / most.max(1) as f64 * BAR;
        let _ = writeln!(
            out,
            "{:>low$} – {:>high$} {}  {} {}",
            ends[0],
            ends[1],
            unit.symbol(),
            bar(cells, bin.count > 0),
            count(bin.count)
        );
    }
    out
}

/// Returns a bar of this many character cells, in eighths; a non-zero value always has a visible bar.
fn bar(cells: f64, something: bool) -> String {
    let eighths = (cells * 8.0).round() as usize;
    let eighths = if something { eighths.max(1) } else { eighths };
    let mut bar: String = std::iter::repeat_n(EIGHTHS[7], eighths / 8).collect();
    if eighths % 8 > 0 {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

/// Returns timelines, one line each.
pub(crate) fn timelines(timelines: &[Timeline]) -> String {
    let names = timelines.iter().map(|line| line.name.chars().count());
    let width = names.max().unwrap_or(0);
    let mut out = String::new();
    for line in timelines {
        let heights: String = line
            .heights
            .iter()
            .map(|height| height.map_or(' ', |height| HEIGHTS[(height * 7.0).round() as usize]))
            .collect();
        let _ = writeln!(out, "{:<width$}  {heights}  {}", line.name, line.scale);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_never_empty() {
        assert_eq!(bar(2.0, true), "██");
        assert_eq!(bar(1.5, true), "█▌");
        assert_eq!(bar(0.001, true), "▏");
        assert_eq!(bar(0.0, false), "");
    }

    #[test]
    fn histogram_has_a_line_per_bar() {
        let bin = |low_us, high_us, count| Bin {
            from_us: low_us,
            to_us: high_us,
            count,
        };
        let text = bars(&[bin(100.0, 120.0, 8), bin(120.0, 140.0, 0)]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("100 – 120 µs"), "{text}");
    }

    #[test]
    fn timeline_has_a_character_per_value() {
        let line = Timeline {
            name: "median".to_owned(),
            heights: vec![Some(0.0), None, Some(1.0)],
            scale: "1 to 2".to_owned(),
        };
        assert_eq!(timelines(&[line]), "median  ▁ █  1 to 2\n");
    }
}
