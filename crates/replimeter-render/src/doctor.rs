//! The report of `replimeter doctor`.

use replimeter_model::{
    doctor::{DoctorDocument, DoctorRow, DoctorStatus, Severity},
    replication::{Mode, Relation},
};

use crate::{
    figures::{Unit, count},
    format::{Format, number},
    report::{Block, Cell, Content, Report, Table},
    terminal::wrapped,
};

/// Maximum width of the tree in columns.
const WIDTH: usize = 100;

/// Returns the report.
#[must_use]
pub fn report(document: &DoctorDocument) -> Report {
    let target = &document.target;
    let mut report = Report {
        command: "doctor",
        facts: [
            vec![target.shape.clone()],
            target.mode.iter().map(Mode::to_string).collect(),
        ]
        .concat(),
        answer: conclusion(document),
        ..Report::default()
    };
    let tree = Content::Verbatim(tree(document));
    report.add(Block::new("tree", "Replication topology", tree));
    report.add(Block::table("servers", "Servers", servers(document)).with_notes(clocks(document)));
    for (severity, mark, title) in [
        (Severity::Error, '✗', "Errors"),
        (Severity::Warning, '!', "Warnings"),
        (Severity::Info, '·', "Information"),
    ] {
        let all = document.findings.iter();
        let all = all.filter(|finding| finding.severity == severity);
        let all = all.map(|finding| {
            let message = format!("{} [{}]", finding.message, finding.code);
            (message, finding.hint.clone())
        });
        report.add(Block::new(
            title,
            title,
            Content::Advice(mark, all.collect()),
        ));
    }
    report
}

/// A line of the tree.
struct TreeLine {
    label: String,
    words: String,
}

/// Returns the tree: the writer and its replicas, then all other servers.
fn tree(document: &DoctorDocument) -> String {
    let rows = &document.results;
    let mut lines = Vec::new();
    let mut drawn = vec![false; rows.len()];
    let parent = |row: &DoctorRow| match row.relation {
        Relation::Channel => row.source.clone(),
        // Members of a cluster are shown next to the one that is written to.
        relation if relation.in_cluster() => document
            .target
            .writer
            .clone()
            .filter(|writer| *writer != row.name),
        _ => None,
    };
    let parents: Vec<Option<usize>> = rows
        .iter()
        .map(|row| parent(row).and_then(|name| rows.iter().position(|row| row.name == name)))
        .collect();
    let is_writer = |index: &usize| rows[*index].relation == Relation::Writer;
    let roots = (0..rows.len())
        .filter(is_writer)
        .chain((0..rows.len()).filter(|index| !is_writer(index) && parents[*index].is_none()));
    for root in roots {
        draw(rows, &parents, root, "  ", "  ", &mut drawn, &mut lines);
    }
    // A cycle has no root.
    for index in 0..rows.len() {
        if !drawn[index] {
            draw(rows, &parents, index, "  ", "  ", &mut drawn, &mut lines);
        }
    }
    let widest = lines
        .iter()
        .map(|line| line.label.chars().count())
        .max()
        .unwrap_or(0)
        .min(WIDTH / 2);
    lines
        .iter()
        .map(|TreeLine { label, words }| {
            let indent = " ".repeat(widest + 2);
            let words = wrapped(words, WIDTH - widest - 2, &indent);
            format!("{label:widest$}  {words}\n")
        })
        .collect()
}

fn draw(
    rows: &[DoctorRow],
    parents: &[Option<usize>],
    index: usize,
    own: &str,
    below: &str,
    drawn: &mut [bool],
    lines: &mut Vec<TreeLine>,
) {
    if std::mem::replace(&mut drawn[index], true) {
        return;
    }
    let row = &rows[index];
    let words = [row.mode.map_or("", Mode::name), row.state.as_str()];
    let words: Vec<&str> = words.into_iter().filter(|part| !part.is_empty()).collect();
    lines.push(TreeLine {
        label: format!("{own}{} ({})", row.name, row.address),
        words: words.join(" · "),
    });
    // Sources that are not among the servers have no own line.
    for channel in row.channels.iter().filter(|channel| !channel.source_named) {
        let state = if channel.running {
            "running"
        } else {
            "not running"
        };
        lines.push(TreeLine {
            label: format!("{below}  also from {}", channel.source),
            words: format!("not named · {state}"),
        });
    }
    let children: Vec<usize> = (0..rows.len())
        .filter(|child| parents[*child] == Some(index) && !drawn[*child])
        .collect();
    for (place, child) in children.iter().enumerate() {
        let (branch, under) = if place + 1 == children.len() {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        draw(
            rows,
            parents,
            *child,
            &format!("{below}{branch}"),
            &format!("{below}{under}"),
            drawn,
            lines,
        );
    }
}

fn uptime(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", count(seconds / 86_400)),
    }
}

/// Formats a difference of clocks with its sign and bound.
fn offset(offset_us: f64, bound_us: f64) -> String {
    let unit = Unit::for_size(offset_us.abs().max(bound_us));
    let sign = if offset_us > 0.0 { "+" } else { "" };
    format!("{sign}{} ± {}", unit.show(offset_us), unit.with(bound_us))
}

fn servers(document: &DoctorDocument) -> Table {
    let trip = |row: &DoctorRow| row.round_trip_us;
    let table = Table::of(
        3,
        &document.results,
        &[
            ("server", &|row| Cell::from(&row.name)),
            ("version", &|row| row.version.clone().into()),
            ("role", &|row| row.role.clone().into()),
            ("up", &|row| row.uptime_s.map(uptime).into()),
            ("connect", &|row| Format::Time.cell(row.connect_us)),
            ("round trip min", &|row| {
                Format::Time.cell(trip(row).map(|trip| trip.min_us))
            }),
            ("p50", &|row| {
                Format::Time.cell(trip(row).map(|trip| trip.p50_us))
            }),
            ("clock", &|row| {
                let clock = row.clock;
                clock.map(|of| offset(of.offset_us, of.bound_us)).into()
            }),
            ("link", &|row| match row.tls.as_deref() {
                Some("encrypted") => "TLS".into(),
                link => link.into(),
            }),
        ],
    );
    table.with_text_column(8)
}

/// Returns how the clocks were read, and their differences.
fn clocks(document: &DoctorDocument) -> Vec<String> {
    if document.results.iter().all(|row| row.clock.is_none()) {
        return Vec::new();
    }
    let what = "The clock is the server's less this machine's; its error is at most the bound (half a round trip).";
    let pairs = document.clocks.iter().map(|one| {
        let offset = offset(one.offset_us, one.bound_us);
        format!("{} less {}: {offset}", one.replica, one.source)
    });
    std::iter::once(what.to_owned()).chain(pairs).collect()
}

/// Returns whether a measurement is possible, and what to review first.
fn conclusion(document: &DoctorDocument) -> String {
    let of = |severity, word: &str| {
        let findings = document.findings.iter();
        let count = findings
            .filter(|finding| finding.severity == severity)
            .count();
        (count > 0).then(|| number(count as u64, word))
    };
    let found = [
        of(Severity::Error, "error"),
        of(Severity::Warning, "warning"),
    ];
    let found: Vec<String> = found.into_iter().flatten().collect();
    let rest = match found.as_slice() {
        [] => "no findings".to_owned(),
        found => found.join(", "),
    };
    let absent = document.results.iter().filter(|row| !row.reached);
    let absent: Vec<&str> = absent.map(|row| row.name.as_str()).collect();
    if !absent.is_empty() {
        return format!(
            "{rest}; {} could not be examined, so the result is incomplete.",
            absent.join(", ")
        );
    }
    match document.status {
        DoctorStatus::Ok => "A measurement is possible; no problems found.".to_owned(),
        DoctorStatus::Warnings => format!("A measurement is possible; review {rest} first."),
        DoctorStatus::Errors => format!("{rest}: a measurement would be refused or invalid."),
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::doctor::{
        ClockDifference, ClockOffset, Diagnosis, Finding, FindingCode, RoundTrip,
    };

    use super::*;
    use crate::terminal;

    fn text(document: &DoctorDocument) -> String {
        terminal::render(&report(document))
    }

    fn row(name: &str, relation: Relation, source: Option<&str>) -> DoctorRow {
        DoctorRow {
            name: name.to_owned(),
            address: "127.0.0.1:33060".to_owned(),
            reached: relation != Relation::Unknown,
            version: Some("MariaDB 10.11.19".to_owned()),
            version_full: None,
            uptime_s: Some(86_400 * 400),
            role: Some("replica".to_owned()),
            relation,
            source: source.map(str::to_owned),
            mode: (relation == Relation::Channel).then_some(Mode::SemiSync),
            state: "running, 0 s behind as the server reports".to_owned(),
            channels: Vec::new(),
            tls: Some("encrypted".to_owned()),
            connect_us: Some(1_234.5),
            round_trip_us: Some(RoundTrip {
                min_us: 41.2,
                p50_us: 55.0,
                count: 30,
            }),
            clock: Some(ClockOffset {
                offset_us: -12_345.6,
                bound_us: 1_021.0,
                count: 30,
            }),
        }
    }

    fn document(results: Vec<DoctorRow>, findings: Vec<Finding>) -> DoctorDocument {
        let clocks = vec![ClockDifference {
            source: "primary".to_owned(),
            replica: "replica1".to_owned(),
            offset_us: 3.0,
            bound_us: 40.0,
        }];
        let diagnosis = Diagnosis {
            mode: Some(Mode::Chain),
            writer: Some("primary".to_owned()),
            results,
            clocks,
            findings,
        };
        DoctorDocument::new("endpoints:4", false, diagnosis)
    }

    fn chain() -> Vec<DoctorRow> {
        vec![
            row("replica2", Relation::Channel, Some("replica1")),
            row("primary", Relation::Writer, None),
            row("replica1", Relation::Channel, Some("primary")),
            row("replica3", Relation::Channel, Some("primary")),
            row("lost", Relation::Unknown, None),
        ]
    }

    #[test]
    fn topology_tree_starts_at_the_writer() {
        let text = text(&document(chain(), Vec::new()));
        let lines: Vec<&str> = text.lines().skip(5).take(5).collect();
        assert!(lines[0].starts_with("  primary ("), "{text}");
        assert!(lines[1].starts_with("  ├─ replica1 ("), "{text}");
        assert!(lines[2].starts_with("  │  └─ replica2 ("), "{text}");
        assert!(lines[3].starts_with("  └─ replica3 ("), "{text}");
        assert!(lines[4].starts_with("  lost ("), "{text}");
    }

    #[test]
    fn replication_circle_is_drawn_once() {
        let rows = vec![
            row("a", Relation::Channel, Some("b")),
            row("b", Relation::Channel, Some("a")),
        ];
        let text = text(&document(rows, Vec::new()));
        assert_eq!(text.matches("127.0.0.1:33060").count(), 2, "{text}");
    }

    #[test]
    fn doctor_columns_are_as_narrow_as_possible() {
        let long = "word ".repeat(60);
        let finding = |severity| Finding {
            severity,
            code: FindingCode::AcknowledgementReceiverNotRestarted,
            node: None,
            message: long.clone(),
            hint: long.clone(),
        };
        let mut rows = chain();
        rows[0].state = long.clone();
        rows[4].name = "a-server-with-a-long-name.example".to_owned();
        let text = text(&document(
            rows,
            vec![
                finding(Severity::Error),
                finding(Severity::Warning),
                finding(Severity::Info),
            ],
        ));
        for line in text.lines() {
            assert!(
                line.chars().count() <= 132,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        assert!(
            text.contains("Errors") && text.contains("Warnings") && text.contains("Information"),
            "{text}"
        );
    }

    #[test]
    fn doctor_conclusion_is_one_line() {
        let finding = |severity| Finding {
            severity,
            code: FindingCode::BinlogOff,
            node: None,
            message: "m".to_owned(),
            hint: "h".to_owned(),
        };
        let healthy = || {
            chain()
                .into_iter()
                .filter(|row| row.reached)
                .collect::<Vec<_>>()
        };
        let of = |findings| conclusion(&document(healthy(), findings));
        assert_eq!(
            of(vec![finding(Severity::Info)]),
            "A measurement is possible; no problems found."
        );
        assert_eq!(
            of(vec![finding(Severity::Warning)]),
            "A measurement is possible; review 1 warning first."
        );
        assert!(
            of(vec![finding(Severity::Error), finding(Severity::Error)]).starts_with("2 errors: ")
        );
        assert!(
            conclusion(&document(chain(), vec![finding(Severity::Error)]))
                .contains("lost could not be examined")
        );
    }
}
