//! Statements with named parameters.

use super::{
    super::{
        split::{self, ScriptError},
        value::{Place, Source},
        workload::{Parameter, Statement},
    },
    MAX_ITEMS,
    settings::{SettingEntry, SettingsFile},
};

/// Maximum number of executions of a statement in a row.
const MAX_REPEATED: u64 = 100_000;

/// Parses a statement. `shared` are the names that the operation shares; `used` is set for those that
/// it uses.
pub(super) fn statement(
    file: &SettingsFile<'_>,
    line: usize,
    entries: &[SettingEntry<'_>],
    shared: &[String],
    used: &mut [bool],
) -> Result<Statement, ScriptError> {
    let (mut sql, mut repeat, mut own, mut version_of) = (None, 1, Vec::new(), None);
    for &(key, line, value) in entries {
        match key {
            "sql" => sql = Some((file.string(value, key)?, file.line(&value.span()))),
            "repeat" => {
                repeat = file.natural(value, MAX_REPEATED)?;
                if repeat == 0 {
                    return file.error(value, "a statement repeated 0 times never runs; remove it");
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
    if names.len() > MAX_ITEMS {
        return Err(ScriptError::at(
            line_of_sql,
            format!("the statement has more than {MAX_ITEMS} parameters"),
        ));
    }
    let parameters = drawn(file, line_of_sql, &names, &own, shared, used)?;
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

/// Returns the sources of a statement's parameters: defined with the statement (`own`), shared with
/// other statements of the operation, or the same as an earlier one.
fn drawn(
    file: &SettingsFile<'_>,
    line: usize,
    names: &[String],
    own: &[SettingEntry<'_>],
    shared: &[String],
    used: &mut [bool],
) -> Result<Vec<Parameter>, ScriptError> {
    let mut parameters = Vec::new();
    for (index, name) in names.iter().enumerate() {
        if let Some(before) = names[..index].iter().position(|earlier| earlier == name) {
            // A shared parameter used twice is still the shared one.
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
            let source = file.parameter(value, &place)?;
            if let Source::Plus(Place::Shared(shared), _) = source {
                used[shared] = true;
            }
            parameters.push(Parameter::Drawn(source));
        } else if let Some(at) = shared.iter().position(|shared| shared == name) {
            used[at] = true;
            parameters.push(Parameter::Shared(at));
        } else {
            return Err(ScriptError::at(
                line,
                format!(
                    "the parameter `:{name}` does not exist; define it next to the statement, such as {name} = {{uniform = [1, 1000]}}"
                ),
            ));
        }
    }
    Ok(parameters)
}

/// Returns the parameter that is the row's number, for a statement that writes or reads its version.
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
    let returns_version = sql
        .to_ascii_uppercase()
        .split_whitespace()
        .collect::<String>()
        .contains("LAST_INSERT_ID(");
    match word.to_ascii_uppercase().as_str() {
        "SELECT" => Ok(row),
        "UPDATE" if returns_version => Ok(row),
        "UPDATE" => {
            Err("an UPDATE of a version must return it: SET v = LAST_INSERT_ID(v + 1)".to_owned())
        }
        _ => Err("only a SELECT reads a row's version, and only an UPDATE writes it".to_owned()),
    }
}

/// Replaces each `:name` outside of quotations and comments with `?`; returns the text and the names,
/// in order.
pub(super) fn parameters(sql: &str) -> Result<(String, Vec<String>), String> {
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
            at += split::skip(&sql[at..]).ok_or("unterminated quotation or comment")?;
            continue;
        }
        let name = rest[1..]
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .count();
        match rest[0] {
            b'?' => {
                return Err("parameters are named: write :name instead of ?".to_owned());
            }
            b';' => return Err("a [[statement]] holds one statement; write two of them".to_owned()),
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
