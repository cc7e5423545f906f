//! Golden files: compares them with the current output, or writes them.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::PathBuf,
};

use super::root;

/// A part of the net, with its own golden files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoldenPart {
    /// Command lines and their output.
    Commands,
    /// Numbers of reports, charts, tables, samples and comparisons.
    Values,
    /// Texts of reports.
    Texts,
}

impl GoldenPart {
    const ALL: [Self; 3] = [Self::Commands, Self::Values, Self::Texts];

    /// Returns its word in `UPDATE_NET`, and its folder.
    fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Values => "values",
            Self::Texts => "texts",
        }
    }

    /// Returns the first lines of each of its files.
    fn head(self) -> String {
        let rule = match self {
            Self::Values => {
                "may never change: a key that gets another name goes into tests/net/renamed-keys.toml; recorded runs alone bring other values"
            }
            Self::Commands | Self::Texts => {
                "may change only in a commit about wording, whose diff of this file is read"
            }
        };
        format!(
            "# The net (CONTRIBUTING.md): {rule}.\n# Made by UPDATE_NET={}.\n\n",
            self.name()
        )
    }

    /// Returns whether `UPDATE_NET` requests new golden files of this part.
    ///
    /// # Panics
    /// If it contains an unknown word, or values together with another part.
    fn is_updated(self) -> bool {
        let wanted = env::var("UPDATE_NET").unwrap_or_default();
        let words: Vec<&str> = wanted
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        let known = |word: &&str| Self::ALL.iter().any(|part| part.name() == *word);
        assert!(
            words.iter().all(known),
            "UPDATE_NET={wanted}: it takes commands, texts or `commands,texts`, or values alone"
        );
        let values = words.contains(&Self::Values.name());
        assert!(
            !values || words.len() == 1,
            "UPDATE_NET={wanted}: values are never updated together with anything else"
        );
        words.contains(&self.name())
    }

    /// Compares the part's golden files with the current output, by file name, or writes them. `difference` describes the
    /// difference of two texts, the golden one first.
    ///
    /// # Panics
    /// With every difference, and every golden file that is missing or unexpected.
    pub fn check(
        self,
        now: &BTreeMap<String, String>,
        difference: impl Fn(&str, &str) -> Option<String>,
    ) {
        let folder = root().join(self.name());
        if self.is_updated() {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in now {
                fs::write(folder.join(name), self.head() + text).unwrap();
            }
            return;
        }
        let golden = self.golden();
        let mut wrong = Vec::new();
        for name in golden.keys().chain(now.keys()).collect::<BTreeSet<_>>() {
            let place = format!("tests/net/{}/{name}", self.name());
            match (golden.get(name), now.get(name)) {
                (None, _) => wrong.push(format!("{place} is missing")),
                (_, None) => wrong.push(format!("{place} belongs to nothing that is recorded")),
                (Some(was), Some(is)) => {
                    wrong.extend(difference(was, is).map(|what| format!("{place}: {what}")))
                }
            }
        }
        assert!(
            wrong.is_empty(),
            "{}\nAs intended? See \"The net\" in CONTRIBUTING.md.",
            wrong.join("\n\n")
        );
    }

    /// Returns its golden files by name, without their first lines.
    fn golden(self) -> BTreeMap<String, String> {
        let Ok(entries) = fs::read_dir(root().join(self.name())) else {
            return BTreeMap::new();
        };
        let text = |path: PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = fs::read_to_string(&path).unwrap();
            let body = text
                .strip_prefix(&self.head())
                .unwrap_or_else(|| panic!("{} has another head", path.display()));
            (name, body.to_owned())
        };
        entries.map(|entry| text(entry.unwrap().path())).collect()
    }
}

/// Returns the first difference of two texts, with a few lines of both; `None` for equal texts.
#[must_use]
pub fn first_difference(was: &str, is: &str) -> Option<String> {
    if was == is {
        return None;
    }
    let (was, is): (Vec<&str>, Vec<&str>) = (was.split('\n').collect(), is.split('\n').collect());
    let at = (0..).find(|line| was.get(*line) != is.get(*line))?;
    let is_heading = |line: &&&str| line.starts_with("=== ") || line.starts_with('[');
    let heading = was[..at].iter().rev().find(is_heading);
    let heading = heading.map_or_else(String::new, |line| {
        format!(", in {}", line.trim_matches(['=', ' ']))
    });
    let some = |lines: &[&str], sign: char| -> String {
        lines
            .iter()
            .skip(at)
            .take(6)
            .map(|line| format!("\n  {sign} {}", line.chars().take(300).collect::<String>()))
            .collect()
    };
    Some(format!(
        "line {} of the text{heading}{}{}",
        at + 1,
        some(&was, '-'),
        some(&is, '+')
    ))
}
