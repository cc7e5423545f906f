//! Several runs beside one another: what each found, and what they say together of
//! each way to replicate.

use std::collections::BTreeMap;

use replimeter_model::{
    cost::{self, CostDocument},
    load::LoadDocument,
    loss::LossDocument,
    manifest::Manifest,
    record::{LagDocument, TargetRecord},
    stale::StaleDocument,
};

use crate::{
    answer::overall_rows,
    figures::{count, time},
    stale::percent,
};

/// What a run measured, where several can be laid side by side.
#[derive(Clone, Copy, Debug)]
pub enum Findings<'a> {
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
    /// Of a command whose figures stand for themselves.
    Other,
}

/// One of the runs.
#[derive(Clone, Debug)]
pub struct Side<'a> {
    /// What it is called on the page: `A`, `B`, …
    pub letter: String,
    /// Its directory.
    pub dir: &'a str,
    /// The command.
    pub command: &'static str,
    /// What the plan calls it.
    pub title: Option<&'a str>,
    /// What was measured.
    pub shape: &'a str,
    /// When it began.
    pub started_at: &'a str,
    /// Its finding in words.
    pub answer: &'a str,
    /// What it measured.
    pub findings: Findings<'a>,
    /// How each of its shapes replicates, as its servers said.
    pub ways: BTreeMap<String, Way>,
    /// Its report as text.
    pub text: String,
}

/// How a shape replicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// `mariadb/galera`, where the shape's own name does not say it.
    pub mode: Option<String>,
    /// Where a semi-synchronous primary waits.
    pub wait_point: Option<&'static str>,
}

impl Way {
    /// How each shape of a run replicates, by what its servers said.
    #[must_use]
    pub fn of_run(target: &TargetRecord, manifest: &Manifest) -> BTreeMap<String, Self> {
        let mut ways = BTreeMap::new();
        // The primary comes first.
        for server in &manifest.servers {
            ways.entry(server.shape.clone()).or_insert_with(|| {
                let found = target.mode_of(&server.shape).filter(|_| !target.sandbox);
                Self {
                    mode: found.map(|mode| format!("{}/{mode}", server.flavour)),
                    wait_point: server.wait_point(),
                }
            });
        }
        ways
    }
}

impl Side<'_> {
    /// What the mode of a shape is called; `wait_point` is what the run's own record says of it.
    fn mode(&self, shape: &str, wait_point: Option<&str>) -> String {
        let way = self.ways.get(shape);
        let wait_point = wait_point.or_else(|| way.and_then(|way| way.wait_point));
        mode_of(
            way.and_then(|way| way.mode.as_deref()).unwrap_or(shape),
            wait_point,
        )
    }
}

/// `A`, `B`, … `Z`, `A2`, …
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
pub(crate) struct Percent {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Percent {
    pub(crate) fn shown(self) -> String {
        percent(self.value, self.low, self.high)
    }
}

/// What the runs say of one way to replicate; what none of them measured is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModePoint {
    /// Median time of a write until its acknowledgement, and with how many threads.
    pub(crate) commit_us: Option<f64>,
    pub(crate) per_s: Option<f64>,
    pub(crate) threads: Option<u32>,
    /// Reads at once after the acknowledgement that missed it.
    pub(crate) stale: Option<Percent>,
    /// Crashes that lost acknowledged writes, and how many writes in each.
    pub(crate) lossy: Option<Percent>,
    pub(crate) missing: Option<f64>,
    /// Median lag from the acknowledgement.
    pub(crate) lag_us: Option<f64>,
    /// The letters of the runs.
    pub(crate) from: Vec<String>,
}

/// `mariadb/semi-sync after-sync` of a shape such as `semi-sync:1`.
fn mode_of(shape: &str, wait_point: Option<&str>) -> String {
    let bare = shape.split([':', ' ']).next().unwrap_or(shape);
    let named = match bare {
        "group" => "mysql/group".to_owned(),
        bare if bare.contains('/') => bare.to_owned(),
        bare => format!("mariadb/{bare}"),
    };
    wait_point.map_or(named.clone(), |point| format!("{named} {point}"))
}

/// What all runs together say of each mode, by its name.
pub(crate) fn mode_map(sides: &[Side<'_>]) -> BTreeMap<String, ModePoint> {
    let mut map: BTreeMap<String, ModePoint> = BTreeMap::new();
    let mut at = |mode: String, letter: &str, note: &mut dyn FnMut(&mut ModePoint)| {
        let point = map.entry(mode).or_default();
        note(point);
        if !point.from.iter().any(|known| known == letter) {
            point.from.push(letter.to_owned());
        }
    };
    for side in sides {
        let letter = &side.letter;
        match side.findings {
            Findings::Lag(document) => {
                for row in overall_rows(document) {
                    // The first replica and the first method speak for a shape.
                    at(side.mode(&row.shape, None), letter, &mut |point| {
                        point.lag_us = point.lag_us.or(row.from_ack.p50_us)
                    });
                }
            }
            Findings::Stale(document) => {
                let plain = |row: &&replimeter_model::stale::StaleRow| {
                    row.load == "none"
                        && row.sync_reads == "off"
                        && !row.null_replica
                        && matches!(row.pool.as_str(), "" | "keep")
                };
                for row in document.results.iter().filter(plain) {
                    let share = row
                        .stale_percent
                        .zip(row.stale_percent_low.zip(row.stale_percent_high));
                    let share = share.map(|(value, (low, high))| Percent { value, low, high });
                    at(side.mode(&row.shape, None), letter, &mut |point| {
                        point.stale = point.stale.or(share)
                    });
                }
            }
            Findings::Cost(document) => {
                let most = document.results.iter().map(|row| row.threads).max();
                let rows = document.results.iter().filter(|row| {
                    Some(row.threads) == most && row.link_delay_us.unwrap_or(0.0) == 0.0
                });
                for row in rows {
                    let engine = row.engine.to_lowercase();
                    at(
                        mode_of(&format!("{engine}/{}", row.mode), row.wait_point.as_deref()),
                        letter,
                        &mut |point| {
                            if point.commit_us.is_none() {
                                (point.commit_us, point.per_s, point.threads) =
                                    (row.latency.p50_us, row.throughput.mean, Some(row.threads));
                            }
                        },
                    );
                }
            }
            Findings::Loss(document) => {
                for row in &document.results {
                    let lossy = Percent {
                        value: row.lossy.percent,
                        low: row.lossy.percent_low,
                        high: row.lossy.percent_high,
                    };
                    at(
                        side.mode(&row.shape, row.wait_point.as_deref()),
                        letter,
                        &mut |point| {
                            if point.lossy.is_none() {
                                (point.lossy, point.missing) =
                                    (Some(lossy), row.missing_per_crash.mean);
                            }
                        },
                    );
                }
            }
            Findings::Load(_) | Findings::Other => {}
        }
    }
    map
}

/// Headings of [`mode_lines`].
pub(crate) const MODE_HEADINGS: [&str; 9] = [
    "mode",
    "threads",
    "write until ack, p50",
    "writes per s",
    "stale at once, % [95 %]",
    "crashes that lost, % [95 %]",
    "lost per crash",
    "lag p50",
    "runs",
];

/// The map as lines of cells; a dash for what no run measured.
pub(crate) fn mode_lines(map: &BTreeMap<String, ModePoint>) -> Vec<Vec<String>> {
    let dash = || "–".to_owned();
    let line = |(mode, point): (&String, &ModePoint)| {
        vec![
            mode.clone(),
            point
                .threads
                .map_or_else(dash, |threads| threads.to_string()),
            point.commit_us.map_or_else(dash, time),
            point
                .per_s
                .map_or_else(dash, |per_s| count(per_s.max(0.0).round() as u64)),
            point.stale.map_or_else(dash, Percent::shown),
            point.lossy.map_or_else(dash, Percent::shown),
            point
                .missing
                .map_or_else(dash, |missing| format!("{missing:.1}")),
            point.lag_us.map_or_else(dash, time),
            point.from.join(", "),
        ]
    };
    map.iter().map(line).collect()
}

/// One sentence for the head of the page.
pub(crate) fn answer(sides: &[Side<'_>]) -> String {
    let mut commands: Vec<&str> = sides.iter().map(|side| side.command).collect();
    commands.sort_unstable();
    commands.dedup();
    format!(
        "{} runs beside one another ({}). Each finding is that of its own run.",
        sides.len(),
        commands.join(", ")
    )
}

/// The label of a mode of a price list, as [`cost::CostDocument`] spells it.
pub(crate) fn price_label(side: &Side<'_>, row: &cost::CostRow) -> String {
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
        cost::CostRow,
        loss::{LossRow, Share},
        record::{Distribution, LagRow},
        stale::StaleRow,
    };

    use super::*;

    pub(crate) fn side<'a>(
        letter: &str,
        command: &'static str,
        findings: Findings<'a>,
    ) -> Side<'a> {
        Side {
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
    fn letters_do_not_end() {
        assert_eq!([0, 25, 26, 53].map(letter), ["A", "Z", "A2", "B3"]);
    }

    #[test]
    fn a_mode_gathers_what_each_run_knows_of_it() {
        let times = Distribution {
            p50_us: Some(100.0),
            ..Distribution::default()
        };
        let lag = LagDocument {
            results: vec![LagRow {
                shape: "semi-sync:1".to_owned(),
                from_ack: times.clone(),
                ..LagRow::default()
            }],
            ..LagDocument::default()
        };
        let row = StaleRow {
            shape: "semi-sync:1".to_owned(),
            load: "none".to_owned(),
            sync_reads: "off".to_owned(),
            stale_percent: Some(4.0),
            stale_percent_low: Some(3.0),
            stale_percent_high: Some(5.0),
            ..StaleRow::default()
        };
        let loaded = StaleRow {
            load: "insert:8@writer".to_owned(),
            stale_percent: Some(90.0),
            ..row.clone()
        };
        let stale = StaleDocument {
            results: vec![loaded, row],
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
            results: vec![price(1, 10.0), price(8, 50.0)],
            ..CostDocument::default()
        };
        let loss = LossDocument {
            results: vec![LossRow {
                shape: "mysql/async:1".to_owned(),
                lossy: Share {
                    count: 3,
                    of: 4,
                    percent: 75.0,
                    percent_low: 30.0,
                    percent_high: 95.0,
                },
                ..LossRow::default()
            }],
            ..LossDocument::default()
        };
        let waits = Way {
            mode: None,
            wait_point: Some("after-sync"),
        };
        let joined = Side {
            ways: BTreeMap::from([("semi-sync:1".to_owned(), waits)]),
            ..side("A", "lag", Findings::Lag(&lag))
        };
        let dear = side("C", "cost", Findings::Cost(&cost));
        assert_eq!(
            mode_map(&[joined, dear]).len(),
            1,
            "a lag run joins its wait point's prices"
        );
        let sides = [
            side("A", "lag", Findings::Lag(&lag)),
            side("B", "stale", Findings::Stale(&stale)),
            side("C", "cost", Findings::Cost(&cost)),
            side("D", "loss", Findings::Loss(&loss)),
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
        assert_eq!(mode_lines(&map)[0][6], "–", "nobody measured it");
        assert_eq!(
            answer(&sides),
            "4 runs beside one another (cost, lag, loss, stale). Each finding is that of its own run."
        );
    }
}
