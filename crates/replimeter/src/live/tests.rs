//! The screen, drawn by the test backend of `ratatui`, and on a real terminal.

use std::{
    env,
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use ratatui_core::{
    backend::TestBackend,
    style::{Color, Modifier},
};
use replimeter_render::live::{Attention, LiveChange, LiveColumn, LiveRow, LiveView};

use replimeter_run::{Event, Observer};
use tempfile::TempDir;

use super::{LiveServers, draw::draw, keys::Key, leave_on_panic, state::*};
use crate::{active::Active, signals};

/// Set for the process that [`started`] runs: how it ends.
const CHILD: &str = "REPLIMETER_TEST_SCREEN";
/// More than any wait takes.
const LIMIT: Duration = Duration::from_secs(120);

fn row(name: &str, attention: Attention, state: &str, lag_us: Option<f64>) -> LiveRow {
    let lag = lag_us.map_or_else(|| "?".to_owned(), |us| format!("{us:.0} µs"));
    LiveRow {
        name: name.to_owned(),
        attention,
        cells: vec![state.to_owned(), lag],
        keys: vec![None, lag_us],
        trend: [0.0, 100.0, 200.0, 400.0]
            .map(Some)
            .into_iter()
            .chain([lag_us])
            .collect(),
        details: vec![("source", "primary".to_owned())],
    }
}

fn change(at: &str, text: &str) -> LiveChange {
    LiveChange {
        at: at.to_owned(),
        attention: Attention::Bad,
        text: text.to_owned(),
    }
}

fn view(rows: Vec<LiveRow>) -> LiveView {
    LiveView {
        title: "watch topology.toml".to_owned(),
        summary: "1 of 3 replicas is blocked".to_owned(),
        columns: vec![
            LiveColumn {
                title: "state",
                is_number: false,
            },
            LiveColumn {
                title: "lag",
                is_number: true,
            },
        ],
        rows,
        changes: vec![
            change("12:00:03", "replica2: the link is cut"),
            change("12:00:01", "replica1: in step"),
            change("12:00:00", "replica22: in step"),
        ],
        line: "1 of 3 replicas is blocked".to_owned(),
    }
}

fn three() -> LiveView {
    view(vec![
        row("replica1", Attention::Good, "in step", Some(0.0)),
        row("replica2", Attention::Bad, "blocked", Some(800.0)),
        row("replica3", Attention::Unknown, "unknown", None),
    ])
}

fn timed(view: LiveView) -> TimedView {
    TimedView {
        view,
        at: "12:00:04".to_owned(),
    }
}

fn state(view: LiveView) -> ScreenState {
    let mut state = ScreenState::default();
    state.update(timed(view));
    state
}

fn drawn(state: &mut ScreenState, colors: bool, width: u16, height: u16) -> TestBackend {
    let mut screen = super::Terminal::new(TestBackend::new(width, height)).unwrap();
    screen
        .draw(|frame| draw(state, colors, frame.area(), frame.buffer_mut()))
        .unwrap();
    screen.backend().clone()
}

/// Returns the lines of a screen, without spaces at their ends.
fn lines(state: &mut ScreenState, width: u16, height: u16) -> Vec<String> {
    let backend = drawn(state, true, width, height);
    let cells = backend.buffer().content.chunks(usize::from(width));
    let line = |cells: &[ratatui_core::buffer::Cell]| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned()
    };
    cells.map(line).collect()
}

/// Returns the names of the servers that are visible.
fn names(state: &mut ScreenState) -> Vec<String> {
    let row = |line: &String| Some(line.get(2..)?.split(' ').next()?.to_owned());
    let lines = lines(state, 80, 24);
    let rows = lines.iter().filter_map(row);
    rows.filter(|name| name.starts_with("replica")).collect()
}

fn many(count: usize) -> LiveView {
    let row = |number: usize| {
        let name = format!("replica{number:04}");
        row(&name, Attention::Good, "in step", Some(number as f64))
    };
    view((0..count).map(row).collect())
}

#[test]
fn servers_are_listed_with_trends_and_changes() {
    let lines = lines(&mut state(three()), 80, 24);
    let want = [
        "watch topology.toml                                                 12:00:04 UTC",
        "1 of 3 replicas is blocked",
        "  server    state       lag                                                trend",
        ">!replica2  blocked  800 µs                                                ▁▁▂▄█",
        " ?replica3  unknown       ?                                                ▁▂▄█",
        "  replica1  in step    0 µs                                                ▁▂▄█▁",
        "",
        "! 12:00:03 replica2: the link is cut",
        "! 12:00:01 replica1: in step",
        "! 12:00:00 replica22: in step",
    ];
    assert_eq!(lines[..want.len()], want);
    assert!(lines[want.len()..23].iter().all(String::is_empty));
    assert!(lines[23].ends_with("? help  q quit"));
}

#[test]
fn servers_are_sorted_by_the_next_column() {
    let mut state = state(three());
    assert_eq!(names(&mut state), ["replica2", "replica3", "replica1"]);
    state.press(Key::Char('s'));
    assert_eq!(names(&mut state), ["replica1", "replica2", "replica3"]);
    state.press(Key::Char('s'));
    assert!(lines(&mut state, 80, 24)[2].contains("state▾"));
    assert_eq!(names(&mut state), ["replica2", "replica1", "replica3"]);
    state.press(Key::Char('s'));
    assert!(lines(&mut state, 80, 24)[2].contains("lag▾"));
    // The largest lag is first, and one that is not known last.
    assert_eq!(names(&mut state), ["replica2", "replica1", "replica3"]);
    state.press(Key::Char('r'));
    assert_eq!(names(&mut state), ["replica1", "replica2", "replica3"]);
    state.press(Key::Char('s'));
    assert_eq!(state.sorting, Sorting::Attention);
}

#[test]
fn selected_server_stays_selected_and_the_top_the_top() {
    let mut state = state(three());
    let selected = |state: &mut ScreenState| {
        let lines = lines(state, 80, 24);
        let line = lines.iter().find(|line| line.starts_with('>')).unwrap();
        line[2..10].to_owned()
    };
    state.press(Key::Char('s'));
    assert_eq!(selected(&mut state), "replica1", "the first");
    state.press(Key::Down);
    state.press(Key::Char('r'));
    assert_eq!(selected(&mut state), "replica2", "the same server");
    state.press(Key::Home);
    state.press(Key::Char('r'));
    assert_eq!(selected(&mut state), "replica1");
    state.press(Key::End);
    let mut fewer = three();
    fewer.rows.pop();
    state.update(timed(fewer));
    assert_eq!(selected(&mut state), "replica2");
}

#[test]
fn one_server_has_details_a_chart_and_its_changes() {
    let mut state = state(three());
    state.press(Key::Enter);
    let shown = lines(&mut state, 40, 24);
    let want = [
        "! replica2",
        "  source  primary",
        "  trend, at most 800 µs, the newest at the right",
        "                                     █",
        "                                     █",
        "                                    ██",
        "                                 ▁▄███",
        "",
        "! 12:00:03 replica2: the link is cut",
        "",
    ];
    let cut = |line: &str| line.chars().take(40).collect::<String>();
    assert_eq!(
        shown[2..12],
        want.map(|line| cut(line).trim_end().to_owned())
    );
    let mut without = three();
    without.rows.remove(1);
    state.update(timed(without));
    assert_eq!(
        lines(&mut state, 40, 24)[2],
        "This server is no longer watched."
    );
    assert!(!state.press(Key::Char('q')), "it leads back");
    assert_eq!(state.shown, Shown::Servers);
    assert!(state.press(Key::Char('q')), "it ends the run");
}

#[test]
fn paused_screen_shows_the_old_view_and_says_so() {
    let mut state = state(three());
    state.press(Key::Char('p'));
    let mut next = three();
    next.summary = "all are in step".to_owned();
    state.update(timed(next));
    let paused = lines(&mut state, 80, 24);
    assert_eq!(paused[1], "1 of 3 replicas is blocked");
    assert!(
        paused[23].starts_with("PAUSED; measuring continues"),
        "{paused:?}"
    );
    state.press(Key::Char('p'));
    assert_eq!(lines(&mut state, 80, 24)[1], "all are in step");
}

#[test]
fn messages_are_among_the_changes() {
    let mut state = state(three());
    state.add_message("\nstopping\n", "12:00:05".to_owned());
    let mut later = three();
    later
        .changes
        .insert(0, change("12:00:06", "replica2: in step"));
    state.update(timed(later));
    let at = |change: &&LiveChange| change.at[6..].to_owned();
    let order: Vec<String> = state.changes().iter().map(at).collect();
    assert_eq!(order, ["06", "05", "03", "01", "00"]);
    assert_eq!(lines(&mut state, 80, 24)[8], "* 12:00:05 stopping");
}

#[test]
fn attention_is_a_color_unless_colors_are_unwanted() {
    let colors = |wanted: bool| {
        let screen = drawn(&mut state(three()), wanted, 80, 24);
        let row = &screen.buffer().content[3 * 80];
        assert!(row.modifier.contains(Modifier::REVERSED), "it is selected");
        let all = screen.buffer().content.iter();
        all.filter(|cell| cell.fg == Color::Red).count()
    };
    assert!(colors(true) > 80);
    assert_eq!(colors(false), 0);
}

#[test]
fn thousand_servers_scroll() {
    let mut state = state(many(1_000));
    assert!(lines(&mut state, 80, 24)[19].starts_with("servers 1 to 16 of 1,000"));
    state.press(Key::PageDown);
    assert!(names(&mut state).contains(&"replica0016".to_owned()));
    state.press(Key::End);
    let shown = lines(&mut state, 80, 24);
    assert!(shown[18].starts_with("> replica0999"), "{shown:?}");
    assert!(shown[19].starts_with("servers 985 to 1,000 of 1,000"));
    state.update(timed(many(2)));
    assert_eq!(names(&mut state), ["replica0000", "replica0001"]);
}

#[test]
fn screen_of_any_size_shows_what_fits() {
    for count in [0, 3, 40] {
        let mut state = state(many(count));
        for keys in [
            &[][..],
            &[Key::End, Key::Enter],
            &[Key::Escape, Key::Char('?')],
        ] {
            keys.iter().for_each(|key| _ = state.press(*key));
            for width in (1..=12).chain([40, 300]) {
                for height in (1..=12).chain([100]) {
                    assert_eq!(lines(&mut state, width, height).len(), usize::from(height));
                }
            }
        }
    }
    let mut state = state(three());
    let summary = "1 of 3 replicas is blocked";
    assert!(lines(&mut state, 80, 1)[0].starts_with(summary));
    let narrow = lines(&mut state, 10, 24);
    assert_eq!(
        narrow[1..6],
        ["1 of 3", "replicas", "is blocked", "  server", ">!replica2"]
    );
}

#[test]
fn hostile_texts_stay_in_their_cells() {
    let name = "\u{1b}[2J\u{9b}31m\u{202e}\n日本語";
    let mut hostile = row(name, Attention::Bad, "a\tb\u{7}", Some(f64::INFINITY));
    hostile.trend.extend([Some(f64::NAN), Some(-1.0)]);
    hostile.details = vec![("text", "\u{1b}]0;x\u{7}".to_owned())];
    let mut hostile = view(vec![hostile]);
    hostile.summary = "\u{1b}c".to_owned();
    hostile.changes[0].text = "a\r\u{1b}[H".to_owned();
    let mut state = state(hostile);
    for key in [Key::Up, Key::Enter] {
        state.press(key);
        let lines = lines(&mut state, 80, 24).concat();
        assert!(!lines.contains(replimeter_render::terminal::controls_terminal));
        assert!(lines.contains("\u{fffd}[2J\u{fffd}31m\u{fffd}"), "{lines}");
    }
}

/// What [`started`] runs on a terminal: a run that has views until it is stopped, or panics.
#[test]
fn run_on_the_terminal_of_another_test() {
    let Some(end) = env::var_os(CHILD) else {
        return;
    };
    leave_on_panic();
    let active = Active::default();
    signals::install(&active).unwrap();
    let mut servers = LiveServers::new();
    for number in 0.. {
        servers.event(Event::Live(&three())).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert!(number < 50 || end != "panic", "a bug");
        if active.stop.load(Ordering::Relaxed) {
            break;
        }
    }
}

/// Starts a shell with jobs on a terminal, and in it `run_on_the_terminal_of_another_test`; its output goes to the file.
fn started(output: &Path, end: &str, then: &str) -> Child {
    let program = env::current_exe().unwrap();
    let job = "--exact --nocapture live::tests::run_on_the_terminal_of_another_test";
    let script = format!(
        "stty rows 24 cols 80; set -m; '{}' {job}; {then}",
        program.display()
    );
    Command::new("script")
        .args(["--quiet", "--command", &script, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env(CHILD, end)
        .stdin(Stdio::piped())
        .stdout(File::create(output).unwrap())
        .spawn()
        .unwrap()
}

fn text_of(output: &Path) -> String {
    String::from_utf8_lossy(&fs::read(output).unwrap()).into_owned()
}

/// Waits until the terminal got this text a number of times.
fn wait_for(output: &Path, text: &str, times: usize) {
    let began = Instant::now();
    while text_of(output).matches(text).count() < times {
        let waited = began.elapsed();
        assert!(waited < LIMIT, "{text}: {:?}", text_of(output));
        thread::sleep(Duration::from_millis(20));
    }
}

/// Prints ` icanon` if the terminal is as it was.
const SETTINGS: &str = "stty -a | tr ';' '\\n' | grep -w icanon";
const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";

#[test]
fn screen_on_a_terminal_is_left_and_entered_again() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("output");
    let then = format!("{SETTINGS}; echo suspended; fg; {SETTINGS}; echo ended");
    let mut terminal = started(&output, "key", &then);
    let mut keys = terminal.stdin.take().unwrap();
    wait_for(&output, ENTERED, 1);
    wait_for(&output, "blocked", 2);
    keys.write_all(b"?").unwrap();
    wait_for(&output, "Ctrl-Z", 1);
    keys.write_all(b"\x1a").unwrap();
    wait_for(&output, "suspended\r\n", 1);
    let text = text_of(&output);
    let (_, after) = text.split_once(LEFT).unwrap();
    assert!(after.contains(" icanon"), "{text:?}");
    wait_for(&output, ENTERED, 2);
    // The first leads back from the help.
    keys.write_all(b"qq").unwrap();
    wait_for(&output, "ended\r\n", 1);
    assert!(terminal.wait().unwrap().success());
    let text = text_of(&output);
    assert_eq!(text.matches(LEFT).count(), 2, "{text:?}");
    let (_, after) = text.rsplit_once(LEFT).unwrap();
    assert!(after.contains("stopping and cleaning up"), "{text:?}");
    assert!(after.contains(" icanon"), "{text:?}");
}

#[test]
fn panic_leaves_the_screen_before_its_message() {
    let folder = TempDir::new().unwrap();
    let output = folder.path().join("output");
    let mut terminal = started(&output, "panic", &format!("{SETTINGS}; echo ended"));
    wait_for(&output, "ended\r\n", 1);
    terminal.wait().unwrap();
    let text = text_of(&output);
    let (_, after) = text.rsplit_once(LEFT).unwrap();
    for want in ["a bug", " icanon"] {
        assert!(after.contains(want), "{text:?}");
    }
}
