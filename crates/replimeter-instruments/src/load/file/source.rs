//! Sources of parameters and columns.

use std::mem::discriminant;

use toml::{Spanned, de::DeValue};

use super::{
    super::{
        distribution::{Shape, ZIPF},
        split::ScriptError,
        value::{Bound, Literal, Place, Source},
    },
    settings::{SettingEntry, SettingsFile},
};

/// Maximum bytes of a text, and of a pattern.
const MAX_TEXT_LENGTH: u64 = 1 << 20;
/// Maximum exponent of a Zipf distribution.
const STEEPEST: f64 = 20.0;
/// The kinds of parameters, for messages.
const KINDS: &str = "uniform, zipf, special, gaussian, pareto, sequence, text, pattern, choice, value, plus, thread, pass or row";
const BACKWARDS: &str = "the range ends before it begins";

impl SettingsFile<'_> {
    fn bound(&self, value: &Spanned<DeValue<'_>>) -> Result<Bound, ScriptError> {
        let Some(text) = value.get_ref().as_str() else {
            return Ok(Bound::Fixed(self.natural(value, i64::MAX as u64)?));
        };
        let more = text.strip_prefix("rows").map(|more| more.replace(' ', ""));
        let more = more.and_then(|more| {
            if more.is_empty() {
                Some(0)
            } else {
                more.strip_prefix('+').unwrap_or(&more).parse().ok()
            }
        });
        match more {
            Some(more) => Ok(Bound::Rows(more)),
            None => {
                self.error(value, "a bound must be a whole number, or \"rows\", \"rows+1\" or \"rows-1\" for the rows of the data set")
            }
        }
    }

    fn literal(&self, value: &Spanned<DeValue<'_>>) -> Result<Literal, ScriptError> {
        match value.get_ref() {
            DeValue::Integer(_) => Ok(Literal::Int(self.integer(value)?)),
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => self.error(value, "the number is not finite"),
            },
            DeValue::Boolean(flag) => Ok(Literal::Int(i64::from(*flag))),
            DeValue::String(text) if text.len() as u64 <= MAX_TEXT_LENGTH => {
                Ok(Literal::Text(text.as_bytes().to_vec()))
            }
            DeValue::Datetime(time) => Ok(Literal::Text(
                time.to_string().replace('T', " ").into_bytes(),
            )),
            _ => self.error(
                value,
                "a value must be a number, a string, a date, true or false",
            ),
        }
    }

    /// Parses the source of a parameter or column. `place` finds a number by its name.
    pub(super) fn source(
        &self,
        value: &Spanned<DeValue<'_>>,
        place: &dyn Fn(&str) -> Option<Place>,
    ) -> Result<Source, ScriptError> {
        let Some(table) = value.get_ref().as_table() else {
            return Ok(Source::Value(self.literal(value)?));
        };
        let mut entries = self.entries(table);
        let exponent = entries
            .iter()
            .position(|(key, ..)| *key == "exponent")
            .map(|at| entries.remove(at));
        let [(kind, line, of)] = entries.as_slice() else {
            return self.error(value, format!("a parameter must be one of {KINDS}"));
        };
        let exponent = self.exponent(exponent, kind)?;
        let only = |source: Source| match self.flag(of, kind)? {
            true => Ok(source),
            false => self.error(of, format!("write {kind} = true, or remove it")),
        };
        match *kind {
            "uniform" => self.range(Shape::Uniform, of),
            "special" => self.range(Shape::Special, of),
            "gaussian" => self.range(Shape::Gaussian, of),
            "pareto" => self.range(Shape::Pareto, of),
            "zipf" => self.range(Shape::Zipf(exponent), of),
            "sequence" => Ok(Source::Sequence(self.bound(of)?)),
            "text" => self.text_lengths(of),
            "pattern" => match of.get_ref().as_str() {
                Some(text) if text.len() as u64 <= MAX_TEXT_LENGTH => {
                    Ok(Source::Pattern(text.as_bytes().to_vec()))
                }
                _ => self.error(
                    of,
                    "a pattern must be a string in which # stands for a digit and @ for a letter",
                ),
            },
            "choice" => match of.get_ref().as_array() {
                Some(array) if !array.is_empty() => self.choice(array),
                _ => self.error(
                    of,
                    "a choice must be a list of values, such as [\"a\", \"b\"]",
                ),
            },
            "value" => Ok(Source::Value(self.literal(of)?)),
            "thread" => only(Source::Thread),
            "pass" => only(Source::Pass),
            "row" => only(Source::Row),
            "plus" => {
                let [name, more] = self.pair(of)?;
                let name_of = self.string(name, "plus")?;
                match place(name_of) {
                    Some(place) => Ok(Source::Plus(place, self.integer(more)?)),
                    None => self.error(
                        name,
                        format!("no parameter `{name_of}` is defined before this one"),
                    ),
                }
            }
            other => Err(ScriptError::at(
                *line,
                format!("unknown parameter kind `{other}`; a parameter must be one of {KINDS}"),
            )),
        }
    }

    /// Parses the values of a choice. They are of one type, because a server is sent the types of a
    /// statement's parameters once.
    fn choice(&self, array: &[Spanned<DeValue<'_>>]) -> Result<Source, ScriptError> {
        let mut literals: Vec<Literal> = Vec::with_capacity(array.len());
        for item in array {
            let literal = self.literal(item)?;
            if let Some(first) = literals.first()
                && discriminant(first) != discriminant(&literal)
            {
                return self.error(item, "the values of a choice must be of one type: all whole numbers (true is 1), all with a decimal point (1.0), or all texts and dates (\"1\")");
            }
            literals.push(literal);
        }
        Ok(Source::Choice(literals))
    }

    /// Parses the source of a statement's parameter.
    pub(super) fn parameter(
        &self,
        value: &Spanned<DeValue<'_>>,
        place: &dyn Fn(&str) -> Option<Place>,
    ) -> Result<Source, ScriptError> {
        match self.source(value, place)? {
            Source::Row => self.error(value, "only a table's columns have a row"),
            source => Ok(source),
        }
    }

    fn exponent(&self, given: Option<SettingEntry<'_>>, kind: &str) -> Result<f64, ScriptError> {
        match given {
            None => Ok(ZIPF),
            Some((_, _, number)) if kind == "zipf" => match self.literal(number)? {
                Literal::Double(exponent) if (0.0..=STEEPEST).contains(&exponent) => Ok(exponent),
                Literal::Int(exponent) if (0..=20).contains(&exponent) => Ok(exponent as f64),
                _ => self.error(
                    number,
                    format!("an exponent must be a number from 0 to {STEEPEST}"),
                ),
            },
            Some((_, line, _)) => Err(ScriptError::at(line, "only zipf has an exponent")),
        }
    }

    fn range(&self, shape: Shape, of: &Spanned<DeValue<'_>>) -> Result<Source, ScriptError> {
        let [low, high] = self.pair(of)?;
        let (from, to) = (self.bound(low)?, self.bound(high)?);
        if let (Bound::Fixed(from), Bound::Fixed(to)) = (from, to)
            && from > to
        {
            return self.error(of, BACKWARDS);
        }
        Ok(Source::Range(shape, from, to))
    }

    fn text_lengths(&self, of: &Spanned<DeValue<'_>>) -> Result<Source, ScriptError> {
        let [least, most] = match of.get_ref().as_array() {
            Some(_) => self.pair(of)?,
            None => [of, of],
        };
        let least = self.natural(least, MAX_TEXT_LENGTH)?;
        let most = self.natural(most, MAX_TEXT_LENGTH)?;
        if least > most {
            return self.error(of, BACKWARDS);
        }
        Ok(Source::Text(least, most))
    }
}
