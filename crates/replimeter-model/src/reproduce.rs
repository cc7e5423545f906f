//! The record of a `reproduce` run: each published experiment next to its reproduction.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::record::RunStatus;

/// The schema's name and version in every `reproduce` document.
pub const REPRODUCE_SCHEMA: &str = "replimeter.reproduce/1";

/// Whether the measurement agrees with the published result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It agrees.
    Agrees,
    /// It differs, and agrees in a run that changes the supposed cause.
    Explained,
    /// It differs, and agrees in a run whose settings were chosen from the published figures: a check that these fit together.
    Consistent,
    /// It differs.
    Differs,
    /// The measurement does not decide it.
    #[default]
    Open,
    /// Its figure has no interval, as a maximum has none.
    NotJudged,
}

impl Verdict {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Explained => "explained",
            Self::Consistent => "consistent",
            Self::Differs => "differs",
            Self::Open => "open",
            Self::NotJudged => "not judged",
        }
    }
}

/// One claim that the published figures support.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The claim in words, with the range in which a figure agrees.
    pub claim: String,
    /// The product, where a finding is judged on several.
    pub product: Option<String>,
    /// As published; null for a question that the publication does not ask.
    pub published: Option<String>,
    /// Measured here, with the interval where there is one.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Reason for a difference or an open verdict; empty where they agree.
    pub why: String,
}

/// A table of figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Table {
    /// Headings of the columns.
    pub headings: Vec<String>,
    /// Cells.
    pub lines: Vec<Vec<String>>,
}

/// Reads names of folders, which the page links to and a report opens: no paths, and no addresses.
fn plain_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let plain =
        |name: &String| !name.is_empty() && !name.starts_with('.') && name.bytes().all(allowed);
    match names.iter().find(|name| !plain(name)) {
        Some(name) => Err(D::Error::custom(format!(
            "{name:?} is not a plain name of a folder"
        ))),
        None => Ok(names),
    }
}

/// One experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// 1 to 5.
    pub number: u32,
    /// Its name, author and year.
    pub title: String,
    /// Question of the experiment.
    pub question: String,
    /// The command that measures it.
    pub command: String,
    /// Folders of its runs, within this run's; several where one run is compared with another.
    #[serde(deserialize_with = "plain_names")]
    pub run_dirs: Vec<String>,
    /// Duration, including the start of servers.
    pub duration_us: f64,
    /// Error that ended it, if any.
    pub error: Option<String>,
    /// Main finding of this measurement.
    pub headline: String,
    /// As it was published.
    pub published: Table,
    /// As measured here.
    pub ours: Table,
    /// Claims that are compared.
    pub claims: Vec<Claim>,
}

/// The whole document of a `reproduce` run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReproduceDocument {
    /// [`REPRODUCE_SCHEMA`].
    pub schema: String,
    /// Run directory.
    pub run_dir: String,
    /// Whether the run completed.
    pub status: RunStatus,
    /// `small` or `full`.
    pub size: String,
    /// Start of the run (RFC 3339, UTC).
    pub started_at: String,
    /// The commit of the program, as `make reproduce` names it; null if it is not known.
    #[serde(default)]
    pub commit: Option<String>,
    /// SHA-256 of the plans before the first start. The findings and their ranges are those of `commit`.
    #[serde(default)]
    pub plans_sha256: String,
    /// Main finding, in one sentence.
    pub headline: String,
    /// The experiments, in order.
    pub experiments: Vec<Experiment>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_runs_are_plain_names() {
        let read = |name: &str| {
            let mut experiment = serde_json::to_value(Experiment::default()).unwrap();
            experiment["run_dirs"] = serde_json::json!(["1-lag", name]);
            serde_json::from_value::<Experiment>(experiment).map(|read| read.run_dirs)
        };
        assert_eq!(
            read("2-stale.again_1").unwrap(),
            ["1-lag", "2-stale.again_1"]
        );
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "/root/run",
            "a/b",
            "javascript:alert(1)",
            "a b",
            "#x",
        ] {
            let error = read(name).unwrap_err().to_string();
            assert!(error.contains("is not a plain name"), "{name}: {error}");
        }
    }
}
