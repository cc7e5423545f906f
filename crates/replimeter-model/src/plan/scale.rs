//! The settings of `scale`.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PlanError, TargetSpec, contradiction};
use crate::{
    engine::Engine,
    load::{MOST_THREADS, Reads, Size},
    sandbox::SandboxSpec,
    shape::{MOST_REPLICAS, Mode, Shape},
    span::Span,
    suggest,
    target::Target,
};

/// Numbers of replicas that are measured without anything else being said.
const DEFAULT_REPLICAS: &str = "0..2";
/// `ab -c 10`, as published.
const DEFAULT_THREADS: u32 = 10;
/// The data set of a first look.
const DEFAULT_SIZE: &str = "20MB";
/// The most starts of each count, and blocks of each phase.
const MOST: u32 = 1000;
/// Numbers of replicas from which on a law is fitted.
pub const FEWEST_COUNTS: usize = 5;

/// Numbers of replicas: `0..4`, or `0,1,2,4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas(Vec<u32>);

impl Replicas {
    /// Ascending, each once.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.0
    }

    /// The largest.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.0.last().copied().unwrap_or(0)
    }
}

impl FromStr for Replicas {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` are no numbers of replicas; write 0..4, or several with commas, up to {MOST_REPLICAS}"
            )
        };
        let number = |text: &str| {
            let text = text.trim();
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| text.parse::<u32>().ok())
                .flatten()
                .filter(|number| *number <= MOST_REPLICAS)
                .ok_or_else(refuse)
        };
        let mut counts = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => counts.push(number(part)?),
                Some((low, high)) => {
                    let (low, high) = (number(low)?, number(high)?);
                    if low > high {
                        return Err(format!("`{text}` goes downwards; write {high}..{low}"));
                    }
                    counts.extend(low..=high);
                }
            }
        }
        counts.sort_unstable();
        counts.dedup();
        Ok(Self(counts))
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut first = true;
        while let Some(low) = rest.first() {
            let run = (0u32..)
                .zip(rest)
                .take_while(|(step, count)| low + step == **count)
                .count();
            f.write_str(if first { "" } else { "," })?;
            first = false;
            match run {
                1 | 2 => write!(f, "{low}")?,
                _ => write!(f, "{low}..{}", rest[run - 1])?,
            }
            rest = &rest[if run > 2 { run } else { 1 }..];
        }
        Ok(())
    }
}

serde_as_text!(
    Replicas,
    "description": "Numbers of replicas: a range, or several with commas",
    "pattern": "^[0-9., ]+$",
    "examples": ["0..2", "0,1,2,4"]
);

/// How the replicas replicate: `[mariadb/|mysql/]async|semi-sync|chain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleMode {
    engine: Option<Engine>,
    mode: Mode,
}

impl ScaleMode {
    /// How they replicate.
    #[must_use]
    pub fn mode(self) -> Mode {
        self.mode
    }

    /// The sandbox with so many replicas. Without any it is a primary with its binary
    /// log on.
    ///
    /// # Errors
    /// When there is no such shape.
    pub fn shape(self, replicas: u32) -> Result<Shape, String> {
        let engine = self
            .engine
            .map_or_else(String::new, |engine| format!("{}/", engine.name()));
        let text = if replicas == 0 {
            format!("{engine}none")
        } else {
            format!("{engine}{}:{replicas}", self.mode.name())
        };
        text.parse()
            .map_err(|error: crate::shape::ShapeError| error.to_string())
    }
}

impl FromStr for ScaleMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // As a shape without its number.
        let shape: Shape = format!("{text}:1").parse().map_err(|_| {
            format!("`{text}` is no way for read replicas to follow a primary{}; there are async, semi-sync and chain, with mariadb/ or mysql/ in front to choose the engine", suggest::hint(text, ["async", "semi-sync", "chain"]))
        })?;
        if !matches!(shape.mode(), Mode::Async | Mode::SemiSync | Mode::Chain) {
            return Err(format!(
                "`{text}` has no read replicas: every member takes part in every write; there are async, semi-sync and chain"
            ));
        }
        Ok(Self {
            engine: shape.engine(),
            mode: shape.mode(),
        })
    }
}

impl fmt::Display for ScaleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(engine) = self.engine {
            write!(f, "{}/", engine.name())?;
        }
        f.write_str(self.mode.name())
    }
}

serde_as_text!(
    ScaleMode,
    "description": "How the replicas replicate",
    "pattern": "^((mariadb|mysql)/)?(async|semi-sync|chain)$",
    "examples": ["async", "semi-sync", "chain", "mysql/async"]
);

/// What runs in a block.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ScalePhase {
    /// Inserts alone.
    Insert,
    /// Selects alone.
    Select,
    /// Inserts and selects at once.
    Mixed,
    /// Updates alone.
    Update,
    /// Updates and selects at once.
    MixedUpdate,
}

impl ScalePhase {
    /// The word for it in rows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Select => "select",
            Self::Mixed => "mixed",
            Self::Update => "update",
            Self::MixedUpdate => "mixed-update",
        }
    }

    /// Whether something is written, and whether by updates.
    #[must_use]
    pub fn writes(self) -> Option<bool> {
        match self {
            Self::Insert | Self::Mixed => Some(false),
            Self::Update | Self::MixedUpdate => Some(true),
            Self::Select => None,
        }
    }

    /// Whether something is read.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Select | Self::Mixed | Self::MixedUpdate)
    }
}

/// The settings of `scale` as a plan file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ScaleSpec {
    /// How replicas follow the primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ScaleMode>,
    /// Numbers of replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Replicas>,
    /// Clients that write, and as many that read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// How long each block is counted.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// How long a block runs before it is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<Span>,
    /// Blocks of each phase on each start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// How often each number of replicas is started afresh.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<u32>,
    /// The data set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Which servers are read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<Reads>,
    /// Whether updates are measured beside the inserts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<bool>,
    /// Whether the law's prediction for one more replica is held against a measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_prediction: Option<bool>,
    /// Decides the order of the counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Keep every core of this machine from halting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_awake: Option<bool>,
}

/// A resolved `scale` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePlan {
    /// How replicas follow the primary.
    pub mode: ScaleMode,
    /// Numbers of replicas.
    pub replicas: Replicas,
    /// Clients that write, and as many that read.
    pub threads: u32,
    /// How long each block is counted.
    pub duration: Span,
    /// How long a block runs before it is counted.
    pub warm_up: Span,
    /// Blocks of each phase on each start.
    pub blocks: u32,
    /// How often each number of replicas is started afresh.
    pub starts: u32,
    /// The data set.
    pub size: Size,
    /// Which servers are read from.
    pub reads: Reads,
    /// Whether updates are measured beside the inserts.
    pub updates: bool,
    /// Whether the prediction for one more replica is checked.
    pub check_prediction: bool,
    /// Decides the order of the counts.
    pub seed: u64,
    /// Keep every core of this machine from halting.
    pub keep_awake: bool,
}

impl ScaleSpec {
    pub(super) fn resolve(&self) -> Result<ScalePlan, PlanError> {
        let default = |text: &str| text.parse().map_err(PlanError::Contradiction);
        let replicas = self
            .replicas
            .clone()
            .map_or_else(|| default(DEFAULT_REPLICAS), Ok)?;
        let threads = self.threads.unwrap_or(DEFAULT_THREADS);
        if threads == 0 || threads > MOST_THREADS {
            return Err(PlanError::Contradiction(format!(
                "threads must be from 1 to {MOST_THREADS}"
            )));
        }
        let duration = self.duration.unwrap_or(Span::from_secs(5));
        if duration.0 < std::time::Duration::from_millis(100) {
            return contradiction(
                "a block shorter than 100ms measures its own beginning; give for a longer time",
            );
        }
        let (blocks, starts) = (self.blocks.unwrap_or(1), self.starts.unwrap_or(3));
        if !(1..=MOST).contains(&blocks) || !(1..=MOST).contains(&starts) {
            return contradiction("blocks and starts must be from 1 to 1000");
        }
        let check_prediction = self.check_prediction.unwrap_or(false);
        if check_prediction && replicas.counts().len() < FEWEST_COUNTS {
            return Err(PlanError::Contradiction(format!(
                "a law is fitted from {FEWEST_COUNTS} numbers of replicas on, so that {replicas} predicts nothing; give more, such as 0..4"
            )));
        }
        if check_prediction && replicas.most() >= MOST_REPLICAS {
            return contradiction(
                "there is no sandbox with one more replica to check the prediction on",
            );
        }
        let size = match self.size {
            Some(size) => size,
            None => DEFAULT_SIZE
                .parse()
                .map_err(|error: <Size as FromStr>::Err| {
                    PlanError::Contradiction(error.to_string())
                })?,
        };
        let plan = ScalePlan {
            mode: self.mode.unwrap_or(ScaleMode {
                engine: None,
                mode: Mode::Async,
            }),
            replicas,
            threads,
            duration,
            warm_up: self.warm_up.unwrap_or(Span::from_secs(1)),
            blocks,
            starts,
            size,
            reads: self.reads.unwrap_or(Reads::Replicas),
            updates: self.updates.unwrap_or(false),
            check_prediction,
            seed: self.seed.unwrap_or(1),
            keep_awake: self.keep_awake.unwrap_or(true),
        };
        // A client reads from one server: with fewer clients than servers some would have none.
        let readers = plan.readers(plan.replicas.most() + u32::from(check_prediction));
        if threads < readers {
            return Err(PlanError::Contradiction(format!(
                "{threads} clients cannot read from {readers} servers, since each keeps to one; give at least {readers} threads, or fewer replicas"
            )));
        }
        Ok(plan)
    }
}

impl ScalePlan {
    /// Every phase, in order.
    #[must_use]
    pub fn phases(&self) -> Vec<ScalePhase> {
        let mut phases = vec![ScalePhase::Insert, ScalePhase::Select, ScalePhase::Mixed];
        if self.updates {
            phases.extend([ScalePhase::Update, ScalePhase::MixedUpdate]);
        }
        phases
    }

    /// How many servers are read from with so many replicas.
    #[must_use]
    pub fn readers(&self, replicas: u32) -> u32 {
        match self.reads {
            Reads::Primary => 1,
            Reads::Replicas => replicas.max(1),
            Reads::All => replicas + 1,
        }
    }

    /// The same as a plan file spells it, with every default.
    pub(super) fn to_spec(&self) -> ScaleSpec {
        ScaleSpec {
            mode: Some(self.mode),
            replicas: Some(self.replicas.clone()),
            threads: Some(self.threads),
            duration: Some(self.duration),
            warm_up: Some(self.warm_up),
            blocks: Some(self.blocks),
            starts: Some(self.starts),
            size: Some(self.size),
            reads: Some(self.reads),
            updates: Some(self.updates),
            check_prediction: Some(self.check_prediction),
            seed: Some(self.seed),
            keep_awake: Some(self.keep_awake),
        }
    }
}

/// The sandboxes of a plan: one for each number of replicas, and one more that a
/// prediction is checked on.
pub(super) fn targets(spec: &TargetSpec, plan: &ScalePlan) -> Result<Vec<Target>, PlanError> {
    if spec.sandbox.is_some()
        || spec.primary.is_some()
        || !spec.replicas.is_empty()
        || !spec.nodes.is_empty()
    {
        return contradiction(
            "scale starts its own servers, with more replicas each time: say how many with replicas (0..4), and how they replicate with mode (async, semi-sync, mysql/async …)",
        );
    }
    let more = plan.check_prediction.then(|| plan.replicas.most() + 1);
    let shapes: Vec<Shape> = plan
        .replicas
        .counts()
        .iter()
        .copied()
        .chain(more)
        .map(|count| plan.mode.shape(count))
        .collect::<Result<_, _>>()
        .map_err(PlanError::Contradiction)?;
    let Some(first) = shapes.first() else {
        return contradiction("no number of replicas is given");
    };
    let specs =
        SandboxSpec::resolve(&shapes, &spec.common(*first)).map_err(PlanError::Contradiction)?;
    Ok(specs.into_iter().map(Target::Sandbox).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_replicas() {
        for (text, counts, shown) in [
            ("0..2", vec![0, 1, 2], "0..2"),
            ("3", vec![3], "3"),
            ("4,0,1,1", vec![0, 1, 4], "0,1,4"),
            ("0..2,5..7", vec![0, 1, 2, 5, 6, 7], "0..2,5..7"),
        ] {
            let replicas: Replicas = text.parse().unwrap();
            assert_eq!(
                (replicas.counts(), replicas.to_string().as_str()),
                (counts.as_slice(), shown)
            );
        }
        for text in ["", "..", "2..", "2..1", "-1", "65", "a", "1,,2", "1;2"] {
            assert!(text.parse::<Replicas>().is_err(), "{text}");
        }
    }

    #[test]
    fn modes_have_replicas() {
        let mode: ScaleMode = "mysql/semi-sync".parse().unwrap();
        assert_eq!(mode.shape(0).unwrap().to_string(), "mysql/none");
        assert_eq!(mode.shape(3).unwrap().to_string(), "mysql/semi-sync:3");
        for text in ["galera", "group", "none", "async:2", "", "mysql/"] {
            assert!(text.parse::<ScaleMode>().is_err(), "{text}");
        }
    }

    #[test]
    fn readers_by_policy() {
        let plan = |reads| {
            ScaleSpec {
                reads: Some(reads),
                ..ScaleSpec::default()
            }
            .resolve()
            .unwrap()
        };
        let readers = |reads| [0, 1, 3].map(|replicas| plan(reads).readers(replicas));
        assert_eq!(readers(Reads::Replicas), [1, 1, 3]);
        assert_eq!(readers(Reads::All), [1, 2, 4]);
        assert_eq!(readers(Reads::Primary), [1, 1, 1]);
    }

    proptest! {
        #[test]
        fn printing_and_reading_agree(counts in proptest::collection::btree_set(0u32..=64, 1..12)) {
            let replicas = Replicas(counts.into_iter().collect());
            prop_assert_eq!(replicas.to_string().parse::<Replicas>(), Ok(replicas));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = text.parse::<Replicas>();
            let _ = text.parse::<ScaleMode>();
        }
    }
}
