//! What happened to servers during a run, also where no measuring connection met it: a restart, a failover, a reset log.

use std::{ops::RangeInclusive, thread, time::Duration};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{
        self, Channel,
        log::{ITS_LOG, LogEnd},
    },
    facts::ServerFacts,
    identity::{Identity, RecordedIdentity},
    position::{Executed, executed},
};
use replimeter_model::warning::{Warning, WarningCode};

use crate::preflight::Cluster;

/// Timeout of an answer at the end.
const ANSWER: Duration = Duration::from_secs(2);
/// How much two readings of when a server was started may differ, in seconds.
const ROUNDING: i64 = 1;
const OPERATION: &str = "cannot read what happened during the run";
const MIXED: &str =
    "see the server's error log; the figures mix what was before with what was after";

/// A server, as it was when the run began.
pub struct SeenServer {
    node: Node,
    before: State,
}

/// What a change between two times shows in.
#[derive(Clone, Debug)]
struct State {
    identity: Identity,
    /// When it was started, in seconds of its own clock: a change of that clock leaves it as it is.
    started: RangeInclusive<i64>,
    read_only: Option<&'static str>,
    /// `None` if the user may not read them.
    channels: Option<Vec<Channel>>,
    executed: Executed,
    /// The end of its log; `None` without one, or if the user may not read it.
    log: Option<LogEnd>,
}

impl State {
    fn read(session: &mut Session) -> Result<Self, ServerError> {
        let mut number = |sql: &str| -> Result<i64, ServerError> {
            let values = session.rows(OPERATION, sql)?;
            let value = values.iter().flatten().find_map(|(name, value)| {
                // The only number of the row.
                (name != "Variable_name").then(|| value.parse().ok())?
            });
            Ok(value.unwrap_or(0))
        };
        let first = number("SELECT UNIX_TIMESTAMP()")?;
        let uptime = number("SHOW GLOBAL STATUS LIKE 'Uptime'")?;
        let last = number("SELECT UNIX_TIMESTAMP()")?;
        let facts = ServerFacts::read(session)?;
        Ok(Self {
            identity: facts.identity(),
            started: first - uptime..=last - uptime,
            read_only: facts.read_only(),
            channels: dialect::source_channels(facts.engine, session).ok(),
            executed: executed(&facts, session)?,
            log: LogEnd::read(facts.engine, session).ok().flatten(),
        })
    }

    /// Returns what has changed since an earlier time, each with a hint.
    fn since(&self, before: &Self) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        if !self.identity.is_same_server(&before.identity) {
            let place = &self.identity.place;
            found.push((
                format!("its address leads to another server now ({place})"),
                "run again: a failover, or a load balancer, has changed the servers",
            ));
            return found;
        }
        if *self.started.start() > before.started.end() + ROUNDING {
            found.push(("was restarted during the run".to_owned(), MIXED));
        }
        if self.log_was_reset(before) {
            found.push((
                format!("{ITS_LOG} was reset during the run, or transactions were removed from it"),
                "run again: replicas and figures that rely on its positions may be wrong",
            ));
        }
        match (before.read_only, self.read_only) {
            (None, Some(name)) => found.push((format!("became read-only ({name})"), MIXED)),
            (Some(name), None) => found.push((format!("became writable ({name} was on)"), MIXED)),
            _ => {}
        }
        if let (Some(before), Some(now)) = (&before.channels, &self.channels) {
            found.extend(
                other_sources(before, now)
                    .into_iter()
                    .map(|text| (text, MIXED)),
            );
        }
        found
    }

    fn log_was_reset(&self, before: &Self) -> bool {
        let lacks = self.executed.lacks(&before.executed);
        let both = self.log.as_ref().zip(before.log.as_ref());
        lacks || both.is_some_and(|(now, before)| now.is_before(before))
    }
}

/// Returns which channels lead to another server than before.
fn other_sources(before: &[Channel], now: &[Channel]) -> Vec<String> {
    let source = |channel: &Channel| format!("{}:{}", channel.source_host, channel.source_port);
    let same = |before: &Channel, now: &Channel| {
        // A channel that has not connected yet knows neither.
        let (uuids, ids) = (
            [&before.source_uuid, &now.source_uuid],
            [before.source_server_id, now.source_server_id],
        );
        source(before) == source(now)
            && (uuids.iter().any(|uuid| uuid.is_empty()) || uuids[0] == uuids[1])
            && (ids.contains(&0) || ids[0] == ids[1])
    };
    fn of<'a>(channels: &'a [Channel], name: &str) -> Option<&'a Channel> {
        channels.iter().find(|channel| channel.name == name)
    }
    let mut found = Vec::new();
    for old in before {
        match of(now, &old.name) {
            None => found.push(format!("no longer replicates from {}", source(old))),
            Some(new) if !same(old, new) => found.push(format!(
                "replicates from {} (server_id {}) now, and from {} (server_id {}) before",
                source(new),
                new.source_server_id,
                source(old),
                old.source_server_id
            )),
            Some(_) => {}
        }
    }
    let added = now.iter().filter(|new| of(before, &new.name).is_none());
    found.extend(added.map(|new| format!("replicates from {} now", source(new))));
    found
}

/// Reads the state of the servers of a run when it begins. A server whose state cannot be read is left out.
pub fn see(cluster: &mut Cluster) -> Vec<SeenServer> {
    let seen = cluster.servers_mut().filter_map(|server| {
        let before = State::read(&mut server.session).ok()?;
        Some(SeenServer {
            node: server.node.clone(),
            before,
        })
    });
    seen.collect()
}

/// Returns warnings about what happened to these servers, which are all asked at the same time.
#[must_use]
pub fn changes(seen: &[SeenServer]) -> Vec<Warning> {
    let found: Vec<Vec<Warning>> = thread::scope(|scope| {
        let asked: Vec<_> = seen
            .iter()
            .map(|server| scope.spawn(|| server.changes()))
            .collect();
        let reported = asked.into_iter().map(|asked| asked.join());
        reported.map(Result::unwrap_or_default).collect()
    });
    found.into_iter().flatten().collect()
}

impl SeenServer {
    fn changes(&self) -> Vec<Warning> {
        let node = Node {
            answer: ANSWER,
            // Another server is found here, and not refused.
            identity: RecordedIdentity::default(),
            ..self.node.clone()
        };
        let now = Session::open(&node).and_then(|mut session| State::read(&mut session));
        match now {
            Ok(now) => {
                let found = now.since(&self.before).into_iter();
                found
                    .map(|(text, hint)| {
                        let text = format!("{node}: {text}");
                        Warning::new(WarningCode::ServerChanged, text, node.hint(hint))
                    })
                    .collect()
            }
            Err(error) => vec![Warning::new(
                WarningCode::ServerSilent,
                format!(
                    "{node} did not answer at the end of the run: {}",
                    error.cause
                ),
                node.hint(
                    "see the server's error log; what happened to it during the run is not known",
                ),
            )],
        }
    }
}

#[cfg(test)]
mod tests {
    use replimeter_engine::position::{GtidSet, domain_commits};

    use super::*;

    const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn state() -> State {
        State {
            identity: Identity {
                server_id: 1,
                uuid: String::new(),
                place: "h:3306 /data".to_owned(),
            },
            started: 1000..=1001,
            read_only: None,
            channels: Some(vec![Channel {
                source_host: "p".to_owned(),
                source_port: "3306".to_owned(),
                source_server_id: 7,
                ..Channel::default()
            }]),
            executed: Executed::Unknown(String::new()),
            log: Some(LogEnd::of("binlog.000009", 500)),
        }
    }

    /// Returns the warnings about a state after a change.
    fn reported(change: impl FnOnce(&mut State)) -> Vec<String> {
        let mut now = state();
        change(&mut now);
        let found = now.since(&state()).into_iter();
        found.map(|(text, _)| text).collect()
    }

    #[test]
    fn what_happened_to_a_server_is_reported() {
        assert_eq!(reported(|_| {}), [""; 0]);
        assert_eq!(reported(|now| now.started = 1002..=1002), [""; 0]);
        assert_eq!(
            reported(|now| now.started = 1003..=1009),
            ["was restarted during the run"]
        );
        assert_eq!(
            reported(|now| now.read_only = Some("read_only")),
            ["became read-only (read_only)"]
        );
        assert_eq!(
            reported(|now| now.channels = Some(Vec::new())),
            ["no longer replicates from p:3306"]
        );
        let source = |id: u64| {
            reported(move |now| {
                now.channels
                    .iter_mut()
                    .flatten()
                    .for_each(|one| one.source_server_id = id)
            })
        };
        assert_eq!(source(0), [""; 0], "it has not connected");
        assert_eq!(
            source(8),
            ["replicates from p:3306 (server_id 8) now, and from p:3306 (server_id 7) before"]
        );
        assert_eq!(
            reported(|now| now.channels = None),
            [""; 0],
            "it may not be read"
        );
        // Another server has its own start.
        assert_eq!(
            reported(|now| {
                now.identity.server_id = 2;
                now.started = 9000..=9000;
            }),
            ["its address leads to another server now (h:3306 /data)"]
        );
    }

    #[test]
    fn log_that_goes_backward_was_reset() {
        let found = reported(|now| now.log = Some(LogEnd::of("binlog.000001", 900)));
        assert_eq!(found.len(), 1, "{found:?}");
        let set = |text: &str| Executed::Set(GtidSet::parse(&format!("{UUID}:{text}")).unwrap());
        let domains = |text: &str| Executed::Domains {
            logged: domain_commits(text).unwrap(),
            applied: Vec::new(),
        };
        for (before, now, is_reset) in [
            (set("1-5"), set("1-9"), false),
            (set("1-5"), set("1-4"), true),
            (domains("0-1-5,0-2-3"), domains("0-2-3,0-1-9"), false),
            (domains("0-1-5,0-2-3"), domains("0-1-9"), true),
            (domains("0-1-5"), domains("0-1-1"), true),
        ] {
            let earlier = State {
                executed: before,
                ..state()
            };
            let now = State {
                executed: now,
                ..state()
            };
            assert_eq!(now.log_was_reset(&earlier), is_reset, "{now:?}");
        }
    }
}
