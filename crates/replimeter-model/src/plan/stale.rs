//! The settings of `stale`.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OneOrMore, PlanError, Until, contradiction};
use crate::{
    load::{Arrivals, LoadSpec, Size},
    span::Span,
    suggest,
};

/// Rounds of a run when neither a number nor a time is asked for.
const DEFAULT_ROUNDS: u64 = 1000;
/// Rows of the table, as published: the odd numbers up to about 1,000.
const DEFAULT_ROWS: u32 = 500;
/// The most rows.
const MOST_ROWS: u32 = 1_000_000;
/// The longest time after the acknowledgement at which a read can be scheduled.
const LONGEST_OFFSET: Span = Span::from_secs(60);
/// The most points of a curve.
const MOST_OFFSETS: usize = 200;
/// What stands for no load in a case.
const NO_LOAD: &str = "none";

/// What makes a read wait until it shows what was acknowledged before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncReads {
    /// Nothing: reads as they are.
    #[default]
    Off,
    /// What the server offers for it: the reader waits.
    On,
    /// The reader waits (`wsrep_sync_wait`, `group_replication_consistency=BEFORE`).
    Before,
    /// The writer waits (`group_replication_consistency=AFTER`).
    After,
    /// Both wait (`BEFORE_AND_AFTER`).
    BeforeAndAfter,
    /// The client waits for the write's GTID on the reader's connection, before the read.
    Gtid,
}

impl SyncReads {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Off,
        Self::On,
        Self::Before,
        Self::After,
        Self::BeforeAndAfter,
        Self::Gtid,
    ];

    /// The name in plans and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Before => "before",
            Self::After => "after",
            Self::BeforeAndAfter => "before-and-after",
            Self::Gtid => "gtid",
        }
    }
}

impl FromStr for SyncReads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|level| level.name() == text)
            .ok_or_else(|| {
                format!(
                    "unknown way of synchronous reads `{text}`{}; known: {}",
                    suggest::hint(text, Self::ALL.map(Self::name)),
                    known()
                )
            })
    }
}

impl fmt::Display for SyncReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

serde_as_text!(
    SyncReads,
    "description": "What a read waits for",
    "enum": ["off", "on", "before", "after", "before-and-after", "gtid"]
);

/// What becomes of a connection between two rounds.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Pool {
    /// It stays as it is.
    #[default]
    Keep,
    /// `COM_RESET_CONNECTION`, as pools do: session settings are lost.
    Reset,
    /// `COM_CHANGE_USER`, as older pools do.
    ChangeUser,
}

impl Pool {
    /// The name in plans and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Reset => "reset",
            Self::ChangeUser => "change-user",
        }
    }
}

/// When the next round begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StalePace {
    /// When every reader has shown the last write; as published.
    #[default]
    Visible,
    /// When every reader has been read once, whatever it showed: so a reader can be several
    /// versions behind. There are no delays then.
    Ack,
}

/// When after the acknowledgement the reads of the curve are scheduled; written `auto`, `none`, or
/// times with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Offsets {
    /// From 0 to beyond the longest delay that the rounds before showed.
    #[default]
    Auto,
    /// No curve.
    None,
    /// These, ascending.
    At(Vec<Span>),
}

impl FromStr for Offsets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => return Ok(Self::Auto),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let mut spans = Vec::new();
        for part in text.split(',') {
            let span: Span = part.trim().parse().map_err(|error: crate::span::SpanError| {
                format!("`{text}` is no list of times: {error}; write auto, none, or such as 0,100us,1ms")
            })?;
            if span > LONGEST_OFFSET {
                return Err(format!(
                    "a read is scheduled at most {LONGEST_OFFSET} after the acknowledgement"
                ));
            }
            spans.push(span);
        }
        spans.sort_unstable();
        spans.dedup();
        if spans.len() > MOST_OFFSETS {
            return Err(format!("a curve has at most {MOST_OFFSETS} points"));
        }
        Ok(Self::At(spans))
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::At(spans) => f.write_str(
                &spans
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        }
    }
}

serde_as_text!(
    Offsets,
    "description": "When after the acknowledgement the reads of the curve are scheduled",
    "pattern": "^ *(auto|none|[0-9].*)$",
    "examples": ["auto", "none", "0,100us,1ms"]
);

/// Loads that run together, beside the rounds of one row of the table; written `none`, or loads with ` + `
/// between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case(pub Vec<LoadSpec>);

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == NO_LOAD {
            return Ok(Self::default());
        }
        text.split(" + ")
            .map(|load| load.trim().parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(NO_LOAD);
        }
        f.write_str(
            &self
                .0
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" + "),
        )
    }
}

serde_as_text!(
    Case,
    "description": "Loads that run together, with ` + ` between them, or none",
    "pattern": "^ *(none|.+:[0-9]+@.+) *$",
    "examples": ["none", "insert:8@primary", "insert:8@primary + select:4@replica1"]
);

/// Connections whose own reads are judged, written `WRITERS:READERS`; the readers are for each reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Connections that write.
    pub writers: u32,
    /// Connections that read, on each reader.
    pub readers: u32,
}

impl FromStr for Judged {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}` is not WRITERS:READERS, such as 4:8; each from 1 to 256");
        let (writers, readers) = text.split_once(':').ok_or_else(refuse)?;
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|number| (1..=256).contains(number))
        };
        Ok(Self {
            writers: number(writers).ok_or_else(refuse)?,
            readers: number(readers).ok_or_else(refuse)?,
        })
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.writers, self.readers)
    }
}

/// Whose own reads are judged in place of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JudgeLoad {
    /// The loads', as far as their workloads name versions.
    Load,
    /// Connections of our own workloads for that, `versioned-update` and `versioned-select`.
    Own(Judged),
}

/// The name of the former.
const OF_THE_LOAD: &str = "load";

impl FromStr for JudgeLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == OF_THE_LOAD {
            return Ok(Self::Load);
        }
        text.parse()
            .map(Self::Own)
            .map_err(|reason: String| format!("{reason}; or `{OF_THE_LOAD}` for that of --load"))
    }
}

impl fmt::Display for JudgeLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load => f.write_str(OF_THE_LOAD),
            Self::Own(judged) => judged.fmt(f),
        }
    }
}

serde_as_text!(
    JudgeLoad,
    "description": "The loads' own reads, or so many connections of our own that write and read", "examples": ["load", "4:8"]
);

impl Judged {
    /// As loads.
    fn loads(self) -> [LoadSpec; 2] {
        let load = |workload: &str, threads: u32, node: &str| LoadSpec {
            workload: workload.to_owned(),
            threads,
            node: node.to_owned(),
        };
        [
            load("versioned-update", self.writers, "writer"),
            load("versioned-select", self.readers, READERS),
        ]
    }
}

/// In the place of a load's server: every reader, each with so many threads.
pub const READERS: &str = "readers";

/// The settings of `stale` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StaleSpec {
    /// The server that is written to; found out when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
    /// The servers that are read; all others when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader: Option<OneOrMore<String>>,
    /// How many rounds with a read at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
    /// How long, instead of a number of rounds.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// When the next round begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<StalePace>,
    /// Rows of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u32>,
    /// When the reads of the curve are scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offsets: Option<Offsets>,
    /// Rounds at each point of the curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve_rounds: Option<u64>,
    /// Rounds at the beginning that are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<u64>,
    /// What makes reads wait; several are measured one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_reads: Option<OneOrMore<SyncReads>>,
    /// What becomes of synchronous connections between rounds; several are measured one after another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<OneOrMore<Pool>>,
    /// Loads meanwhile, all together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load: Vec<LoadSpec>,
    /// Loads meanwhile, one case after another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// Operations per second of every load; back to back otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// When the operations of a rate are due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// How much data the loads' workloads have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_size: Option<Size>,
    /// Whose own reads are judged, in place of rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge_load: Option<JudgeLoad>,
    /// How long a write may stay unseen before the run ends in an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
    /// Give the measuring threads real-time priority where that is permitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_time: Option<bool>,
    /// What the random ids and the order of the offsets are drawn from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// A resolved `stale` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalePlan {
    /// The server that is written to; found out when `None`.
    pub writer: Option<String>,
    /// The servers that are read; all others when empty.
    pub readers: Vec<String>,
    /// When the rounds with a read at once end.
    pub until: Until,
    /// When the next round begins.
    pub pace: StalePace,
    /// Rows of the table.
    pub rows: u32,
    /// When the reads of the curve are scheduled.
    pub offsets: Offsets,
    /// Rounds at each point of the curve.
    pub curve_rounds: u64,
    /// Rounds at the beginning that are not counted.
    pub warm_up: u64,
    /// What makes reads wait, one after another; never empty.
    pub sync_reads: Vec<SyncReads>,
    /// What becomes of synchronous connections between rounds, one after another; never empty.
    pub pools: Vec<Pool>,
    /// Loads meanwhile, one case after another; never empty.
    pub cases: Vec<Case>,
    /// Operations per second of every load.
    pub rate: Option<u64>,
    /// When the operations of a rate are due.
    pub arrivals: Arrivals,
    /// How much data the loads' workloads have; `None` for what each says.
    pub load_size: Option<Size>,
    /// The loads' own reads are judged, in place of rounds.
    pub judge_load: bool,
    /// How long a write may stay unseen.
    pub timeout: Span,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
    /// Give the measuring threads real-time priority.
    pub real_time: bool,
    /// What the random ids and the order of the offsets are drawn from.
    pub seed: u64,
}

/// Refuses what is given twice.
fn distinct<T: PartialEq + Clone>(
    values: Option<&OneOrMore<T>>,
    default: T,
    what: &str,
) -> Result<Vec<T>, PlanError> {
    let values = values.map_or_else(|| vec![default], OneOrMore::all);
    if values.is_empty() {
        return Err(PlanError::Contradiction(format!(
            "the list of {what} is empty"
        )));
    }
    for (index, value) in values.iter().enumerate() {
        if values[..index].contains(value) {
            return Err(PlanError::Contradiction(format!(
                "one of {what} is given twice"
            )));
        }
    }
    Ok(values)
}

impl StaleSpec {
    pub(super) fn resolve(&self, sandbox: bool) -> Result<StalePlan, PlanError> {
        let until = match (self.rounds, self.duration) {
            (Some(_), Some(_)) => return contradiction("rounds and for exclude each other"),
            (Some(0), None) => return contradiction("rounds must be at least 1"),
            (None, Some(span)) if span.0.is_zero() => {
                return contradiction("a run for 0s measures nothing");
            }
            (None, Some(span)) => Until::Elapsed(span),
            (rounds, None) => Until::Rounds(rounds.unwrap_or(DEFAULT_ROUNDS)),
        };
        let rows = self.rows.unwrap_or(DEFAULT_ROWS);
        if !(1..=MOST_ROWS).contains(&rows) {
            return Err(PlanError::Contradiction(format!(
                "rows must be from 1 to {MOST_ROWS}"
            )));
        }
        let timeout = self.timeout.unwrap_or(Span::from_secs(10));
        if timeout.0.is_zero() {
            return contradiction("a time-out of 0 would end every round; the default is 10s");
        }
        if !self.load.is_empty() && !self.cases.is_empty() {
            return contradiction("load is one case by itself; give either load or cases");
        }
        let mut cases = if self.cases.is_empty() {
            vec![Case(self.load.clone())]
        } else {
            self.cases.clone()
        };
        for (index, case) in cases.iter().enumerate() {
            if cases[..index].contains(case) {
                return Err(PlanError::Contradiction(format!(
                    "the case `{case}` is given twice"
                )));
            }
        }
        if let Some(JudgeLoad::Own(judged)) = self.judge_load {
            cases
                .iter_mut()
                .for_each(|case| case.0.extend(judged.loads()));
        }
        if self.rate == Some(0) {
            return contradiction("a rate of 0 is no load; leave rate out for a closed loop");
        }
        if self.rate.is_some() && cases.iter().all(|case| case.0.is_empty()) {
            return contradiction("a rate needs a load; add load, such as oltp-mix:32@node1");
        }
        if self.arrivals.is_some() && self.rate.is_none() {
            return contradiction("arrivals belong to a rate; add rate, such as 2000");
        }
        if self.load_size.is_some() && cases.iter().all(|case| case.0.is_empty()) {
            return contradiction(
                "load-size is how much data a load works on; add load, such as oltp-mix:32@node1",
            );
        }
        let sync_reads = distinct(self.sync_reads.as_ref(), SyncReads::Off, "sync-reads")?;
        let pools = distinct(self.pool.as_ref(), Pool::Keep, "pool")?;
        if pools != [Pool::Keep] && sync_reads == [SyncReads::Off] {
            return contradiction(
                "pool is about synchronous reads, which a reset connection forgets; add sync-reads",
            );
        }
        let readers = self.reader.as_ref().map(OneOrMore::all).unwrap_or_default();
        for (index, reader) in readers.iter().enumerate() {
            if readers[..index].contains(reader) {
                return Err(PlanError::Contradiction(format!(
                    "the reader `{reader}` is given twice"
                )));
            }
        }
        let pace = self.pace.unwrap_or_default();
        let judged = self.judge_load;
        if judged.is_some() && cases.iter().any(|case| case.0.is_empty()) {
            return contradiction(
                "judge-load is about the reads of a load: add load, such as versioned-update:4@writer and versioned-select:8@reader, or say judge-load 4:8 for these",
            );
        }
        if judged.is_some() && sync_reads.contains(&SyncReads::Gtid) {
            return contradiction(
                "with judge-load the load's own statements are all there is, and waiting for a GTID is one more: sync-reads may be off, before, after, before-and-after",
            );
        }
        if judged.is_some()
            && (self.offsets.is_some() || self.curve_rounds.is_some() || self.pace.is_some())
        {
            return contradiction(
                "with judge-load there are no rounds: its own reads make the curve; leave out offsets, curve-rounds and pace",
            );
        }
        if judged.is_some() && self.rounds.is_some() {
            return contradiction(
                "with judge-load there are no rounds: say for how long, such as for 30s",
            );
        }
        if judged.is_some() && pools != [Pool::Keep] {
            return contradiction("with judge-load connections are kept; leave out pool");
        }
        let until = match (judged, self.duration) {
            (Some(_), None) => Until::Elapsed(Span::from_secs(30)),
            _ => until,
        };
        let curve_rounds = self.curve_rounds.unwrap_or(match until {
            Until::Rounds(rounds) => (rounds / 5).clamp(100, 2000),
            Until::Elapsed(_) => 200,
        });
        if curve_rounds == 0 {
            return contradiction("a curve needs rounds; for none say offsets none");
        }
        Ok(StalePlan {
            writer: self.writer.clone(),
            readers,
            until,
            pace,
            // Of a load that is judged it was the size of its data.
            rows: if judged.is_some() { DEFAULT_ROWS } else { rows },
            offsets: self.offsets.clone().unwrap_or_default(),
            curve_rounds,
            warm_up: self.warm_up.unwrap_or(50),
            sync_reads,
            pools,
            cases,
            rate: self.rate,
            arrivals: self.arrivals.unwrap_or_default(),
            load_size: self.load_size.or_else(|| {
                self.rows
                    .filter(|_| judged.is_some())
                    .map(|rows| Size::Rows(rows.into()))
            }),
            judge_load: judged.is_some(),
            timeout,
            keep_awake: self.keep_awake.unwrap_or(sandbox),
            real_time: self.real_time.unwrap_or(true),
            seed: self.seed.unwrap_or(1),
        })
    }
}

impl StalePlan {
    /// The same as a plan file spells it, with every default.
    #[must_use]
    pub fn to_spec(&self) -> StaleSpec {
        let judged = self.judge_load;
        let (rounds, duration) = match self.until {
            Until::Rounds(rounds) => (Some(rounds), None),
            Until::Elapsed(span) => (None, Some(span)),
        };
        StaleSpec {
            writer: self.writer.clone(),
            reader: OneOrMore::of(self.readers.clone()),
            rounds,
            duration,
            pace: (!judged).then_some(self.pace),
            rows: (!judged).then_some(self.rows),
            offsets: (!judged).then(|| self.offsets.clone()),
            curve_rounds: (!judged).then_some(self.curve_rounds),
            warm_up: Some(self.warm_up),
            sync_reads: OneOrMore::of(self.sync_reads.clone()),
            pool: (self.pools != [Pool::Keep])
                .then(|| OneOrMore::of(self.pools.clone()))
                .flatten(),
            load: Vec::new(),
            cases: self.cases.clone(),
            rate: self.rate,
            arrivals: self.rate.map(|_| self.arrivals),
            load_size: self.load_size,
            judge_load: judged.then_some(JudgeLoad::Load),
            timeout: Some(self.timeout),
            keep_awake: Some(self.keep_awake),
            real_time: Some(self.real_time),
            seed: Some(self.seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cases_read_as_they_print() {
        for text in ["none", "oltp-mix:32@node1", "insert:1@a + mix:2@b"] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        assert!("insert:1@a + none".parse::<Case>().is_err());
    }

    #[test]
    fn offsets_are_sorted_and_each_there_once() {
        let Offsets::At(spans) = "1ms, 0,100us,1ms".parse().unwrap() else {
            panic!("a list")
        };
        assert_eq!(
            spans,
            [
                Span::from_secs(0),
                "100us".parse().unwrap(),
                Span::from_millis(1)
            ]
        );
        assert!("61s".parse::<Offsets>().is_err() && "".parse::<Offsets>().is_err());
    }

    #[test]
    fn judged_connections_are_loads() {
        let spec: StaleSpec =
            toml::from_str("judge-load = '4:8'\nload = ['insert:1@b']\nrows = 70").unwrap();
        let plan = spec.resolve(true).unwrap();
        assert_eq!(
            plan.cases[0].to_string(),
            "insert:1@b + versioned-update:4@writer + versioned-select:8@readers"
        );
        assert_eq!(
            (plan.judge_load, plan.load_size),
            (true, Some(Size::Rows(70)))
        );
        assert!("8".parse::<JudgeLoad>().unwrap_err().contains("`load`"));
    }

    #[test]
    fn contradictions_are_refused() {
        for (spec, want) in [
            ("rounds = 1\nfor = '1s'", "exclude"),
            ("rounds = 0", "at least 1"),
            ("rows = 0", "rows must be"),
            ("timeout = '0s'", "time-out"),
            ("rate = 5", "needs a load"),
            (
                "load = ['insert:1@a']\ncases = ['none']",
                "either load or cases",
            ),
            ("cases = ['none', 'none']", "given twice"),
            ("pool = 'reset'", "add sync-reads"),
            ("sync-reads = ['off', 'off']", "given twice"),
            ("reader = ['a', 'a']", "given twice"),
            ("judge-load = '2:2'\nrounds = 5", "for how long"),
            ("judge-load = '2:2'\noffsets = '0'", "leave out offsets"),
            ("judge-load = 'load'", "add load"),
            (
                "judge-load = '2:2'\nsync-reads = ['off', 'gtid']",
                "one more",
            ),
        ] {
            let spec: StaleSpec =
                toml::from_str(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
            let error = spec.resolve(true).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_resolved_plan_reads_back_as_itself() {
        for text in [
            "",
            "for = '3s'\nsync-reads = ['off', 'on']\npool = ['keep', 'reset']",
            "cases = ['none', 'insert:8@writer']\nrate = 10\noffsets = '0,1ms'\nreader = ['a', 'b']",
            "judge-load = '2:4'\nsync-reads = 'before'\nrows = 50",
            "judge-load = 'load'\nload = ['versioned:4@a', 'versioned:4@b']",
        ] {
            let spec: StaleSpec = toml::from_str(text).unwrap();
            let plan = spec.resolve(false).unwrap();
            let again: StaleSpec =
                toml::from_str(&toml::to_string(&plan.to_spec()).unwrap()).unwrap();
            assert_eq!(again.resolve(false).unwrap(), plan, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = (text.parse::<Case>(), text.parse::<Offsets>(), text.parse::<SyncReads>(), text.parse::<JudgeLoad>());
        }
    }
}
