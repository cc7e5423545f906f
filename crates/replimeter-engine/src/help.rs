//! Words in the help that differ between engines.

use replimeter_model::engine::Engine;

use crate::{
    dialect::{appliers, monitor_privilege},
    follow::LOG,
    option_file::PASSWORD_VARIABLE,
};

/// The stock client.
pub const CLIENT: &str = "mysql";

/// Returns a privilege of each engine, by the engine's name.
fn each(privilege: fn(Engine) -> &'static str) -> String {
    let named = |engine: Engine| format!("{} ({})", privilege(engine), engine.product());
    Engine::ALL.map(named).join(" or ")
}

/// Returns a text of the help with its placeholders filled in.
#[must_use]
pub fn filled(text: &str) -> String {
    [
        ("{client}", CLIENT.to_owned()),
        ("{scheme}", CLIENT.to_owned()),
        ("{password}", PASSWORD_VARIABLE.to_owned()),
        ("{log}", LOG.to_owned()),
        ("{id}", "GTID".to_owned()),
        ("{flush option}", "sync_binlog".to_owned()),
        ("{to follow}", "REPLICATION SLAVE".to_owned()),
        ("{to monitor}", each(monitor_privilege)),
        (
            "{to stop}",
            each(|engine| appliers::privileges(engine, false)[0]),
        ),
    ]
    .iter()
    .fold(text.to_owned(), |text, (name, word)| {
        text.replace(name, word)
    })
}
