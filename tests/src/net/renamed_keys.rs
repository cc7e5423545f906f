//! Keys that were renamed after they were recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::{Value, json};

use super::root;

/// `tests/net/renamed-keys.toml` and `renamed-calls.toml`: paths that were renamed after documents and calls were recorded, as
/// `old = "new"`.
///
/// In a path `[]` matches every index; a path matches all paths below it, and the longest match counts. `COMMAND:old`
/// is for documents of that command only. `+new` and `-old` are added and removed paths; their value is the reason.
/// `"=old" = "new"` is a word that is a value, such as `after-sync`.
///
/// `"*.old" = "*.new"` renames the ends of paths, after other entries renamed their beginnings; `csv:*.old` those of columns. If a
/// new name ends in `[0]` or `[1]`, the value became that end of an interval `[low, high]`. Settings, which were in
/// kebab-case, are in snake_case.
#[derive(Debug, Default)]
pub struct RenamedKeys {
    entries: BTreeMap<String, String>,
    used: std::cell::RefCell<BTreeSet<String>>,
}

impl RenamedKeys {
    /// Reads a file of `tests/net`.
    ///
    /// # Panics
    /// If the file cannot be read.
    #[must_use]
    pub fn read(name: &str) -> Self {
        Self::of(&fs::read_to_string(root().join(name)).unwrap())
    }

    /// Parses the file's text.
    ///
    /// # Panics
    /// If it is not such a file.
    #[must_use]
    pub fn of(text: &str) -> Self {
        fn fill(entries: &mut BTreeMap<String, String>, path: &str, value: &toml::Value) {
            match value {
                toml::Value::String(new) => {
                    assert!(
                        entries.insert(path.to_owned(), new.clone()).is_none(),
                        "{path} stands twice"
                    )
                }
                // `old.path` without quotes is a nested table.
                toml::Value::Table(table) => {
                    for (key, value) in table {
                        let path = if path.is_empty() {
                            key.clone()
                        } else {
                            format!("{path}.{key}")
                        };
                        fill(entries, &path, value);
                    }
                }
                other => panic!("{path} = {other}"),
            }
        }
        let mut renamed = Self::default();
        fill(
            &mut renamed.entries,
            "",
            &toml::Value::Table(text.parse().unwrap()),
        );
        renamed
    }

    /// Returns the entry for a path of a command's document with a sign, if there is one: its path, its value, and the
    /// rest of the path.
    fn entry<'a>(&self, sign: &str, command: &str, generic: &'a str) -> Option<(&str, &'a str)> {
        let mut ends: Vec<usize> = generic
            .match_indices(['.', '['])
            .map(|(at, _)| at)
            .chain([generic.len()])
            .collect();
        ends.reverse();
        for end in ends {
            for key in [
                format!("{command}:{sign}{}", &generic[..end]),
                format!("{sign}{}", &generic[..end]),
            ] {
                if let Some(new) = self.entries.get(&key) {
                    self.used.borrow_mut().insert(key);
                    return Some((new, &generic[end..]));
                }
            }
        }
        None
    }

    /// Returns whether a path with this first key can have another name today; cheaper than to look all paths up.
    #[must_use]
    pub fn may_rename(&self, root: &str) -> bool {
        let mut old = self.entries.keys();
        old.any(|path| path.contains(root) || path.contains('*'))
    }

    /// Returns whether an entry can concern a part of the value at this path, and not the whole value alone.
    #[must_use]
    pub fn go_below(&self, path: &str) -> bool {
        let path = generic(path).0;
        let below = |old: &String| {
            let old = old.rsplit(':').next().unwrap_or(old);
            let rest = old
                .trim_start_matches(['+', '-'])
                .strip_prefix(path.as_str());
            old.starts_with('*') || rest.is_some_and(|rest| !rest.is_empty())
        };
        self.entries.keys().any(below)
    }

    /// Returns today's name of a recorded path; `None` if it was removed.
    ///
    /// # Panics
    /// If the new name has other indexes.
    #[must_use]
    pub fn today(&self, command: &str, path: &str) -> Option<String> {
        let (generic, indexes) = generic(path);
        if self.entry("-", command, &generic).is_some() {
            return None;
        }
        let renamed = match self.entry("", command, &generic) {
            // An entry for the whole path needs no other.
            Some((new, "")) => new.to_owned(),
            Some((new, rest)) => self.end(command, format!("{new}{rest}")),
            None => self.end(command, generic),
        };
        let renamed = if renamed.starts_with("settings.") {
            renamed.replace('-', "_")
        } else {
            renamed
        };
        let mut parts = renamed.split("[]");
        let mut full = parts.next().unwrap_or_default().to_owned();
        let mut indexes = indexes.into_iter();
        for part in parts {
            let index = indexes
                .next()
                .unwrap_or_else(|| panic!("{renamed} has more indexes than {path}"));
            full.push_str(&format!("[{index}]{part}"));
        }
        assert!(
            indexes.next().is_none(),
            "{renamed} has fewer indexes than {path}"
        );
        Some(full)
    }

    /// Returns a path with today's name of its end.
    fn end(&self, command: &str, path: String) -> String {
        let kind = if path.starts_with("csv:") { "csv:" } else { "" };
        let mut starts = path.match_indices('.').map(|(at, _)| at);
        let found = starts.find_map(|at| {
            [format!("{command}:"), String::new()]
                .into_iter()
                .find_map(|of| {
                    let key = format!("{of}{kind}*{}", &path[at..]);
                    let new = self.entries.get(&key)?;
                    self.used.borrow_mut().insert(key);
                    let new = new.strip_prefix(kind)?.strip_prefix('*')?;
                    Some(format!("{}{new}", &path[..at]))
                })
        });
        found.unwrap_or(path)
    }

    /// Returns a document of today in which every interval that was recorded as two values is two values: `[0]` and `[1]`.
    #[must_use]
    pub fn split(&self, command: &str, document: &Value) -> Value {
        self.split_below(command, "", document)
    }

    fn split_below(&self, command: &str, path: &str, value: &Value) -> Value {
        match value {
            Value::Object(object) => {
                let inner = object.iter().map(|(key, inner)| {
                    let path = format!("{path}.{key}");
                    let ends = if key.ends_with("ci95") && self.is_split(command, &path) {
                        let end = |index: usize| inner.get(index).cloned().unwrap_or_default();
                        json!({"[0]": end(0), "[1]": end(1)})
                    } else {
                        self.split_below(command, &path, inner)
                    };
                    (key.clone(), ends)
                });
                Value::Object(inner.collect())
            }
            Value::Array(all) => {
                let path = format!("{path}[]");
                all.iter()
                    .map(|inner| self.split_below(command, &path, inner))
                    .collect()
            }
            simple => simple.clone(),
        }
    }

    /// Returns whether the interval at this path was recorded as two values.
    fn is_split(&self, command: &str, path: &str) -> bool {
        let low = format!("{path}[0]");
        self.entries.iter().any(|(old, new)| {
            let of = old.split_once(':').map_or(command, |(of, _)| of);
            of == command
                && new.strip_prefix('*').map_or_else(
                    || low.strip_prefix('.') == Some(new),
                    |new| low.ends_with(new),
                )
        })
    }

    /// Returns whether a path of today was added after the values were recorded.
    #[must_use]
    pub fn is_new(&self, command: &str, path: &str) -> bool {
        self.entry("+", command, &generic(path).0).is_some()
    }

    /// Returns a line's values in the words of today.
    #[must_use]
    pub fn words(&self, values: &str) -> String {
        let today = |token: &str| {
            let (word, rest) = token.split_at(token.find('×').unwrap_or(token.len()));
            let key = format!("={word}");
            let Some(new) = self.entries.get(&key) else {
                return token.to_owned();
            };
            self.used.borrow_mut().insert(key);
            format!("{new}{rest}")
        };
        values.split(' ').map(today).collect::<Vec<_>>().join(" ")
    }

    /// Returns the entries that were not needed; there must be none.
    #[must_use]
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.entries
            .keys()
            .filter(|key| !used.contains(*key))
            .cloned()
            .collect()
    }
}

/// Returns a path with `[]` for every index, and the indexes.
fn generic(path: &str) -> (String, Vec<&str>) {
    let mut parts = path.split('[');
    let mut generic = parts.next().unwrap_or_default().to_owned();
    let mut indexes = Vec::new();
    for part in parts {
        let (index, rest) = part.split_once(']').unwrap_or((part, ""));
        indexes.push(index);
        generic.push_str("[]");
        generic.push_str(rest);
    }
    (generic, indexes)
}
