//! Rejects roles and levels of read consistency that the servers do not support.

use replimeter_engine::{dialect::sync_reads, source::Member};
use replimeter_instruments::stale::settings::{READERS, StalePlan, StaleSettings};
use replimeter_model::{
    plan::Request,
    shape::Shape,
    target::{PRIMARY, Role, Target},
};
use replimeter_run::cli_error::CliError;

/// Names that stand for servers by their role in the measurement.
const PARTS: [&str; 5] = [PRIMARY, "writer", "reader", "third", READERS];

/// Rejects invalid settings before anything is changed.
pub(super) fn check(request: &Request<StaleSettings>) -> Result<(), CliError> {
    let plan = &request.plan;
    for target in &request.targets {
        // The servers of a running sandbox are known only after it is found.
        let names = match target {
            Target::Sandbox(spec) => spec.shape.nodes(),
            Target::Nodes(nodes) => nodes.iter().map(|node| node.name.clone()).collect(),
            Target::Running(_) => continue,
        };
        let known = |name: &str| names.iter().any(|known| known == name);
        let refuse = |what: &str, name: &str, hint: &str| {
            let message = format!(
                "{what}: {} has no server named `{name}`; it has {}",
                target.label(),
                names.join(", ")
            );
            CliError::usage(message, hint)
        };
        if let Some(writer) = plan
            .writer
            .iter()
            .find(|writer| !known(writer) && *writer != PRIMARY)
        {
            return Err(refuse("the writer", writer, "name one of them"));
        }
        if let Some(reader) = plan
            .reader
            .iter()
            .find(|reader| !known(reader) && !PARTS[1..3].contains(&reader.as_str()))
        {
            return Err(refuse(
                "the reader",
                reader,
                "name one of them, or writer or reader (the first other server)",
            ));
        }
        let nodes = plan
            .cases
            .iter()
            .flat_map(|case| &case.0)
            .map(|load| load.node.as_str());
        if let Some(node) = nodes
            .into_iter()
            .find(|node| !known(node) && !PARTS.contains(node))
        {
            let hint = "name one of them, or writer, reader, readers (all of them) or third (neither writer nor reader)";
            return Err(refuse("the load", node, hint));
        }
        if let Target::Sandbox(spec) = target {
            waitable(spec.shape, plan)?;
        }
    }
    Ok(())
}

/// Rejects a shape that supports none of the requested levels of read consistency.
fn waitable(shape: Shape, plan: &StalePlan) -> Result<(), CliError> {
    let mut why = None;
    for level in &plan.read_consistency {
        match sync_reads::check(*level, shape.mode()) {
            Ok(_) => return Ok(()),
            Err(reason) => why = Some(reason),
        }
    }
    why.map_or(Ok(()), |(cause, hint)| {
        Err(CliError::usage(format!("{shape}: {cause}"), hint))
    })
}

/// Declares the writer, if one was given.
pub(super) fn declare_writer(
    declared: &mut [Member],
    writer: Option<&str>,
) -> Result<(), CliError> {
    let Some(writer) = writer.filter(|writer| !PARTS[..2].contains(writer)) else {
        return Ok(());
    };
    if !declared.iter().any(|one| one.node.name == writer) {
        let names: Vec<&str> = declared.iter().map(|one| one.node.name.as_str()).collect();
        return Err(CliError::usage(
            format!(
                "the writer: there is no server named `{writer}`; there are {}",
                names.join(", ")
            ),
            "name one of them",
        ));
    }
    for one in declared {
        if one.node.name == writer {
            one.role = Some(Role::Primary);
        } else if one.role == Some(Role::Primary) {
            one.role = None;
        }
    }
    Ok(())
}
