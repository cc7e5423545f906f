//! Draws the screen: a list of lines, of which the terminal shows as many as it has.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    symbols::bar,
    text::Span,
};
use replimeter_render::{
    figures::{count, time},
    live::{Attention, LiveChange, LiveRow, LiveView},
    terminal::controls_terminal,
};

use super::state::{ScreenState, Shown, Sorting};

/// The smallest and largest width of a trend in the list.
const TREND: (usize, usize) = (8, 60);
/// Columns that are worth more than a trend.
const IMPORTANT: usize = 4;
/// Rows of a server's trend.
const CHART: usize = 4;
/// Lines of the summary.
const SUMMARY: usize = 3;
/// Below this width, there is no time.
const NARROW: usize = 30;
/// From this height on, the title has a line of its own.
const TALL: usize = 8;

const KEYS: &str = "↑↓ select  enter open  s sort  r reverse  p pause  ? help  q quit";
const KEYS_OF_SERVER: &str = "↑↓ another server  p pause  ? help  esc back";
const HELP: [&str; 12] = [
    "↑ ↓ k j        select a server; also page up and down, home, end",
    "enter          open it: details, a larger trend, its changes",
    "esc, q         back to all servers",
    "s              sort by attention, by name, or by the next column",
    "r              reverse the order",
    "p              pause the screen, or continue; measuring continues",
    "q, Ctrl-C      end the run; again after a second: at once",
    "Ctrl-Z         suspend the run",
    "?              this page",
    "",
    "!  needs attention     ?  not known     *  worth a look",
    "A trend is relative to its largest value; the newest is at the right.",
];

type Lines = Vec<(String, Style)>;

/// Draws the screen.
pub(super) fn draw(state: &mut ScreenState, colors: bool, area: Rect, buffer: &mut Buffer) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = head(state, width, height);
    // The keys are the last line, if there is one for them.
    let keys = usize::from(height > lines.len());
    let room = height.saturating_sub(lines.len() + keys);
    let mut rest = match state.shown {
        Shown::Help => HELP.map(|line| (line.to_owned(), Style::new())).to_vec(),
        Shown::OneServer => server(state, width, colors),
        Shown::Servers => servers(state, width, room, colors),
    };
    rest.resize(room, (String::new(), Style::new()));
    lines.extend(rest);
    if keys > 0 {
        lines.push((last_line(state), Modifier::BOLD.into()));
    }
    for (y, (text, style)) in (area.top()..area.bottom()).zip(&lines) {
        buffer.set_stringn(area.left(), y, text, width, *style);
    }
}

/// Returns a text of others without what a terminal obeys, in one line.
pub(super) fn inert(text: &str) -> String {
    text.replace(['\n', '\t'], " ")
        .replace(controls_terminal, "\u{fffd}")
}

/// Returns the title with the time, and the summary; only the summary if there are few lines.
fn head(state: &ScreenState, width: usize, height: usize) -> Lines {
    let view = &state.now.view;
    let time = match width {
        ..NARROW => String::new(),
        _ => format!(" {} UTC", state.now.at),
    };
    let summary = inert(&view.summary);
    let left = width.saturating_sub(time.len());
    if height < TALL {
        return vec![(fit(&summary, left, false) + &time, Modifier::BOLD.into())];
    }
    let title = fit(&inert(&view.title), left, false) + &time;
    let summary = wrapped(&summary, width).into_iter().take(SUMMARY);
    let summary = summary.map(|line| (line, Modifier::BOLD.into()));
    std::iter::once((title, Style::new()))
        .chain(summary)
        .collect()
}

fn last_line(state: &ScreenState) -> String {
    let keys = match state.shown {
        Shown::OneServer => KEYS_OF_SERVER,
        Shown::Help => "esc back",
        Shown::Servers => KEYS,
    };
    match state.newest {
        None => keys.to_owned(),
        Some(_) => "PAUSED; measuring continues  p continue  ? help".to_owned(),
    }
}

/// Returns the list of servers, and below it the newest changes.
fn servers(state: &mut ScreenState, width: usize, room: usize, colors: bool) -> Lines {
    // Up to a third is for the changes, and what the servers leave.
    let heading = usize::from(room > 1);
    let for_rows = room.saturating_sub(heading);
    let third = match room {
        ..6 => 0,
        _ => (room / 3).min(1 + state.changes().len()),
    };
    let rows = state.order.len().min(for_rows.saturating_sub(third));
    state.scroll(rows);
    let layout = Layout::new(state, width);
    let mut lines = Vec::new();
    if heading > 0 {
        lines.push((layout.heading(state), Modifier::DIM.into()));
    }
    let visible = state.order.iter().enumerate().skip(state.first).take(rows);
    for (place, at) in visible {
        let row = &state.now.view.rows[*at];
        let is_selected = place == state.selected;
        let mut style = style(row.attention, colors);
        if is_selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        lines.push((layout.row(&state.now.view, row, is_selected), style));
    }
    if lines.len() < room && third > 0 {
        let place = match rows < state.order.len() {
            true => format!(
                "servers {} to {} of {}",
                count(state.first as u64 + 1),
                count((state.first + rows) as u64),
                count(state.order.len() as u64)
            ),
            false => String::new(),
        };
        lines.push((place, Modifier::DIM.into()));
        lines.extend(changes(&state.changes(), colors));
    }
    lines
}

/// Returns one server: its details, its trend and its changes.
fn server(state: &ScreenState, width: usize, colors: bool) -> Lines {
    let Some(row) = state.server() else {
        return vec![("This server is no longer watched.".to_owned(), Style::new())];
    };
    let wide = row.details.iter().map(|(name, _)| wide_of(name));
    let wide = wide.max().unwrap_or(0);
    let line = |(name, text): &(&str, String)| {
        let name = fit(name, wide, false);
        (format!("  {name}  {}", inert(text)), Style::new())
    };
    let mark = format!("{} {}", mark(row.attention), inert(&row.name));
    let mut lines = vec![(
        mark,
        style(row.attention, colors).add_modifier(Modifier::BOLD),
    )];
    lines.extend(row.details.iter().map(line));
    if let Some(largest) = largest(&row.trend) {
        let title = format!(
            "  trend, at most {}, the newest at the right",
            time(largest)
        );
        lines.push((title, Modifier::DIM.into()));
        let chart = chart(&row.trend, width.saturating_sub(4), CHART);
        lines.extend(
            chart
                .into_iter()
                .map(|line| (format!("  {line}"), Style::new())),
        );
    }
    let in_name = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    let names = |change: &&LiveChange| {
        let parts = change.text.split(&row.name).collect::<Vec<_>>();
        parts
            .windows(2)
            .any(|around| !around[0].ends_with(in_name) && !around[1].starts_with(in_name))
    };
    let own: Vec<&LiveChange> = state.changes().into_iter().filter(names).collect();
    lines.push((String::new(), Style::new()));
    lines.extend(changes(&own, colors));
    lines
}

fn changes(all: &[&LiveChange], colors: bool) -> Lines {
    let line = |change: &&LiveChange| {
        let text = format!("{} {} {}", mark(change.attention), change.at, change.text);
        (inert(&text), style(change.attention, colors))
    };
    all.iter().map(line).collect()
}

/// The columns of the list that fit: name, cells, trend.
struct Layout {
    name: usize,
    /// Of each column that is visible.
    columns: Vec<usize>,
    gap: usize,
    trend: usize,
}

impl Layout {
    fn new(state: &ScreenState, width: usize) -> Self {
        let view = &state.now.view;
        let names = view.rows.iter().map(|row| wide_of(&inert(&row.name)));
        let name = names.max().unwrap_or(0).max(wide_of("server") + 2);
        let mut columns: Vec<usize> = (0..view.columns.len())
            .map(|at| {
                let cells = view.rows.iter().filter_map(|row| row.cells.get(at));
                let cells = cells.map(|cell| wide_of(&inert(cell))).max().unwrap_or(0);
                cells.max(wide_of(&title(state, at)))
            })
            .collect();
        let name = name.min((width / 4).max(8));
        // Two characters are for the marks. A trend is worth smaller gaps, and columns after the fourth.
        let left = |gap: usize, columns: &[usize]| {
            let all = columns.iter().map(|column| column + gap).sum::<usize>();
            width.checked_sub(2 + name + all)
        };
        let has_trend = |gap: usize, columns: &[usize]| left(gap, columns) >= Some(TREND.0 + gap);
        let gap = if has_trend(2, &columns) { 2 } else { 1 };
        while columns.len() > IMPORTANT && !has_trend(gap, &columns) {
            columns.pop();
        }
        while !columns.is_empty() && left(gap, &columns).is_none() {
            columns.pop();
        }
        let trend = left(gap, &columns).unwrap_or(0).saturating_sub(gap);
        Self {
            name,
            columns,
            gap,
            trend: match trend >= TREND.0 {
                true => trend.min(TREND.1),
                false => 0,
            },
        }
    }

    fn heading(&self, state: &ScreenState) -> String {
        let name = sorted("server", state, Sorting::Name);
        let columns = &state.now.view.columns;
        let titles = (0..columns.len()).map(|at| (title(state, at), columns[at].is_number));
        self.line("  ", &name, titles, "trend")
    }

    fn row(&self, view: &LiveView, row: &LiveRow, is_selected: bool) -> String {
        let marks = format!(
            "{}{}",
            if is_selected { '>' } else { ' ' },
            mark(row.attention)
        );
        let trend = chart(&row.trend, self.trend, 1).concat();
        let cells = row.cells.iter().map(|cell| inert(cell));
        let cells = cells.zip(view.columns.iter().map(|column| column.is_number));
        self.line(&marks, &inert(&row.name), cells, &trend)
    }

    fn line(
        &self,
        marks: &str,
        name: &str,
        cells: impl Iterator<Item = (String, bool)>,
        trend: &str,
    ) -> String {
        let gap = " ".repeat(self.gap);
        let mut line = format!("{marks}{}", fit(name, self.name, false));
        for (wide, (cell, is_number)) in self.columns.iter().zip(cells) {
            line.push_str(&gap);
            line.push_str(&fit(&cell, *wide, is_number));
        }
        if self.trend > 0 {
            line.push_str(&gap);
            line.push_str(&fit(trend, self.trend, true));
        }
        line
    }
}

fn title(state: &ScreenState, at: usize) -> String {
    let title = state.now.view.columns[at].title;
    sorted(title, state, Sorting::Column(at))
}

/// Returns the title of a column, with a mark if the list is sorted by it.
fn sorted(title: &str, state: &ScreenState, sorting: Sorting) -> String {
    match (state.sorting == sorting, state.is_reversed) {
        (false, _) => title.to_owned(),
        (true, false) => format!("{title}▾"),
        (true, true) => format!("{title}▴"),
    }
}

/// Returns the rows of a chart of the newest values, relative to the largest; one that is not known is a gap.
fn chart(values: &[Option<f64>], width: usize, height: usize) -> Vec<String> {
    let newest = &values[values.len().saturating_sub(width)..];
    let largest = largest(newest).unwrap_or(0.0);
    let symbols = bar::NINE_LEVELS;
    let eighth = [
        symbols.empty,
        symbols.one_eighth,
        symbols.one_quarter,
        symbols.three_eighths,
        symbols.half,
        symbols.five_eighths,
        symbols.three_quarters,
        symbols.seven_eighths,
        symbols.full,
    ];
    let top = height * 8;
    let eighths = |value: &Option<f64>| match value {
        Some(value) if largest > 0.0 => ((value / largest * top as f64).round() as usize).max(1),
        Some(_) => 1,
        None => 0,
    };
    let row = |row: usize| {
        let symbol = |value| eighth[eighths(value).saturating_sub(row * 8).min(8)];
        let missing = " ".repeat(width - newest.len());
        missing + &newest.iter().map(symbol).collect::<String>()
    };
    (0..height).rev().map(row).collect()
}

/// Returns the largest value of a trend; `None` if no value is known.
fn largest(values: &[Option<f64>]) -> Option<f64> {
    values.iter().flatten().copied().reduce(f64::max)
}

/// Returns the mark of a server that needs attention, for those who see no colors.
fn mark(attention: Attention) -> char {
    match attention {
        Attention::Good => ' ',
        Attention::Notice => '*',
        Attention::Unknown => '?',
        Attention::Bad => '!',
    }
}

fn style(attention: Attention, colors: bool) -> Style {
    let color = match attention {
        _ if !colors => return Style::new(),
        Attention::Good => return Style::new(),
        Attention::Notice => Color::Yellow,
        Attention::Unknown => Color::Magenta,
        Attention::Bad => Color::Red,
    };
    Style::new().fg(color)
}

/// Returns the number of columns that a text takes.
fn wide_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns the lines of a text, broken between words; a longer word is cut.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if wide_of(line) + 1 + wide_of(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a text cut or filled to a width.
fn fit(text: &str, width: usize, at_right: bool) -> String {
    let mut text = text.to_owned();
    if wide_of(&text) > width {
        while wide_of(&text) + 1 > width && text.pop().is_some() {}
        if width > 0 {
            text.push('…');
        }
    }
    let missing = " ".repeat(width.saturating_sub(wide_of(&text)));
    match at_right {
        true => missing + &text,
        false => text + &missing,
    }
}
