//! What an idle link still carries: the heartbeats of a source, as the replica counts them.

use replimeter_model::engine::Engine;

use super::{Channel, group};
use crate::{ErrorKind, ServerError, Session};

/// The heartbeats that a replica has received from its sources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Heartbeats {
    /// Their number since its channels were started.
    pub received: u64,
    /// The time between two of them, in seconds; 0 if the source sends none.
    pub period_s: f64,
}

/// The privilege for reading them where the channels do not show them, as GRANT spells it.
#[must_use]
pub fn privilege(engine: Engine) -> Option<&'static str> {
    (engine == Engine::MySql).then_some("SELECT ON `performance_schema`.*")
}

/// Returns the heartbeats that a server has received by its channels; `None` if the user may not read them.
///
/// # Errors
/// When the connection breaks.
pub fn heartbeats(
    engine: Engine,
    session: &mut Session,
    channels: &[Channel],
) -> Result<Option<Heartbeats>, ServerError> {
    match engine {
        Engine::MariaDb => Ok(of_channels(channels)),
        Engine::MySql => of_tables(session),
    }
}

/// Returns those that the channels' own columns count.
fn of_channels(channels: &[Channel]) -> Option<Heartbeats> {
    let mut all = Heartbeats::default();
    for channel in channels {
        let column = |name: &str| channel.raw.get(name);
        all.received += column("Slave_received_heartbeats")?.parse::<u64>().ok()?;
        let period_s = column("Slave_heartbeat_period")?.parse::<f64>().ok()?;
        all.period_s = all.period_s.max(period_s);
    }
    (!channels.is_empty()).then_some(all)
}

fn of_tables(session: &mut Session) -> Result<Option<Heartbeats>, ServerError> {
    let sql = format!(
        "SELECT CONCAT_WS(' ', SUM(s.COUNT_RECEIVED_HEARTBEATS), MAX(c.HEARTBEAT_INTERVAL)) \
         FROM performance_schema.replication_connection_status s \
         JOIN performance_schema.replication_connection_configuration c USING (CHANNEL_NAME) \
         WHERE s.CHANNEL_NAME NOT LIKE '{}%'",
        group::CHANNELS
    );
    let text = match session.value("cannot read its heartbeats", &sql) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) if matches!(error.kind, ErrorKind::Privilege | ErrorKind::Statement(_)) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let both = text.split_once(' ');
    Ok(both.and_then(|(received, period_s)| {
        Some(Heartbeats {
            received: received.parse().ok()?,
            period_s: period_s.parse().ok()?,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_of_all_channels_are_summed() {
        let channel = |received: &str, period: &str| Channel {
            raw: [
                ("Slave_received_heartbeats", received),
                ("Slave_heartbeat_period", period),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
            ..Channel::default()
        };
        let all = of_channels(&[channel("3", "30.000"), channel("4", "0.500")]);
        assert_eq!(
            all,
            Some(Heartbeats {
                received: 7,
                period_s: 30.0
            })
        );
        assert_eq!(of_channels(&[]), None);
        assert_eq!(of_channels(&[Channel::default()]), None, "not shown");
    }
}
