//! Several runs side by side: their findings, and combined results by replication mode.

use std::collections::BTreeMap;

use replimeter_model::{
    cost::{CostDocument, CostRow},
    lag::{LagDocument, LagRow},
    load_results::LoadDocument,
    loss::{LossDocument, LossRow},
    manifest::Manifest,
    record::TargetRecord,
    stale::{StaleDocument, StaleRow},
};

use crate::{
    format::{Format, per_second},
    headline::overall_rows,
    report::{Block, Cell, Content, Report, Table, Visibility},
};

/// The results of a run, for measurements that are shown side by side.
#[derive(Clone, Copy, Debug)]
pub enum RunSummary<'a> {
    /// Of `lag`.
    Lag(&'a LagDocument),
    /// Of `stale`.
    Stale(&'a StaleDocument),
    /// Of `cost`.
    Cost(&'a CostDocument),
    /// Of `load`.
    Load(&'a LoadDocument),
    /// Of `loss`.
    Loss(&'a LossDocument),
    /// Of a measurement without combined results.
    Other,
}

/// One of the runs.
#[derive(Clone, Debug)]
pub struct RunSide<'a> {
    /// Its name on the page: `A`, `B`, …
    pub letter: String,
    /// Its directory.
    pub dir: &'a str,
    /// The command.
    pub command: &'static str,
    /// Its title in the plan.
    pub title: Option<&'a str>,
    /// The measured shape.
    pub shape: &'a str,
    /// When it began.
    pub started_at: &'a str,
    /// Its headline.
    pub answer: &'a str,
    /// Its results.
    pub findings: RunSummary<'a>,
    /// How each of its shapes replicates, as reported by its servers.
    pub ways: BTreeMap<String, ReplicationSetup>,
    /// Its report as text.
    pub text: String,
}

/// The replication setup of a shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationSetup {
    /// `mariadb/galera`, if the shape's name does not include it.
    pub mode: Option<String>,
    /// The wait point of a semi-synchronous primary.
    pub wait_point: Option<&'static str>,
}

impl ReplicationSetup {
    /// Returns how each shape of a run replicates, as reported by its servers.
    #[must_use]
    pub fn of_run(target: &TargetRecord, manifest: &Manifest) -> BTreeMap<String, Self> {
        let mut ways = BTreeMap::new();
        // The primary comes first.
        for server in &manifest.servers {
            ways.entry(server.shape.clone()).or_insert_with(|| {
                let found = target.mode_of(&server.shape).filter(|_| !target.sandbox);
                Self {
                    mode: found.map(|mode| format!("{}/{mode}", server.dialect)),
                    wait_point: server.wait_point(),
                }
            });
        }
        ways
    }
}

impl RunSide<'_> {
    /// Returns the mode's name; `wait_point` is the one in the run's own record.
    fn mode(&self, shape: &str, wait_point: Option<&str>) -> String {
        let way = self.ways.get(shape);
        let wait_point = wait_point.or_else(|| way.and_then(|way| way.wait_point));
        mode_of(
            way.and_then(|way| way.mode.as_deref()).unwrap_or(shape),
            wait_point,
        )
    }
}

/// Returns `A`, `B`, … `Z`, `A2`, …
#[must_use]
pub fn letter(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

/// A share with its interval, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PercentShare {
    /// The share.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl PercentShare {
    /// Formats the share for reports.
    #[must_use]
    pub fn display_text(self) -> String {
        Format::Share.show(self.value, Some([self.low, self.high]))
    }
}

/// Combined results of a replication mode; `None` for what no run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModePoint {
    /// Median write latency in µs.
    pub commit_us: Option<f64>,
    /// Operations per second at `threads`.
    pub per_s: Option<f64>,
    /// The number of threads.
    pub threads: Option<u32>,
    /// Stale immediate reads.
    pub stale: Option<PercentShare>,
    /// Crashes that lost acknowledged writes.
    pub lossy: Option<PercentShare>,
    /// Mean number of writes lost in such a crash.
    pub missing: Option<f64>,
    /// Median lag from the acknowledgement, in µs.
    pub lag_us: Option<f64>,
    /// The letters of the runs.
    pub from: Vec<String>,
}

/// Returns `mariadb/semi-sync after-sync` for a shape such as `semi-sync:1`.
fn mode_of(shape: &str, wait_point: Option<&str>) -> String {
    let bare = shape.split([':', ' ']).next().unwrap_or(shape);
    let named = match bare {
        "group" => "mysql/group".to_owned(),
        bare if bare.contains('/') => bare.to_owned(),
        bare => format!("mariadb/{bare}"),
    };
    wait_point.map_or(named.clone(), |point| format!("{named} {point}"))
}

/// Returns a run's results by mode, with the modes' names.
fn points(side: &RunSide<'_>) -> Vec<(String, ModePoint)> {
    match side.findings {
        RunSummary::Lag(document) => {
            let rows = overall_rows(document).into_iter();
            let point = |row: &LagRow| ModePoint {
                lag_us: row.from_ack.p50_us,
                ..ModePoint::default()
            };
            rows.map(|row| (side.mode(&row.shape, None), point(row)))
                .collect()
        }
        RunSummary::Stale(document) => {
            let plain = |row: &&StaleRow| {
                row.load == "none"
                    && row.read_consistency == "off"
                    && !row.null_replica
                    && matches!(row.session_reset.as_str(), "" | "keep")
            };
            let point = |row: &StaleRow| {
                let ends = row.stale_percent_ci95;
                let share = row.stale_percent.zip(ends);
                ModePoint {
                    stale: share.map(|(value, [low, high])| PercentShare { value, low, high }),
                    ..ModePoint::default()
                }
            };
            let rows = document.results.rows.iter().filter(plain);
            rows.map(|row| (side.mode(&row.shape, None), point(row)))
                .collect()
        }
        RunSummary::Cost(document) => {
            let most = document.results.rows.iter().map(|row| row.threads).max();
            let far = |row: &CostRow| row.link_delay_us.unwrap_or(0.0) != 0.0;
            let rows = document.results.rows.iter();
            let rows = rows.filter(|row| Some(row.threads) == most && !far(row));
            let point = |row: &CostRow| ModePoint {
                commit_us: row.latency.p50_us,
                per_s: row.throughput.mean,
                threads: Some(row.threads),
                ..ModePoint::default()
            };
            let mode = |row: &CostRow| {
                let shape = format!("{}/{}", row.engine.to_lowercase(), row.mode);
                mode_of(&shape, row.wait_point.as_deref())
            };
            rows.map(|row| (mode(row), point(row))).collect()
        }
        RunSummary::Loss(document) => {
            let point = |row: &LossRow| ModePoint {
                lossy: Some(PercentShare {
                    value: row.lossy.percent,
                    low: row.lossy.percent_ci95[0],
                    high: row.lossy.percent_ci95[1],
                }),
                missing: row.lost_per_crash.mean,
                ..ModePoint::default()
            };
            let mode = |row: &LossRow| side.mode(&row.shape, row.wait_point.as_deref());
            let rows = document.results.rows.iter();
            rows.map(|row| (mode(row), point(row))).collect()
        }
        RunSummary::Load(_) | RunSummary::Other => Vec::new(),
    }
}

impl ModePoint {
    /// Adds the results of another run or row; existing ones take precedence.
    fn add(&mut self, other: Self, letter: &str) {
        self.lag_us = self.lag_us.or(other.lag_us);
        self.stale = self.stale.or(other.stale);
        if self.commit_us.is_none() {
            let threads = other.threads.or(self.threads);
            let per_s = other.per_s.or(self.per_s);
            (self.commit_us, self.per_s, self.threads) = (other.commit_us, per_s, threads);
        }
        if self.lossy.is_none() {
            (self.lossy, self.missing) = (other.lossy, other.missing);
        }
        if !self.from.iter().any(|known| known == letter) {
            self.from.push(letter.to_owned());
        }
    }
}

/// Combines the results of all runs by mode.
pub fn mode_map(sides: &[RunSide<'_>]) -> BTreeMap<String, ModePoint> {
    let mut map: BTreeMap<String, ModePoint> = BTreeMap::new();
    for side in sides {
        for (mode, point) in points(side) {
            map.entry(mode).or_default().add(point, &side.letter);
        }
    }
    map
}

/// Returns the report of several runs.
#[must_use]
pub fn report(sides: &[RunSide<'_>]) -> Report {
    let mut shapes: Vec<&str> = sides.iter().map(|side| side.shape).collect();
    shapes.dedup();
    let shape = shapes.join(", ");
    let mut report = Report {
        command: "report",
        question: "Runs side by side",
        facts: vec![shape.clone()],
        shape,
        extent: format!("{} runs", sides.len()),
        started_at: sides
            .first()
            .map_or_else(String::new, |side| side.started_at.to_owned()),
        answer: answer(sides),
        several: true,
        how: vec![
            "The runs were measured separately; the differences between them have no interval here. \
             Use `replimeter compare` to test them."
                .to_owned(),
        ],
        ..Report::default()
    };
    let runs = Table::of(
        7,
        sides,
        &[
            ("run", &|side| Cell::from(&side.letter)),
            ("command", &|side| side.command.into()),
            ("title", &|side| side.title.into()),
            ("servers", &|side| side.shape.into()),
            ("begun", &|side| side.started_at.into()),
            ("run directory", &|side| side.dir.into()),
            ("found", &|side| side.answer.into()),
        ],
    );
    report.add(Block::table("runs", "Runs", runs).shown(Visibility::OnPage));
    let map = mode_map(sides);
    // Lags alone have their own chart and table; a map of dashes adds nothing.
    let known = map
        .values()
        .any(|point| point.commit_us.is_some() || point.stale.is_some() || point.lossy.is_some());
    if map.len() > 1 && known {
        let note = "A dash: no run measured it. Stale reads are without load and without synchronous reads; latencies and rates of writes are those \
                    of a cost run at its largest number of threads. If several runs have a figure, the first one counts.";
        let block = Block::table("map", "Results by mode", map_of(&map));
        report.add(block.with_notes(vec![note.to_owned()]));
    }
    for side in sides {
        let title = format!(
            "{}: {} {} ({})",
            side.letter, side.command, side.shape, side.dir
        );
        let text = Content::Verbatim(side.text.clone());
        let block = Block::new(format!("run-{}", side.letter), title, text);
        report.add(block.after_charts().collapsed());
    }
    report
}

/// Returns the map as a table.
pub fn map_of(map: &BTreeMap<String, ModePoint>) -> Table {
    Table::of(
        1,
        map,
        &[
            ("mode", &|(mode, _)| Cell::from(*mode)),
            ("threads", &|(_, of)| of.threads.into()),
            ("write latency, p50", &|(_, of)| {
                Format::Time.cell(of.commit_us)
            }),
            ("writes per s", &|(_, of)| per_second(of.per_s).into()),
            ("stale immediate reads, % [95 %]", &|(_, of)| {
                of.stale.map(PercentShare::display_text).into()
            }),
            ("crashes with loss, % [95 %]", &|(_, of)| {
                of.lossy.map(PercentShare::display_text).into()
            }),
            ("lost per crash", &|(_, of)| {
                Format::Decimals(1).cell(of.missing)
            }),
            ("lag p50", &|(_, of)| Format::Time.cell(of.lag_us)),
            ("runs", &|(_, of)| of.from.join(", ").into()),
        ],
    )
}

/// Returns one sentence for the head of the page.
fn answer(sides: &[RunSide<'_>]) -> String {
    let mut commands: Vec<&str> = sides.iter().map(|side| side.command).collect();
    commands.sort_unstable();
    commands.dedup();
    format!(
        "{} runs side by side ({}). Each finding is from its own run.",
        sides.len(),
        commands.join(", ")
    )
}

/// Returns the label of a mode in a `cost` run, as [`CostDocument`] spells it.
pub fn price_label(side: &RunSide<'_>, row: &CostRow) -> String {
    let wait = row
        .wait_point
        .as_deref()
        .map_or_else(String::new, |point| format!(" {point}"));
    format!(
        "{}: {}/{}{wait}",
        side.letter,
        row.engine.to_lowercase(),
        row.mode
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use replimeter_model::{
        cost::CostResults,
        lag::LagResults,
        loss::{CrashShare, LossResults},
        record::Distribution,
        stale::StaleResults,
    };

    use super::*;

    pub(crate) fn side<'a>(
        letter: &str,
        command: &'static str,
        findings: RunSummary<'a>,
    ) -> RunSide<'a> {
        RunSide {
            letter: letter.to_owned(),
            dir: "/runs/<b>",
            command,
            title: None,
            shape: "semi-sync:1",
            started_at: "",
            answer: "found",
            findings,
            ways: BTreeMap::new(),
            text: String::new(),
        }
    }

    #[test]
    fn run_letters_do_not_run_out() {
        assert_eq!([0, 25, 26, 53].map(letter), ["A", "Z", "A2", "B3"]);
    }

    #[test]
    fn mode_combines_the_figures_of_every_run() {
        let times = Distribution {
            p50_us: Some(100.0),
            ..Distribution::default()
        };
        let lag = LagDocument {
            results: LagResults {
                rows: vec![LagRow {
                    shape: "semi-sync:1".to_owned(),
                    from_ack: times.clone(),
                    ..LagRow::default()
                }],
                ..LagResults::default()
            },
            ..LagDocument::default()
        };
        let row = StaleRow {
            shape: "semi-sync:1".to_owned(),
            load: "none".to_owned(),
            read_consistency: "off".to_owned(),
            stale_percent: Some(4.0),
            stale_percent_ci95: Some([3.0, 5.0]),
            ..StaleRow::default()
        };
        let loaded = StaleRow {
            load: "insert:8@writer".to_owned(),
            stale_percent: Some(90.0),
            ..row.clone()
        };
        let stale = StaleDocument {
            results: StaleResults {
                rows: vec![loaded, row],
                ..StaleResults::default()
            },
            ..StaleDocument::default()
        };
        let price = |threads, per_s| CostRow {
            engine: "MariaDB".to_owned(),
            mode: "semi-sync".to_owned(),
            wait_point: Some("after-sync".to_owned()),
            threads,
            throughput: replimeter_model::load::Rate {
                mean: Some(per_s),
                ..Default::default()
            },
            latency: times.clone(),
            ..CostRow::default()
        };
        let cost = CostDocument {
            results: CostResults {
                rows: vec![price(1, 10.0), price(8, 50.0)],
                ..CostResults::default()
            },
            ..CostDocument::default()
        };
        let loss = LossDocument {
            results: LossResults {
                rows: vec![LossRow {
                    shape: "mysql/async:1".to_owned(),
                    lossy: CrashShare {
                        count: 3,
                        of: 4,
                        percent: 75.0,
                        percent_ci95: [30.0, 95.0],
                    },
                    ..LossRow::default()
                }],
                ..LossResults::default()
            },
            ..LossDocument::default()
        };
        let waits = ReplicationSetup {
            mode: None,
            wait_point: Some("after-sync"),
        };
        let joined = RunSide {
            ways: BTreeMap::from([("semi-sync:1".to_owned(), waits)]),
            ..side("A", "lag", RunSummary::Lag(&lag))
        };
        let dear = side("C", "cost", RunSummary::Cost(&cost));
        assert_eq!(
            mode_map(&[joined, dear]).len(),
            1,
            "a lag run joins the costs of its wait point"
        );
        let sides = [
            side("A", "lag", RunSummary::Lag(&lag)),
            side("B", "stale", RunSummary::Stale(&stale)),
            side("C", "cost", RunSummary::Cost(&cost)),
            side("D", "loss", RunSummary::Loss(&loss)),
        ];
        let map = mode_map(&sides);
        assert_eq!(
            map.keys().collect::<Vec<_>>(),
            [
                "mariadb/semi-sync",
                "mariadb/semi-sync after-sync",
                "mysql/async"
            ]
        );
        let plain = &map["mariadb/semi-sync"];
        assert_eq!(
            (plain.lag_us, plain.stale.map(|share| share.value)),
            (Some(100.0), Some(4.0))
        );
        assert_eq!(plain.from, ["A", "B"]);
        assert_eq!(
            map["mariadb/semi-sync after-sync"].per_s,
            Some(50.0),
            "that of the most threads"
        );
        assert_eq!(
            map["mysql/async"].lossy.map(|share| share.value),
            Some(75.0)
        );
        assert_eq!(map_of(&map).rows[0][6], Cell::NONE, "no run measured it");
        assert_eq!(
            answer(&sides),
            "4 runs side by side (cost, lag, loss, stale). Each finding is from its own run."
        );
    }
}
