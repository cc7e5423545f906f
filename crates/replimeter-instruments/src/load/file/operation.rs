//! Operations: statements that run together.

use super::{
    super::{
        split::ScriptError,
        value::{Place, Source},
        workload::{Operation, Step, Version},
    },
    settings::{SettingEntry, SettingsFile},
    statement::statement,
};

/// Parses an operation.
pub(super) fn operation(
    file: &SettingsFile<'_>,
    line: usize,
    entries: &[SettingEntry<'_>],
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
                    return file.error(
                        value,
                        "a weight of 0 never runs the operation; remove the operation",
                    );
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
                    operation.shared.push(file.parameter(value, &place)?);
                    names.push(name.to_owned());
                }
            }
            // The shared parameters must be parsed first, wherever they are written.
            "statement" => statements = Some(value),
            other => {
                let known = "name, weight, transaction, shared and statement";
                return Err(ScriptError::at(
                    line,
                    format!("unknown setting `{other}` of an operation; known: {known}"),
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
    check(&operation, &names, used, line)?;
    Ok(operation)
}

/// Checks that all shared parameters are used, and that versions are read outside of transactions.
fn check(
    operation: &Operation,
    names: &[String],
    mut used: Vec<bool>,
    line: usize,
) -> Result<(), ScriptError> {
    // A shared parameter from which another one is derived is used too.
    for source in &operation.shared {
        if let Source::Plus(Place::Shared(of), _) = source {
            used[*of] = true;
        }
    }
    if let Some(unused) = used.iter().position(|used| !used) {
        return Err(ScriptError::at(
            line,
            format!(
                "`{}` is shared, but no statement uses `:{0}`",
                names[unused]
            ),
        ));
    }
    if operation.steps.is_empty() {
        return Err(ScriptError::at(line, "an operation needs a [[statement]]"));
    }
    for step in operation.steps.iter().filter(|_| operation.transaction) {
        if let Step::Prepared(statement) = step
            && matches!(statement.version(), Some(Version::Read(_)))
        {
            let reason = "a version must be read outside of a transaction: inside one, reads show the state at its start";
            return Err(ScriptError::at(statement.line, reason));
        }
    }
    Ok(())
}
