//! The settings of a workload file, with their lines.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{super::split::ScriptError, MAX_ITEMS};

/// A setting: its name, its line and its value.
pub(super) type SettingEntry<'a> = (&'a str, usize, &'a Spanned<DeValue<'a>>);

/// The file, to look up lines.
pub(super) struct SettingsFile<'a> {
    pub(super) text: &'a str,
}

impl SettingsFile<'_> {
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        1 + self
            .text
            .as_bytes()
            .iter()
            .take(span.start)
            .filter(|byte| **byte == b'\n')
            .count()
    }

    pub(super) fn error<T>(
        &self,
        value: &Spanned<DeValue<'_>>,
        reason: impl Into<String>,
    ) -> Result<T, ScriptError> {
        Err(ScriptError::at(self.line(&value.span()), reason))
    }

    /// Returns the settings of a table, in the order of the file.
    pub(super) fn entries<'a>(&self, table: &'a DeTable<'a>) -> Vec<SettingEntry<'a>> {
        let mut entries: Vec<(usize, SettingEntry<'a>)> = table
            .iter()
            .map(|(key, value)| {
                (
                    key.span().start,
                    (key.get_ref().as_ref(), self.line(&key.span()), value),
                )
            })
            .collect();
        entries.sort_by_key(|(start, _)| *start);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    pub(super) fn table<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        what: &str,
    ) -> Result<Vec<SettingEntry<'a>>, ScriptError> {
        match value.get_ref().as_table() {
            Some(table) => Ok(self.entries(table)),
            None => self.error(
                value,
                format!("{what} must be a table of settings, such as {what} = {{ … }}"),
            ),
        }
    }

    /// Returns the tables of a list `[[name]]`.
    pub(super) fn list<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        name: &str,
    ) -> Result<Vec<(usize, Vec<SettingEntry<'a>>)>, ScriptError> {
        let form = format!("`{name}` must be written as [[{name}]]");
        let Some(array) = value.get_ref().as_array() else {
            return self.error(value, form);
        };
        if array.len() > MAX_ITEMS {
            return self.error(
                value,
                format!("there are more than {MAX_ITEMS} `{name}` tables"),
            );
        }
        array
            .iter()
            .map(|item| match item.get_ref().as_table() {
                Some(table) => Ok((self.line(&item.span()), self.entries(table))),
                None => self.error(item, form.clone()),
            })
            .collect()
    }

    pub(super) fn string<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        name: &str,
    ) -> Result<&'a str, ScriptError> {
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => self.error(value, format!("`{name}` must be a non-empty string")),
        }
    }

    pub(super) fn flag(
        &self,
        value: &Spanned<DeValue<'_>>,
        name: &str,
    ) -> Result<bool, ScriptError> {
        match value.get_ref().as_bool() {
            Some(flag) => Ok(flag),
            None => self.error(value, format!("`{name}` must be true or false")),
        }
    }

    pub(super) fn integer(&self, value: &Spanned<DeValue<'_>>) -> Result<i64, ScriptError> {
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok());
        match number {
            Some(number) => Ok(number),
            None => self.error(value, "expected a whole number"),
        }
    }

    pub(super) fn natural(
        &self,
        value: &Spanned<DeValue<'_>>,
        most: u64,
    ) -> Result<u64, ScriptError> {
        match u64::try_from(self.integer(value)?) {
            Ok(number) if number <= most => Ok(number),
            _ => self.error(value, format!("expected a whole number from 0 to {most}")),
        }
    }

    pub(super) fn pair<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<[&'a Spanned<DeValue<'a>>; 2], ScriptError> {
        match value.get_ref().as_array() {
            Some(array) if array.len() == 2 => Ok([&array[0], &array[1]]),
            _ => self.error(value, "expected a pair, such as [1, 1000]"),
        }
    }
}
