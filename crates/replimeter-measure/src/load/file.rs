//! Workloads in TOML: tables to fill, and statements with typed parameters.

use std::ops::Range;

use replimeter_model::load::Size;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    random::{Shape, ZIPF},
    script::ScriptError,
    split,
    value::{Bound, Literal, Place, Source},
    workload::{Inner, Operation, Parameter, Statement, Step, Table, Version},
};

/// The most of tables, operations, statements of one and parameters of one.
const MOST: usize = 256;
/// The most times that a statement is run in a row.
const MOST_REPEATED: u64 = 100_000;
/// The most bytes of a text, and of a pattern.
const LONGEST_TEXT: u64 = 1 << 20;
/// The steepest Zipf distribution.
const STEEPEST: f64 = 20.0;
/// What a parameter may be, for messages.
const KINDS: &str = "uniform, zipf, special, gaussian, pareto, sequence, text, pattern, choice, value, plus, thread, pass or row";

type Entry<'a> = (&'a str, usize, &'a Spanned<DeValue<'a>>);

/// The file, to find lines in.
struct File<'a> {
    text: &'a str,
}

impl File<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        1 + self
            .text
            .as_bytes()
            .iter()
            .take(span.start)
            .filter(|byte| **byte == b'\n')
            .count()
    }

    fn wrong<T>(
        &self,
        value: &Spanned<DeValue<'_>>,
        reason: impl Into<String>,
    ) -> Result<T, ScriptError> {
        Err(ScriptError::at(self.line(&value.span()), reason))
    }

    /// The settings of a table, in the order in which they are written.
    fn entries<'a>(&self, table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
        let mut entries: Vec<(usize, Entry<'a>)> = table
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

    fn table<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        what: &str,
    ) -> Result<Vec<Entry<'a>>, ScriptError> {
        match value.get_ref().as_table() {
            Some(table) => Ok(self.entries(table)),
            None => self.wrong(
                value,
                format!("{what} is a table of settings, such as {what} = {{ … }}"),
            ),
        }
    }

    /// The tables of a list `[[name]]`.
    fn list<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        name: &str,
    ) -> Result<Vec<(usize, Vec<Entry<'a>>)>, ScriptError> {
        let form = format!("`{name}` is written as [[{name}]]");
        let Some(array) = value.get_ref().as_array() else {
            return self.wrong(value, form);
        };
        if array.len() > MOST {
            return self.wrong(value, format!("there are more than {MOST} of `{name}`"));
        }
        array
            .iter()
            .map(|item| match item.get_ref().as_table() {
                Some(table) => Ok((self.line(&item.span()), self.entries(table))),
                None => self.wrong(item, form.clone()),
            })
            .collect()
    }

    fn string<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
        name: &str,
    ) -> Result<&'a str, ScriptError> {
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => Ok(text),
            _ => self.wrong(value, format!("`{name}` is a text")),
        }
    }

    fn flag(&self, value: &Spanned<DeValue<'_>>, name: &str) -> Result<bool, ScriptError> {
        match value.get_ref().as_bool() {
            Some(flag) => Ok(flag),
            None => self.wrong(value, format!("`{name}` is true or false")),
        }
    }

    fn integer(&self, value: &Spanned<DeValue<'_>>) -> Result<i64, ScriptError> {
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|number| i64::from_str_radix(number.as_str(), number.radix()).ok());
        match number {
            Some(number) => Ok(number),
            None => self.wrong(value, "this is to be a whole number"),
        }
    }

    fn natural(&self, value: &Spanned<DeValue<'_>>, most: u64) -> Result<u64, ScriptError> {
        match u64::try_from(self.integer(value)?) {
            Ok(number) if number <= most => Ok(number),
            _ => self.wrong(
                value,
                format!("this is to be a whole number from 0 to {most}"),
            ),
        }
    }

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
                self.wrong(value, "a bound is a whole number, or \"rows\", \"rows+1\" or \"rows-1\" for the rows of the data set")
            }
        }
    }

    fn pair<'a>(
        &self,
        value: &'a Spanned<DeValue<'a>>,
    ) -> Result<[&'a Spanned<DeValue<'a>>; 2], ScriptError> {
        match value.get_ref().as_array() {
            Some(array) if array.len() == 2 => Ok([&array[0], &array[1]]),
            _ => self.wrong(value, "this is to be a pair, such as [1, 1000]"),
        }
    }

    fn literal(&self, value: &Spanned<DeValue<'_>>) -> Result<Literal, ScriptError> {
        match value.get_ref() {
            DeValue::Integer(_) => Ok(Literal::Int(self.integer(value)?)),
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => self.wrong(value, "no server has such a number"),
            },
            DeValue::Boolean(flag) => Ok(Literal::Int(i64::from(*flag))),
            DeValue::String(text) if text.len() as u64 <= LONGEST_TEXT => {
                Ok(Literal::Text(text.as_bytes().to_vec()))
            }
            DeValue::Datetime(time) => Ok(Literal::Text(
                time.to_string().replace('T', " ").into_bytes(),
            )),
            _ => self.wrong(value, "a value is a number, a text, a date, true or false"),
        }
    }

    /// What a value is drawn from. `place` finds a number by its name.
    fn source(
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
            return self.wrong(value, format!("a parameter is one of {KINDS}"));
        };
        let exponent = match exponent {
            None => ZIPF,
            Some((_, _, number)) if *kind == "zipf" => match self.literal(number)? {
                Literal::Double(exponent) if (0.0..=STEEPEST).contains(&exponent) => exponent,
                Literal::Int(exponent) if (0..=20).contains(&exponent) => exponent as f64,
                _ => {
                    return self.wrong(
                        number,
                        format!("an exponent is a number from 0 to {STEEPEST}"),
                    );
                }
            },
            Some((_, line, _)) => return Err(ScriptError::at(line, "only zipf has an exponent")),
        };
        let range = |shape: Shape| {
            let [low, high] = self.pair(of)?;
            let (from, to) = (self.bound(low)?, self.bound(high)?);
            if let (Bound::Fixed(from), Bound::Fixed(to)) = (from, to)
                && from > to
            {
                return self.wrong(of, "the range ends before it begins");
            }
            Ok(Source::Range(shape, from, to))
        };
        let only = |source: Source| match self.flag(of, kind)? {
            true => Ok(source),
            false => self.wrong(of, format!("write {kind} = true, or leave it out")),
        };
        match *kind {
            "uniform" => range(Shape::Uniform),
            "special" => range(Shape::Special),
            "gaussian" => range(Shape::Gaussian),
            "pareto" => range(Shape::Pareto),
            "zipf" => range(Shape::Zipf(exponent)),
            "sequence" => Ok(Source::Sequence(self.bound(of)?)),
            "text" => {
                let [least, most] = match of.get_ref().as_array() {
                    Some(_) => self.pair(of)?,
                    None => [*of, *of],
                };
                let (least, most) = (
                    self.natural(least, LONGEST_TEXT)?,
                    self.natural(most, LONGEST_TEXT)?,
                );
                if least > most {
                    return self.wrong(of, "the range ends before it begins");
                }
                Ok(Source::Text(least, most))
            }
            "pattern" => match of.get_ref().as_str() {
                Some(text) if text.len() as u64 <= LONGEST_TEXT => {
                    Ok(Source::Pattern(text.as_bytes().to_vec()))
                }
                _ => self.wrong(
                    of,
                    "a pattern is a text in which # stands for a digit and @ for a letter",
                ),
            },
            "choice" => match of.get_ref().as_array() {
                Some(array) if !array.is_empty() => Ok(Source::Choice(
                    array
                        .iter()
                        .map(|item| self.literal(item))
                        .collect::<Result<_, _>>()?,
                )),
                _ => self.wrong(of, "a choice is a list of values, such as [\"a\", \"b\"]"),
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
                    None => self.wrong(
                        name,
                        format!("there is no parameter `{name_of}` before this one"),
                    ),
                }
            }
            other => Err(ScriptError::at(
                *line,
                format!("there is no `{other}`; a parameter is one of {KINDS}"),
            )),
        }
    }
}

/// Reads a workload.
///
/// # Errors
/// With the line that cannot be understood.
pub(super) fn parse(text: &str) -> Result<Inner, ScriptError> {
    let file = File { text };
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| file.line(&span));
        ScriptError::at(line, error.message().to_owned())
    })?;
    let mut inner = Inner {
        tables: Vec::new(),
        size: Size::Rows(0),
        setup: Vec::new(),
        operations: Vec::new(),
        teardown: Vec::new(),
    };
    let (mut sized, mut only) = (None, Vec::new());
    for (key, line, value) in file.entries(document.get_ref()) {
        match key {
            "size" => {
                let size: Result<Size, String> = match value.get_ref().as_str() {
                    Some(text) => text.parse(),
                    None => Ok(Size::Rows(file.natural(value, i64::MAX as u64)?)),
                };
                match size {
                    Ok(size) => sized = Some(size),
                    Err(reason) => return file.wrong(value, reason),
                }
            }
            "table" => {
                for (line, entries) in file.list(value, key)? {
                    inner.tables.push(table(&file, line, &entries)?);
                }
            }
            "operation" => {
                for (line, entries) in file.list(value, key)? {
                    inner.operations.push(operation(&file, line, &entries)?);
                }
            }
            // What the only operation has may stand by itself.
            "statement" | "transaction" | "shared" => only.push((key, line, value)),
            other => {
                let known = "size, table, operation, statement, transaction and shared";
                return Err(ScriptError::at(
                    line,
                    format!("there is no setting `{other}`; known: {known}"),
                ));
            }
        }
    }
    match (only.first(), inner.operations.is_empty()) {
        (Some((_, line, _)), true) => inner.operations.push(operation(&file, *line, &only)?),
        (Some((key, line, _)), false) => {
            return Err(ScriptError::at(
                *line,
                format!(
                    "`{key}` belongs to an operation when there are any: [[operation.statement]]"
                ),
            ));
        }
        (None, true) => {
            let lines = text.lines().count().max(1);
            return Err(ScriptError::at(
                lines,
                "there is no statement to run; write one as [[statement]]",
            ));
        }
        (None, false) => {}
    }
    let mut names: Vec<&str> = inner
        .tables
        .iter()
        .map(|table| table.name.as_str())
        .collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(ScriptError::at(
            1,
            format!("there are two tables `{}`", twice[0]),
        ));
    }
    let filled = inner.tables.iter().any(|table| !table.columns.is_empty());
    match (filled, sized) {
        (true, size) => inner.size = size.unwrap_or(Size::Rows(10_000)),
        (false, Some(_)) => {
            return Err(ScriptError::at(
                1,
                "there is a size, and no table with columns to be filled",
            ));
        }
        (false, None) => {}
    }
    Ok(inner)
}

fn table(file: &File<'_>, line: usize, entries: &[Entry<'_>]) -> Result<Table, ScriptError> {
    let (mut name, mut create, mut columns, mut after, mut row_bytes) =
        (None, None, Vec::new(), Vec::new(), None);
    for &(key, line, value) in entries {
        match key {
            "name" => {
                let text = file.string(value, key)?;
                // It goes into statements as it stands.
                if text.len() > 64
                    || !text
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                {
                    return file.wrong(
                        value,
                        "a table's name here has letters, digits and underscores only, at most 64",
                    );
                }
                if text == crate::table::TABLE || text == super::fill::SETS {
                    return file.wrong(value, format!("the name `{text}` is taken by the tool"));
                }
                name = Some(text.to_owned());
            }
            "create" => {
                create = Some(
                    file.string(value, key)?
                        .trim()
                        .trim_end_matches(';')
                        .to_owned(),
                )
            }
            "columns" => {
                for (column, line, value) in file.table(value, key)? {
                    if column.is_empty() || column.len() > 64 || column.contains('`') {
                        return Err(ScriptError::at(line, "no column has such a name"));
                    }
                    let source = file.source(value, &|_| None)?;
                    if let Source::Plus(..) = source {
                        return Err(ScriptError::at(
                            line,
                            "a column cannot be made from another one",
                        ));
                    }
                    columns.push((column.to_owned(), source));
                }
            }
            "after" => {
                let Some(array) = value.get_ref().as_array() else {
                    return file.wrong(value, "`after` is a list of statements");
                };
                for item in array.iter() {
                    after.push(file.string(item, key)?.to_owned());
                }
            }
            "row-bytes" => row_bytes = Some(file.natural(value, 1 << 30)?.max(1)),
            other => {
                return Err(ScriptError::at(
                    line,
                    format!(
                        "a table has no `{other}`; known: name, create, columns, after and row-bytes"
                    ),
                ));
            }
        }
    }
    let missing = |what: &str| ScriptError::at(line, format!("a table needs a `{what}`"));
    let row_bytes = row_bytes.unwrap_or_else(|| Table::estimate(&columns));
    Ok(Table {
        name: name.ok_or_else(|| missing("name"))?,
        create: create.ok_or_else(|| missing("create"))?,
        columns,
        after,
        row_bytes,
        line,
    })
}

fn operation(
    file: &File<'_>,
    line: usize,
    entries: &[Entry<'_>],
) -> Result<Operation, ScriptError> {
    let mut operation = Operation {
        name: String::new(),
        weight: 1,
        transaction: false,
        shared: Vec::new(),
        steps: Vec::new(),
    };
    let mut names: Vec<String> = Vec::new();
    let mut statements = None;
    for &(key, line, value) in entries {
        match key {
            "name" => file.string(value, key)?.clone_into(&mut operation.name),
            "weight" => {
                operation.weight = file.natural(value, 1_000_000)?;
                if operation.weight == 0 {
                    return file.wrong(value, "a weight of 0 is never; leave the operation out");
                }
            }
            "transaction" => operation.transaction = file.flag(value, key)?,
            "shared" => {
                for (name, _, value) in file.table(value, key)? {
                    let place = |wanted: &str| {
                        names
                            .iter()
                            .position(|name| name == wanted)
                            .map(Place::Shared)
                    };
                    let source = file.source(value, &place)?;
                    not_a_row(file, value, &source)?;
                    operation.shared.push(source);
                    names.push(name.to_owned());
                }
            }
            // The shared ones must be known first, wherever they stand.
            "statement" => statements = Some(value),
            other => {
                let known = "name, weight, transaction, shared and statement";
                return Err(ScriptError::at(
                    line,
                    format!("an operation has no `{other}`; known: {known}"),
                ));
            }
        }
    }
    let Some(statements) = statements else {
        return Err(ScriptError::at(line, "an operation needs a [[statement]]"));
    };
    let mut used = vec![false; names.len()];
    for (line, entries) in file.list(statements, "statement")? {
        operation.steps.push(Step::Prepared(statement(
            file, line, &entries, &names, &mut used,
        )?));
    }
    // What another shared one is made from is used too.
    for source in &operation.shared {
        if let Source::Plus(Place::Shared(of), _) = source {
            used[*of] = true;
        }
    }
    if let Some(unused) = used.iter().position(|used| !used) {
        return Err(ScriptError::at(
            line,
            format!("`{}` is shared, and no statement has `:{0}`", names[unused]),
        ));
    }
    if operation.steps.is_empty() {
        return Err(ScriptError::at(line, "an operation needs a [[statement]]"));
    }
    for step in operation.steps.iter().filter(|_| operation.transaction) {
        if let Step::Prepared(statement) = step
            && matches!(statement.version(), Some(Version::Read(_)))
        {
            let reason = "a version is read outside of a transaction: inside of one a read shows when that began, not what was written since";
            return Err(ScriptError::at(statement.line, reason));
        }
    }
    Ok(operation)
}

fn not_a_row(
    file: &File<'_>,
    value: &Spanned<DeValue<'_>>,
    source: &Source,
) -> Result<(), ScriptError> {
    match source {
        Source::Row => file.wrong(value, "only a table's columns have a row"),
        _ => Ok(()),
    }
}

fn statement(
    file: &File<'_>,
    line: usize,
    entries: &[Entry<'_>],
    shared: &[String],
    used: &mut [bool],
) -> Result<Statement, ScriptError> {
    let (mut sql, mut repeat, mut own, mut version_of) = (None, 1, Vec::new(), None);
    for &(key, line, value) in entries {
        match key {
            "sql" => sql = Some((file.string(value, key)?, file.line(&value.span()))),
            "repeat" => {
                repeat = file.natural(value, MOST_REPEATED)?;
                if repeat == 0 {
                    return file.wrong(
                        value,
                        "a statement that is repeated 0 times is never run; leave it out",
                    );
                }
            }
            "version-of" => version_of = Some((file.string(value, key)?, line)),
            name => own.push((name, line, value)),
        }
    }
    let Some((sql, line_of_sql)) = sql else {
        return Err(ScriptError::at(line, "a statement needs its `sql`"));
    };
    let (text, names) = parameters(sql).map_err(|reason| ScriptError::at(line_of_sql, reason))?;
    if names.len() > MOST {
        return Err(ScriptError::at(
            line_of_sql,
            format!("the statement has more than {MOST} parameters"),
        ));
    }
    let mut parameters = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(before) = names[..index].iter().position(|earlier| earlier == name) {
            // A shared one twice is the shared one.
            parameters.push(match &parameters[before] {
                Parameter::Shared(shared) => Parameter::Shared(*shared),
                _ => Parameter::Same(before),
            });
            continue;
        }
        if let Some((_, _, value)) = own.iter().find(|(own, ..)| own == name) {
            let place = |wanted: &str| {
                let of_its_own = own.iter().any(|(own, ..)| *own == wanted);
                match shared
                    .iter()
                    .position(|name| name == wanted)
                    .filter(|_| !of_its_own)
                {
                    Some(shared) => Some(Place::Shared(shared)),
                    None => names[..index]
                        .iter()
                        .position(|name| name == wanted)
                        .map(Place::Own),
                }
            };
            let source = file.source(value, &place)?;
            not_a_row(file, value, &source)?;
            if let Source::Plus(Place::Shared(shared), _) = source {
                used[shared] = true;
            }
            parameters.push(Parameter::Drawn(source));
        } else if let Some(at) = shared.iter().position(|shared| shared == name) {
            used[at] = true;
            parameters.push(Parameter::Shared(at));
        } else {
            return Err(ScriptError::at(
                line_of_sql,
                format!(
                    "the parameter `:{name}` does not exist; say what it is beside the statement, such as {name} = {{uniform = [1, 1000]}}"
                ),
            ));
        }
    }
    if let Some((name, line, _)) = own
        .iter()
        .find(|(own, ..)| !names.iter().any(|name| name == own))
    {
        return Err(ScriptError::at(
            *line,
            format!("the statement has no parameter `:{name}`"),
        ));
    }
    let version_of = match version_of {
        None => None,
        Some((name, line)) => {
            Some(versioned(&text, &names, name).map_err(|reason| ScriptError::at(line, reason))?)
        }
    };
    Ok(Statement {
        sql: text,
        parameters,
        repeat: repeat as u32,
        line: line_of_sql,
        version_of,
    })
}

/// The parameter that is the row's number, of a statement that writes or reads its version.
fn versioned(sql: &str, names: &[String], name: &str) -> Result<usize, String> {
    let row = names
        .iter()
        .position(|known| known == name)
        .ok_or_else(|| format!("the statement has no parameter `:{name}`"))?;
    let word: String = sql
        .trim_start()
        .chars()
        .take_while(char::is_ascii_alphabetic)
        .collect();
    let told = sql
        .to_ascii_uppercase()
        .split_whitespace()
        .collect::<String>()
        .contains("LAST_INSERT_ID(");
    match word.to_ascii_uppercase().as_str() {
        "SELECT" => Ok(row),
        "UPDATE" if told => Ok(row),
        "UPDATE" => {
            Err("an UPDATE of a version must tell it: SET v = LAST_INSERT_ID(v + 1)".to_owned())
        }
        _ => Err("only a SELECT reads a row's version, and only an UPDATE writes it".to_owned()),
    }
}

/// Puts `?` in the place of each `:name` outside of quotations and comments; the
/// names, in order.
fn parameters(sql: &str) -> Result<(String, Vec<String>), String> {
    let sql = sql.trim().trim_end_matches(';');
    let bytes = sql.as_bytes();
    let (mut text, mut names) = (String::new(), Vec::new());
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if split::begins_line_comment(rest)
            || rest.starts_with(b"/*")
            || matches!(rest[0], b'\'' | b'"' | b'`')
        {
            at += split::skip(&sql[at..])
                .ok_or("a quotation or a comment begins and does not end")?;
            continue;
        }
        let name = rest[1..]
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .count();
        match rest[0] {
            b'?' => {
                return Err("parameters have names here: write :name in the place of ?".to_owned());
            }
            b';' => return Err("one [[statement]] is one statement; write two".to_owned()),
            b':' if name > 0
                && !rest[1].is_ascii_digit()
                && (at == 0 || !matches!(bytes[at - 1], b':')) =>
            {
                text.push_str(&sql[copied..at]);
                text.push('?');
                names.push(sql[at + 1..=at + name].to_owned());
                at += 1 + name;
                copied = at;
            }
            _ => at += 1,
        }
    }
    text.push_str(&sql[copied..]);
    Ok((text, names))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let error = parse(text).unwrap_err();
        (error.line, error.reason)
    }

    #[test]
    fn the_form_of_the_documentation() {
        let inner = parse(
            "[[statement]]\nsql = \"SELECT c FROM t WHERE id = :id\"\nid = {zipf = [1, 1000000]}",
        )
        .unwrap();
        let [operation] = inner.operations.as_slice() else {
            panic!("one operation")
        };
        let [Step::Prepared(statement)] = operation.steps.as_slice() else {
            panic!("one statement")
        };
        assert_eq!(
            (statement.sql.as_str(), statement.line, statement.repeat),
            ("SELECT c FROM t WHERE id = ?", 2, 1)
        );
        let zipf = Source::Range(Shape::Zipf(ZIPF), Bound::Fixed(1), Bound::Fixed(1_000_000));
        assert_eq!(statement.parameters, [Parameter::Drawn(zipf)]);
    }

    #[test]
    fn shared_values_the_same_ones_and_sums() {
        let text = r#"
            transaction = true
            [shared]
            id = {uniform = [1, "rows"]}
            [[statement]]
            sql = "DELETE FROM t WHERE id = :id AND ':x' <> :a AND a <> :a -- :b"
            a = {text = [3, 5]}
            [[statement]]
            sql = "SELECT * FROM t WHERE id BETWEEN :id AND :last AND c = :one"
            last = {plus = ["id", 99]}
            one = 1
            repeat = 3
        "#;
        let inner = parse(text).unwrap();
        let operation = &inner.operations[0];
        assert_eq!(
            operation.shared,
            [Source::Range(
                Shape::Uniform,
                Bound::Fixed(1),
                Bound::Rows(0)
            )]
        );
        assert_eq!(operation.statements(), 6);
        let Step::Prepared(first) = &operation.steps[0] else {
            panic!()
        };
        assert_eq!(
            first.sql,
            "DELETE FROM t WHERE id = ? AND ':x' <> ? AND a <> ? -- :b"
        );
        assert_eq!(
            first.parameters,
            [
                Parameter::Shared(0),
                Parameter::Drawn(Source::Text(3, 5)),
                Parameter::Same(1)
            ]
        );
        let Step::Prepared(second) = &operation.steps[1] else {
            panic!()
        };
        let plus = Parameter::Drawn(Source::Plus(Place::Shared(0), 99));
        let one = Parameter::Drawn(Source::Value(Literal::Int(1)));
        assert_eq!(second.parameters, [Parameter::Shared(0), plus, one]);
    }

    #[test]
    fn versions_belong_to_a_row_and_are_told() {
        let one = |text: &str| match &parse(text).unwrap().operations[0].steps[0] {
            Step::Prepared(statement) => statement.version(),
            Step::Words(_) => None,
        };
        let update = "[[statement]]\nsql = 'UPDATE t SET c = :c, v = last_insert_id (v + 1) WHERE id = :id'\nc = 1\nid = 2\n";
        assert_eq!(one(update), None);
        assert_eq!(
            one(&format!("{update}version-of = 'id'")),
            Some(Version::Written(1))
        );
        let select = "[[statement]]\nsql = 'select v FROM t WHERE id = :id'\nid = 2\n";
        assert_eq!(
            one(&format!("{select}version-of = 'id'")),
            Some(Version::Read(0))
        );
        for (text, line, want) in [
            (format!("{select}version-of = 'v'"), 4, "no parameter `:v`"),
            (
                "[[statement]]\nsql = 'UPDATE t SET v = v + 1 WHERE id = :id'\nid = 2\nversion-of = 'id'".to_owned(),
                4,
                "must tell it",
            ),
            ("[[statement]]\nsql = 'DELETE FROM t WHERE id = :id'\nid = 2\nversion-of = 'id'".to_owned(), 4, "only a SELECT"),
            (format!("transaction = true\n{select}version-of = 'id'"), 3, "outside of a transaction"),
        ] {
            let (at, reason) = refused(&text);
            assert!(at == line && reason.contains(want), "{text}: line {at}: {reason}");
        }
        assert!(parse(&format!("transaction = true\n{update}version-of = 'id'")).is_ok());
    }

    #[test]
    fn several_operations_with_weights() {
        let text = "
            [[operation]]
            name = 'read'
            weight = 9
            [[operation.statement]]
            sql = 'SELECT 1'
            [[operation]]
            transaction = true
            [[operation.statement]]
            sql = 'INSERT INTO t VALUES (:n)'
            n = {sequence = 'rows+1'}
        ";
        let inner = parse(text).unwrap();
        assert_eq!(
            (
                inner.operations.len(),
                inner.operations[0].weight,
                inner.operations[1].transaction
            ),
            (2, 9, true)
        );
    }

    #[test]
    fn tables_with_columns_and_their_size() {
        let text = "size = '3MB'\n[[table]]\nname = 't'\ncreate = 'CREATE TABLE t (id INT PRIMARY KEY, c CHAR(10));'\n\
                    after = ['CREATE INDEX c ON t (c)']\n[table.columns]\nid = {row = true}\nc = {pattern = '##-@@'}\n\
                    [[statement]]\nsql = 'SELECT 1'";
        let inner = parse(text).unwrap();
        assert_eq!(inner.size, Size::Bytes(3_000_000));
        let table = &inner.tables[0];
        assert_eq!(
            table
                .columns
                .iter()
                .map(|(name, _)| name.as_str())
                .collect::<Vec<_>>(),
            ["id", "c"]
        );
        assert!(table.row_bytes > 9 && !table.create.ends_with(';'));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        let statement = |more: &str| format!("[[statement]]\nsql = 'SELECT :id'\n{more}");
        for (text, line, wanted) in [
            (statement(""), 2, "`:id` does not exist"),
            (statement("id = 1\nother = 2"), 4, "no parameter `:other`"),
            (
                statement("id = {zipf = [9, 1]}"),
                3,
                "ends before it begins",
            ),
            (statement("id = {zip = [1, 9]}"), 3, "there is no `zip`"),
            (statement("id = {uniform = [1, 9], text = 3}"), 3, "one of"),
            (
                statement("id = {uniform = [1, 9], exponent = 3}"),
                3,
                "only zipf",
            ),
            (
                statement("id = {zipf = [1, 9], exponent = -1.0}"),
                3,
                "exponent",
            ),
            (
                statement("id = {uniform = [-1, 9]}"),
                3,
                "whole number from 0",
            ),
            (statement("id = {uniform = ['rows!', 9]}"), 3, "a bound is"),
            (
                statement("id = {text = 99999999}"),
                3,
                "whole number from 0",
            ),
            (statement("id = {row = true}"), 3, "only a table's columns"),
            (statement("id = {plus = ['x', 1]}"), 3, "no parameter `x`"),
            (statement("id = 1\nrepeat = 0"), 4, "never run"),
            (
                "[[statement]]\nsql = 'SELECT ?'".to_owned(),
                2,
                "write :name",
            ),
            (
                "[[statement]]\nsql = 'SELECT 1; SELECT 2'".to_owned(),
                2,
                "one statement",
            ),
            (
                "[[statement]]\nsql = \"SELECT 'a\"".to_owned(),
                2,
                "does not end",
            ),
            (
                "[[statement]]\nsq = 'SELECT 1'".to_owned(),
                1,
                "needs its `sql`",
            ),
            ("\nx = 3".to_owned(), 2, "no setting `x`"),
            ("".to_owned(), 1, "no statement to run"),
            ("[[statement]]\nsql = 'SELECT 1".to_owned(), 2, ""),
            (
                "size = 'big'\n[[statement]]\nsql = 'SELECT 1'".to_owned(),
                1,
                "`big`",
            ),
            (
                "size = 5\n[[statement]]\nsql = 'SELECT 1'".to_owned(),
                1,
                "no table",
            ),
            (
                "[shared]\nx = 1\n[[statement]]\nsql = 'SELECT 1'".to_owned(),
                1,
                "`x` is shared",
            ),
            ("statement = 3".to_owned(), 1, "[[statement]]"),
            ("[[table]]\nname = 'a b'\n".to_owned(), 2, "letters, digits"),
            (
                "[[table]]\nname = 'lag_probe'\n".to_owned(),
                2,
                "taken by the tool",
            ),
            ("[[table]]\nname = 'a'\n".to_owned(), 1, "needs a `create`"),
            ("[[operation]]\nweight = 0".to_owned(), 2, "weight of 0"),
        ] {
            let (got, reason) = refused(&text);
            assert!(
                got == line && reason.contains(wanted),
                "{text}\n{got}: {reason}"
            );
        }
    }

    #[test]
    fn colons_that_are_no_parameters_stay() {
        let (text, names) =
            parameters("SELECT @a := 1, '12:30:x', 1:2 /* :c */, `a:b`, x::y, :z_1").unwrap();
        assert_eq!(
            (text.as_str(), names.len()),
            ("SELECT @a := 1, '12:30:x', 1:2 /* :c */, `a:b`, x::y, ?", 1)
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\[\\[statement\\]\\]\n|\\[\\[table\\]\\]\n|sql = |'|\"|:id|id = |\\{|\\}|\\[|\\]|uniform|rows|text|[0-9]{1,20}|=|\n|,|-|/\\*|[a-zé?; ]){0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn no_sql_panics(sql in "\\PC{0,60}") {
            let _ = parameters(&sql);
            let _ = parse(&format!("[[statement]]\nsql = '''{sql}'''\nid = {{uniform = [1, 2]}}"));
        }

        #[test]
        fn no_value_panics(value in "(\\{|\\}|\\[|\\]|zipf|plus|choice|pattern|sequence| = |'[a-z+#@-]{0,8}'|,|-?[0-9.e]{1,20}|true|nan|inf|1979-05-27){0,15}") {
            let _ = parse(&format!("[[statement]]\nsql = 'SELECT :id'\nid = {value}"));
        }
    }
}
