//! Plan files: parsing and writing, for all measurements.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};
use toml::{Table, Value};

use super::{PlanError, Section, Settings, TargetSettings, explain, place};
use crate::target::Target;

/// A plan as written in a file; defaults may be omitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanFile<S> {
    /// Title of the run in reports.
    pub title: Option<String>,
    /// The target.
    pub target: TargetSettings,
    /// The settings.
    pub settings: S,
}

/// What was requested: the settings with every default, and their plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<S: Settings> {
    /// Title of the run in reports.
    pub title: Option<String>,
    /// The target with every default.
    pub target: TargetSettings,
    /// The targets, measured one after another; empty only for a calibration against the reference.
    pub targets: Vec<Target>,
    /// The settings with every default.
    pub settings: S,
    /// The resolved measurement.
    pub plan: S::Plan,
}

/// Returns the measurement that a plan file is for, among those with these sections.
///
/// # Errors
/// When the text is not a plan, or its measurement does not exist.
pub fn command(text: &str, sections: &[Section]) -> Result<&'static str, PlanError> {
    read::<IgnoredAny>(text, None, sections).map(|found| found.command)
}

impl<S: Settings> PlanFile<S> {
    /// Parses a plan file's text; `sections` are those of all measurements.
    ///
    /// # Errors
    /// With the line and column of an unknown or malformed part; when the plan is for another measurement, or has a
    /// section of one.
    pub fn from_toml(text: &str, sections: &[Section]) -> Result<Self, PlanError> {
        let found = read::<S>(text, Some(S::NAME), sections)?;
        let own = S::NAME;
        if found.command != own {
            let command = found.command;
            return Err(PlanError::Contradiction(format!(
                "the plan is for `{command}`, not for `{own}`"
            )));
        }
        if let Some(other) = found.other {
            return Err(PlanError::Contradiction(format!(
                "a plan for `{own}` has no section [{other}]; its own is [{own}]"
            )));
        }
        Ok(Self {
            title: found.title,
            target: found.target,
            settings: found.settings.unwrap_or_default(),
        })
    }

    /// Returns the plan with overrides. A target that they name replaces the file's; other values replace the file's
    /// values one by one, and server options are appended.
    ///
    /// # Errors
    /// When a value cannot be written as TOML, such as a path that is not UTF-8.
    pub fn with(mut self, target: &TargetSettings, settings: Table) -> Result<Self, PlanError> {
        if target.is_named() {
            self.target = target.clone();
        } else {
            let options = [
                self.target.server_options.as_slice(),
                &target.server_options,
            ]
            .concat();
            let given = Table::try_from(target).map_err(|error| refused(&error))?;
            self.target = merged(&self.target, given)?;
            self.target.server_options = options;
        }
        self.settings = merged(&self.settings, settings)?;
        Ok(self)
    }

    /// Fills in every default and checks the whole.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn plan(mut self) -> Result<Request<S>, PlanError> {
        self.target.check_values()?;
        let (targets, plan) = self.settings.plan(&mut self.target)?;
        Ok(Request {
            title: self.title,
            target: self.target,
            targets,
            settings: self.settings,
            plan,
        })
    }

    /// As [`Self::plan`], for a plan that was read from this text: errors show the lines of the settings that they name.
    ///
    /// # Errors
    /// When settings contradict each other or name what does not exist.
    pub fn plan_of(self, text: &str) -> Result<Request<S>, PlanError> {
        self.plan().map_err(|error| match error {
            PlanError::Contradiction(message) => {
                let lines = place::named(&message, text, &["target", S::NAME]);
                PlanError::Contradiction(message + &lines)
            }
            error @ PlanError::Syntax(_) => error,
        })
    }
}

impl<S: Settings> Request<S> {
    /// Returns the text of `plan.toml`, with all defaults.
    ///
    /// # Errors
    /// When a value cannot be written as TOML, such as a path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// Returns it as a plan file.
impl<S: Settings> Serialize for Request<S> {
    fn serialize<T: Serializer>(&self, serializer: T) -> Result<T::Ok, T::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("command", S::NAME)?;
        if let Some(title) = &self.title {
            map.serialize_entry("title", title)?;
        }
        map.serialize_entry("target", &self.target)?;
        map.serialize_entry(S::NAME, &self.settings)?;
        map.end()
    }
}

/// Returns settings with the values of a table in place of their own.
fn merged<T: Serialize + DeserializeOwned>(settings: &T, given: Table) -> Result<T, PlanError> {
    let mut all = Table::try_from(settings).map_err(|error| refused(&error))?;
    all.extend(given);
    Value::Table(all)
        .try_into()
        .map_err(|error| refused(&error))
}

fn refused(error: &impl fmt::Display) -> PlanError {
    PlanError::Contradiction(error.to_string().trim_end().to_owned())
}

/// Contents of a plan file.
struct ParsedSection<S> {
    command: &'static str,
    title: Option<String>,
    target: TargetSettings,
    settings: Option<S>,
    /// A section of another measurement.
    other: Option<&'static str>,
}

/// Parses a plan's text, with the section of this name as settings.
fn read<S: DeserializeOwned>(
    text: &str,
    own: Option<&str>,
    sections: &[Section],
) -> Result<ParsedSection<S>, PlanError> {
    let names: Vec<&'static str> = sections.iter().map(|section| section.name).collect();
    let plan = Plan {
        own,
        sections: &names,
        settings: PhantomData,
    };
    toml::Deserializer::parse(text)
        .and_then(|file| file.deserialize_map(plan))
        .map_err(|error| PlanError::Syntax(explain(&error, text, sections)))
}

struct Plan<'a, S> {
    own: Option<&'a str>,
    sections: &'a [&'static str],
    settings: PhantomData<S>,
}

impl<'de, S: Deserialize<'de>> Visitor<'de> for Plan<'_, S> {
    type Value = ParsedSection<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plan")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<ParsedSection<S>, M::Error> {
        let keys = [["command", "title", "target"].as_slice(), self.sections].concat();
        let (mut command, mut title, mut target) = (None, None, TargetSettings::default());
        let (mut settings, mut other) = (None, None);
        while let Some(key) = map.next_key_seed(KnownWord::of("field", &keys))? {
            match key {
                "command" => {
                    command = Some(map.next_value_seed(KnownWord::of("variant", self.sections))?);
                }
                "title" => title = Some(map.next_value()?),
                "target" => target = map.next_value()?,
                key if Some(key) == self.own => settings = Some(map.next_value()?),
                key => {
                    map.next_value::<IgnoredAny>()?;
                    other.get_or_insert(key);
                }
            }
        }
        Ok(ParsedSection {
            command: command.ok_or_else(|| Error::missing_field("command"))?,
            title,
            target,
            settings,
            other,
        })
    }
}

/// Parses one of these words; errors have the form of serde's own.
struct KnownWord<'a> {
    kind: &'a str,
    known: &'a [&'static str],
}

impl<'a> KnownWord<'a> {
    fn of(kind: &'a str, known: &'a [&'static str]) -> Self {
        Self { kind, known }
    }
}

impl<'de> DeserializeSeed<'de> for KnownWord<'_> {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KnownWord<'_> {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<&'static str, E> {
        let known = self.known.iter().find(|word| **word == text);
        known.copied().ok_or_else(|| {
            let known: Vec<String> = self.known.iter().map(|word| format!("`{word}`")).collect();
            let known = known.join(", ");
            E::custom(format!(
                "unknown {} `{text}`, expected one of {known}",
                self.kind
            ))
        })
    }
}
