//! Charts as figures for Plotly. No other module depends on Plotly's format.

use serde_json::{Value, json};

use crate::chart::{Axis, Chart, Mark, Point, Scale, SecondAxis, Series, X};

/// Colors that are distinct on white and on black and for color-blind readers (Okabe & Ito 2008).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];
/// A line with fewer points shows them; a single point has no line.
const FEW: usize = 60;
/// A series with more points has small ones.
const MANY: usize = 200;
/// Maximum number of letters set horizontally below a plot; more are slanted, and need a taller plot.
const UPRIGHT: usize = 140;
/// Pixels of a plot, without its legend: normal (as in `page.js`), with slanted words, and with a second plot
/// below it.
const HEIGHT: usize = 416;
const HEIGHT_OF_SLANTED: usize = 560;
const HEIGHT_OF_TWO: usize = 680;
/// Pixels of each word next to a plot, and of the space above and below.
const LINE: usize = 22;
const AROUND: usize = 130;

/// Returns the figure that the page's script passes to Plotly.
pub(super) fn figure(chart: &Chart) -> Value {
    let is_any = |mark| {
        chart
            .series
            .iter()
            .any(|series| mark_of(chart, series) == mark)
    };
    let mut layout = json!({
        "hovermode": "closest",
        "bargap": 0.25,
        "barmode": match () {
            () if is_any(Mark::StackedBars) => "relative",
            () if is_any(Mark::Histogram) => "overlay",
            () => "group",
        },
        "showlegend": chart.series.len() > 1 && !is_any(Mark::Box),
        "modebar": {"bgcolor": "rgba(0,0,0,0)"},
        "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
        // Above the plot, so that it never covers the drawing; the page makes room for it.
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "height": HEIGHT,
    });
    let (mut x, y) = (axis(&chart.x), axis(&chart.y));
    let words = words(chart);
    if !words.is_empty() {
        x["type"] = json!("category");
    }
    if !chart.x.words.is_empty() {
        x["categoryorder"] = json!("array");
        x["categoryarray"] = json!(chart.x.words);
    }
    if chart.horizontal {
        // The first word on top; every word is shown.
        x["autorange"] = json!("reversed");
        x["dtick"] = json!(1);
        layout["height"] = json!(HEIGHT.max(LINE * words.len() + AROUND));
    } else if words.iter().map(|word| word.chars().count()).sum::<usize>() > UPRIGHT {
        x["dtick"] = json!(1);
        x["tickangle"] = json!(-60);
        x["tickfont"] = json!({"size": 11});
        layout["height"] = json!(HEIGHT_OF_SLANTED);
    }
    let [across, up] = if chart.horizontal { [y, x] } else { [x, y] };
    layout["xaxis"] = across;
    layout["yaxis"] = up;
    match &chart.second {
        None => {}
        Some(SecondAxis::Right(right)) => {
            layout["yaxis2"] = axis(right);
            layout["yaxis2"]["overlaying"] = json!("y");
            layout["yaxis2"]["side"] = json!("right");
            layout["yaxis2"]["showgrid"] = json!(false);
        }
        Some(SecondAxis::Below(below)) => {
            layout["height"] = json!(HEIGHT_OF_TWO);
            layout["yaxis"]["domain"] = json!([0.46, 1.0]);
            layout["yaxis2"] = axis(below);
            layout["yaxis2"]["domain"] = json!([0.0, 0.38]);
        }
    }
    let traces = chart.series.iter().enumerate();
    let traces = traces.map(|(index, series)| trace(chart, index, series));
    json!({"id": chart.id, "data": traces.collect::<Value>(), "layout": layout})
}

/// Returns the words of the first axis, each once.
fn words(chart: &Chart) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    for point in chart.series.iter().flat_map(|series| &series.points) {
        if let X::Word(word) = &point.x
            && !words.contains(&word.as_str())
        {
            words.push(word);
        }
    }
    words
}

fn mark_of(chart: &Chart, series: &Series) -> Mark {
    series.mark.unwrap_or(chart.mark)
}

/// Returns the divisor of times.
fn divisor(axis: &Axis) -> f64 {
    axis.unit.map_or(1.0, |unit| unit.scale())
}

fn axis(axis: &Axis) -> Value {
    let title = match axis.unit.map(|unit| unit.symbol()) {
        None => axis.title.clone(),
        Some(unit) if axis.title.is_empty() => unit.to_owned(),
        Some(unit) => format!("{} ({unit})", axis.title),
    };
    // Labels of any length have space.
    let mut drawn = json!({"automargin": true});
    if !title.is_empty() {
        drawn["title"] = json!({"text": title});
    }
    if !axis.suffix.is_empty() {
        drawn["ticksuffix"] = json!(axis.suffix);
    }
    if !axis.ticks.is_empty() {
        let ticks = axis.ticks.iter().cloned();
        let (values, words): (Vec<f64>, Vec<String>) = ticks.unzip();
        drawn["tickvals"] = json!(values);
        drawn["ticktext"] = json!(words);
    }
    match axis.scale {
        Scale::Linear => {}
        Scale::FromZero => drawn["rangemode"] = json!("tozero"),
        Scale::Range(ends) => drawn["range"] = json!(ends.map(|end| end / divisor(axis))),
        Scale::Log => drawn["type"] = json!("log"),
        Scale::Whole => drawn["dtick"] = json!(1),
    }
    drawn
}

/// Returns a series: its style, and its values.
fn trace(chart: &Chart, index: usize, series: &Series) -> Value {
    let mark = mark_of(chart, series);
    let colour = COLOURS[series.colour.unwrap_or(index) % COLOURS.len()];
    let mut trace = match mark {
        Mark::Line | Mark::Curve | Mark::Steps | Mark::Points => {
            as_line(mark, series, index, colour)
        }
        Mark::Bars | Mark::StackedBars | Mark::Ranges | Mark::Histogram => json!({
            "type": "bar",
            "orientation": if chart.horizontal { "h" } else { "v" },
            "opacity": if mark == Mark::Histogram { 0.7 } else { 1.0 },
            // A range with equal ends is drawn as a thin line, so that it is visible.
            "marker": {"color": colour, "line": {"color": colour, "width": if mark == Mark::Ranges { 2 } else { 0 }}},
        }),
        Mark::Box => json!({
            "type": "box", "boxpoints": "all", "jitter": 0.5, "pointpos": 0,
            "marker": {"color": colour, "size": 5}, "line": {"width": 1}, "fillcolor": "rgba(0,0,0,0)",
        }),
    };
    trace["name"] = json!(series.name);
    trace["visible"] = if series.hidden {
        json!("legendonly")
    } else {
        json!(true)
    };
    if series.second {
        trace["yaxis"] = json!("y2");
    }
    if let Some(group) = &series.group {
        trace["legendgroup"] = json!(group);
    }
    let axis = match &chart.second {
        Some(SecondAxis::Right(axis) | SecondAxis::Below(axis)) if series.second => axis,
        _ => &chart.y,
    };
    trace["hovertemplate"] = json!(template(chart, axis));
    add_points(chart, mark, axis, series, &mut trace);
    trace
}

/// Adds positions and sizes of the values, in the units of their axes.
fn add_points(chart: &Chart, mark: Mark, axis: &Axis, series: &Series, trace: &mut Value) {
    let mut points: Vec<&Point> = series.points.iter().collect();
    // A line goes forward; words keep their order.
    points.sort_by(|a, b| number(a).total_cmp(&number(b)));
    let points = points.as_slice();
    let any = |is: fn(&Point) -> bool| points.iter().any(|point| is(point));
    let all =
        |of: &dyn Fn(&Point) -> Value| points.iter().map(|point| of(point)).collect::<Value>();
    let up = |value: Option<f64>| value.map(|value| value / divisor(axis));
    let distance = |from, to| up(to).zip(up(from)).map_or(0.0, |(to, from)| to - from);
    let [along, across] = directions(chart);
    if mark == Mark::Ranges {
        trace["base"] = all(&|point| json!(up(point.low)));
        trace[across] = all(&|point| json!(distance(point.low, point.high)));
    } else {
        trace[across] = all(&|point| json!(up(point.y)));
    }
    if mark != Mark::Box {
        trace[along] = all(&|point| match &point.x {
            X::Number(x) => json!(x / divisor(&chart.x)),
            X::Word(word) => json!(word),
        });
    }
    if any(|point| point.width.is_some()) {
        trace["width"] = all(&|point| json!(point.width.map(|width| width / divisor(&chart.x))));
    }
    if any(|point| point.text.is_some()) {
        trace["hovertext"] = all(&|point| json!(point.text));
    }
    if any(|point| point.label.is_some()) {
        trace["text"] = all(&|point| json!(point.label));
    }
    if chart.whiskers {
        trace[format!("error_{across}")] = json!({
            "type": "data", "symmetric": false, "thickness": 1,
            "array": all(&|point| json!(distance(point.y, point.high))),
            "arrayminus": all(&|point| json!(distance(point.low, point.y))),
        });
    }
}

/// Returns Plotly's axes of positions and of values.
fn directions(chart: &Chart) -> [&'static str; 2] {
    if chart.horizontal {
        ["y", "x"]
    } else {
        ["x", "y"]
    }
}

/// Returns the style of lines and points.
fn as_line(mark: Mark, series: &Series, index: usize, colour: &str) -> Value {
    let points = &series.points;
    let (size, opacity) = match points.len() {
        0..=MANY => (7.0, 1.0),
        _ => (4.0, 0.7),
    };
    // A value between two gaps has no line.
    let alone = points.len() < FEW || points.iter().any(|point| point.y.is_none());
    let mode = match mark {
        Mark::Points if points.iter().any(|point| point.label.is_some()) => "markers+text",
        Mark::Points => "markers",
        Mark::Line | Mark::Steps if alone => "lines+markers",
        _ => "lines",
    };
    // Adjacent points have their labels on different sides.
    let places = ["top center", "bottom center", "middle right", "middle left"];
    json!({
        "type": "scatter", "mode": mode,
        "line": {"color": colour, "dash": series.dash, "shape": if mark == Mark::Steps { "hvh" } else { "linear" }},
        "marker": {
            "color": colour, "size": series.size.unwrap_or(size), "opacity": opacity, "symbol": series.symbol,
        },
        "textposition": places[index % places.len()], "cliponaxis": mode != "markers+text",
    })
}

/// Returns the position of a point as a number; all words have the same.
fn number(point: &Point) -> f64 {
    match point.x {
        X::Number(number) => number,
        X::Word(_) => 0.0,
    }
}

/// Returns the hover text in Plotly's format, next to the series' name.
fn template(chart: &Chart, values: &Axis) -> String {
    let [along, across] = directions(chart);
    let behind = |axis: &Axis| match axis.unit {
        Some(unit) => format!(" {}", unit.symbol()),
        None => axis.suffix.to_owned(),
    };
    let mut template = String::new();
    for part in chart.hover.split_inclusive('}') {
        let (words, placeholder) = part.split_once('{').unwrap_or((part, ""));
        template += words;
        let (of, format, behind) = match placeholder {
            "" => continue,
            "text}" => ("hovertext", "", String::new()),
            "x}" => (along, "", behind(&chart.x)),
            "x:.1}" => (along, ":.1f", behind(&chart.x)),
            "x:.3}" => (along, ":.3f", behind(&chart.x)),
            "y:n}" => (across, ":,", behind(values)),
            _ => (across, ":,.4~r", behind(values)),
        };
        template += &format!("%{{{of}{format}}}{behind}");
    }
    template + "<extra>%{fullData.name}</extra>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Unit;

    #[test]
    fn line_points_are_sorted() {
        let points = [3.0, 1.0, 2.0].map(|x| Point::new(x, x * 1e4).within(x * 1e3, None));
        let chart = Chart {
            y: Axis::time("lag", Unit::Milli, Scale::Linear),
            hover: "{x:.1} s: {y}",
            whiskers: true,
            series: vec![Series::new("a", points)],
            ..Chart::default()
        };
        let figure = figure(&chart);
        let line = &figure["data"][0];
        assert_eq!(line["x"], json!([1.0, 2.0, 3.0]));
        assert_eq!(line["y"], json!([10.0, 20.0, 30.0]));
        assert_eq!(line["error_y"]["arrayminus"], json!([9.0, 18.0, 27.0]));
        assert_eq!(line["error_y"]["array"], json!([0.0, 0.0, 0.0]));
        assert_eq!(figure["layout"]["yaxis"]["title"]["text"], "lag (ms)");
        let hover = "%{x:.1f} s: %{y:,.4~r} ms<extra>%{fullData.name}</extra>";
        assert_eq!(line["hovertemplate"], hover);
    }

    #[test]
    fn horizontal_chart_labels_keep_their_order() {
        let points = ["b", "a"].map(|word| Point::of(word, 1.0).within(2.0, 3.0));
        let chart = Chart {
            y: Axis::new("ms", Scale::FromZero),
            horizontal: true,
            mark: Mark::Ranges,
            hover: "{x}: {y} %",
            series: vec![Series::new("a", points)],
            ..Chart::default()
        };
        let figure = figure(&chart);
        let (bars, layout) = (&figure["data"][0], &figure["layout"]);
        assert_eq!(bars["y"], json!(["b", "a"]));
        assert_eq!(
            (&bars["x"], &bars["base"]),
            (&json!([1.0, 1.0]), &json!([2.0, 2.0]))
        );
        assert_eq!(layout["yaxis"]["autorange"], "reversed");
        assert_eq!(layout["xaxis"]["title"]["text"], "ms");
        let hover = bars["hovertemplate"].as_str().unwrap();
        assert!(hover.starts_with("%{y}: %{x:,.4~r} %<"), "{hover}");
    }
}
