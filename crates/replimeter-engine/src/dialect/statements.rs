//! Statements for hints, in the server's dialect.

use replimeter_model::engine::Engine;

use crate::{ServerError, Session, dialect::Channel};

/// The part of a channel to start or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelPart {
    /// Both threads.
    Both,
    /// The receiving thread.
    Receiver,
    /// The applying thread and its workers.
    Applier,
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

fn statement(verb: &str, engine: Engine, channel: &Channel, part: ChannelPart) -> String {
    // A server with these column names has the new statements; MariaDB takes the old ones in every
    // version.
    let word = if channel.raw.contains_key("Replica_IO_Running") {
        "REPLICA"
    } else {
        "SLAVE"
    };
    let part = match part {
        ChannelPart::Both => "",
        ChannelPart::Receiver => " IO_THREAD",
        ChannelPart::Applier => " SQL_THREAD",
    };
    match engine {
        Engine::MariaDb => format!("{verb} {word}{}{part};", connection(channel)),
        Engine::MySql => format!("{verb} {word}{part}{};", for_channel(channel)),
    }
}

/// Returns a connection's name after the verb, in MariaDB's dialect; without one it means the default connection alone.
fn connection(channel: &Channel) -> String {
    match channel.name.as_str() {
        "" => String::new(),
        name => format!(" {}", quoted(name)),
    }
}

/// Returns the clause for one channel, in MySQL's dialect. The default channel has it too: without it MySQL stops or starts
/// all channels.
fn for_channel(channel: &Channel) -> String {
    format!(" FOR CHANNEL {}", quoted(&channel.name))
}

/// The end of the definition of a table with transactions, before its comment.
pub const TRANSACTIONAL: &str = "ENGINE=InnoDB";

/// Returns the statement that starts a channel.
#[must_use]
pub fn start(engine: Engine, channel: &Channel, part: ChannelPart) -> String {
    statement("START", engine, channel, part)
}

/// Returns the statement that stops a channel.
#[must_use]
pub fn stop(engine: Engine, channel: &Channel, part: ChannelPart) -> String {
    statement("STOP", engine, channel, part)
}

/// Returns the statements that stop a channel and start it again.
#[must_use]
pub fn restart(engine: Engine, channel: &Channel, part: ChannelPart) -> String {
    format!(
        "{} {}",
        stop(engine, channel, part),
        start(engine, channel, part)
    )
}

/// Returns the option of the statement that changes a channel, for its delay.
#[must_use]
pub fn delay_option(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => "MASTER_DELAY",
        Engine::MySql => "SOURCE_DELAY",
    }
}

/// Returns the statement that makes a server refuse the writes of all users whom it can refuse.
#[must_use]
pub fn forbid_writes(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => "SET GLOBAL read_only=ON;",
        Engine::MySql => "SET GLOBAL super_read_only=ON;",
    }
}

/// Returns the statements that make a channel use GTIDs as positions.
#[must_use]
pub fn use_gtid(engine: Engine, channel: &Channel) -> String {
    let change = match engine {
        Engine::MariaDb => format!(
            "CHANGE MASTER{} TO MASTER_USE_GTID=slave_pos;",
            connection(channel)
        ),
        Engine::MySql => format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=1{};",
            for_channel(channel)
        ),
    };
    let part = ChannelPart::Both;
    format!(
        "{} {change} {}",
        stop(engine, channel, part),
        start(engine, channel, part)
    )
}

/// Checks that a channel's position names the transactions that it has received.
///
/// # Errors
/// When it does not, with the statements that change that.
pub fn check_position(
    session: &Session,
    engine: Engine,
    channel: &Channel,
) -> Result<(), ServerError> {
    if channel.by_gtid {
        return Ok(());
    }
    Err(session.precondition(
        "cannot read its received transactions",
        "its channel does not use GTID positions",
        use_gtid(engine, channel),
    ))
}

/// Returns the privilege for reading the status of the log, as GRANT spells it.
#[must_use]
pub fn log_privilege(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => "BINLOG MONITOR",
        Engine::MySql => "REPLICATION CLIENT",
    }
}

/// Returns the privilege for changing `binlog_format` and `sql_log_bin` of a session, as GRANT
/// spells it.
#[must_use]
pub fn restricted_variables_privilege(engine: Engine, version: &str) -> &'static str {
    match engine {
        // MariaDB took it out of SUPER in 10.5.2, MySQL in 8.0.14.
        Engine::MariaDb if numbers(version) >= [10, 5, 2] => "BINLOG ADMIN",
        Engine::MySql if numbers(version) >= [8, 0, 14] => "SESSION_VARIABLES_ADMIN",
        _ => "SUPER",
    }
}

/// Returns the privilege for writing to a read-only server, as GRANT spells it.
#[must_use]
pub fn read_only_privilege(engine: Engine) -> &'static str {
    match engine {
        Engine::MariaDb => "READ_ONLY ADMIN",
        Engine::MySql => "CONNECTION_ADMIN",
    }
}

/// Returns the three numbers at the beginning of a version.
fn numbers(version: &str) -> [u64; 3] {
    let number = version
        .split(|character: char| !character.is_ascii_digit() && character != '.')
        .next()
        .unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_by_version() {
        for (engine, version, privilege) in [
            (Engine::MariaDb, "10.11.6-MariaDB-0+deb12u1", "BINLOG ADMIN"),
            (Engine::MariaDb, "10.4.34-MariaDB", "SUPER"),
            (Engine::MySql, "9.7.4", "SESSION_VARIABLES_ADMIN"),
            (Engine::MySql, "8.0.13-4", "SUPER"),
            (Engine::MySql, "5.7", "SUPER"),
        ] {
            assert_eq!(
                restricted_variables_privilege(engine, version),
                privilege,
                "{version}"
            );
        }
    }

    #[test]
    fn statements_use_the_server_dialect() {
        let old = Channel {
            name: "o'b".to_owned(),
            ..Channel::default()
        };
        assert_eq!(
            restart(Engine::MariaDb, &old, ChannelPart::Receiver),
            "STOP SLAVE 'o''b' IO_THREAD; START SLAVE 'o''b' IO_THREAD;"
        );
        let mut new = Channel {
            name: "c".to_owned(),
            ..Channel::default()
        };
        new.raw
            .insert("Replica_IO_Running".to_owned(), "Yes".to_owned());
        assert_eq!(
            start(Engine::MySql, &new, ChannelPart::Receiver),
            "START REPLICA IO_THREAD FOR CHANNEL 'c';"
        );
        assert_eq!(
            restart(Engine::MySql, &Channel::default(), ChannelPart::Applier),
            "STOP SLAVE SQL_THREAD FOR CHANNEL ''; START SLAVE SQL_THREAD FOR CHANNEL '';",
            "without the clause MySQL stops and starts all channels"
        );
        assert_eq!(
            start(Engine::MariaDb, &Channel::default(), ChannelPart::Both),
            "START SLAVE;"
        );
        assert_eq!(
            use_gtid(Engine::MySql, &new),
            "STOP REPLICA FOR CHANNEL 'c'; CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=1 FOR CHANNEL 'c'; START REPLICA FOR CHANNEL 'c';"
        );
        assert_eq!(
            use_gtid(Engine::MariaDb, &old),
            "STOP SLAVE 'o''b'; CHANGE MASTER 'o''b' TO MASTER_USE_GTID=slave_pos; START SLAVE 'o''b';"
        );
        assert_eq!(
            stop(Engine::MySql, &new, ChannelPart::Applier),
            "STOP REPLICA SQL_THREAD FOR CHANNEL 'c';"
        );
    }
}
