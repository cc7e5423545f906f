//! Servers of a made-up cluster, with a clock of its own.

use replimeter_engine::dialect::{Channel, ThreadState, heartbeats::Heartbeats};
use replimeter_model::{
    plan::{Settings, TargetSettings},
    time_span::TimeSpan,
};

use super::*;
use crate::watch::settings::WatchSettings;

const S: i64 = 1_000_000_000;

/// A primary and replicas, whose numbers are those of their last transactions.
struct Cluster {
    monitor: Monitor,
    now: Nanos,
    written: u64,
    received: Vec<u64>,
    applied: Vec<u64>,
    heartbeats: u64,
    /// Which server takes the writes.
    primary: usize,
    /// Servers that do not answer.
    gone: Vec<usize>,
    /// Transactions that a server has written itself.
    own: Vec<u64>,
    stopped: Vec<usize>,
    uptime: Option<Duration>,
    /// What each server shows of a heartbeat table, if there is one.
    values: Vec<Result<u64, &'static str>>,
    has_gtids: bool,
}

impl Cluster {
    fn new(replicas: usize) -> Self {
        let mut settings = WatchSettings {
            max_lag: Some(TimeSpan::from_secs(3)),
            ..WatchSettings::default()
        };
        let (_, plan) = settings.plan(&mut TargetSettings::default()).unwrap();
        let names = std::iter::once("primary".to_owned());
        let names = names.chain((1..=replicas).map(|number| format!("replica{number}")));
        Self {
            monitor: Monitor::new(names, Some(0), &plan, Nanos(0)),
            now: Nanos(0),
            written: 100,
            received: vec![100; replicas + 1],
            applied: vec![100; replicas + 1],
            heartbeats: 0,
            primary: 0,
            gone: Vec::new(),
            own: vec![0; replicas + 1],
            stopped: Vec::new(),
            uptime: None,
            values: Vec::new(),
            has_gtids: true,
        }
    }

    /// Creates one without GTIDs, with a heartbeat table.
    fn without_gtids(replicas: usize) -> Self {
        Self {
            values: vec![Ok(1); replicas + 1],
            has_gtids: false,
            ..Self::new(replicas)
        }
    }

    fn answer(&self, server: usize) -> Answer {
        let position = |number: u64| -> Position { format!("0-1-{number}").parse().unwrap() };
        let is_primary = server == self.primary;
        let number = if is_primary {
            self.written
        } else {
            self.applied[server]
        };
        let own = match self.own[server] {
            0 => String::new(),
            own => format!(",9-{}-{own}", server + 1),
        };
        let logged = format!("0-1-{number}{own}");
        let channels = match is_primary {
            true => Vec::new(),
            false => vec![Channel {
                source_server_id: self.primary as u64 + 1,
                receiver: ThreadState::Running,
                applier: match self.stopped.contains(&server) {
                    true => ThreadState::Stopped,
                    false => ThreadState::Running,
                },
                sql_error: "text hidden (error 1062)".to_owned(),
                by_gtid: true,
                ..Channel::default()
            }],
        };
        let mut answer = Answer {
            engine: Engine::ALL[0],
            identity: Some(Identity {
                server_id: server as u64 + 1,
                uuid: String::new(),
                place: format!("db{server}"),
            }),
            reading: Reading {
                executed: Executed::Domains {
                    logged: match logged.parse() {
                        Ok(Position::Domains(logged)) => logged,
                        _ => panic!("{logged}"),
                    },
                    applied: Vec::new(),
                },
                written: Some(position(number)),
                applied: Some(position(number)),
                received: (!is_primary).then(|| position(self.received[server])),
                channels: Ok(channels),
                heartbeats: (!is_primary).then_some(Heartbeats {
                    received: self.heartbeats,
                    period_s: 30.0,
                }),
                member: None,
                waits: None,
            },
            heartbeat: self.values.get(server).map(|value| match value {
                Ok(number) => Ok(TableValue::of([number])),
                Err(reason) => Err((*reason).to_owned()),
            }),
            uptime: self.uptime,
            replicas: None,
        };
        let reading = &mut answer.reading;
        if !self.has_gtids {
            reading.executed = Executed::Unknown("gtid_mode is OFF".to_owned());
            (reading.written, reading.applied, reading.received) = (None, None, None);
        }
        answer
    }

    /// Asks everyone a second later, and returns the states and the changes.
    fn second(&mut self) -> (Vec<State>, Vec<String>) {
        self.now = self.now + Nanos(S);
        let at = AnswerTime {
            asked: self.now,
            answered: self.now + Nanos(S / 1000),
        };
        for server in 0..self.applied.len() {
            if self.gone.contains(&server) {
                self.monitor.fail(server, "connection refused".to_owned());
            } else {
                let answer = self.answer(server);
                self.monitor.take(server, at, answer);
            }
        }
        let (round, changes) = self.monitor.decide(at.answered);
        let states = round.servers.iter().map(WatchSample::state).collect();
        let text = |change: WatchChange| format!("{} {}", change.server, change.text);
        (states, changes.into_iter().map(text).collect())
    }

    /// Returns the state of the first replica a second later.
    fn state(&mut self) -> State {
        self.second().0[1]
    }

    /// Writes a number of transactions, which every replica applies.
    fn write(&mut self, count: u64) {
        self.written += count;
        self.received.fill(self.written);
        self.applied.fill(self.written);
    }
}

#[test]
fn idle_primary_reads_zero_for_ten_minutes() {
    let mut cluster = Cluster::new(1);
    for second in 0..600 {
        if second % 30 == 0 {
            cluster.heartbeats += 1;
        }
        let state = cluster.state();
        assert_eq!(state == State::Idle, second >= 2, "{second}: {state:?}");
        let sample = cluster.monitor.sample(1, cluster.now);
        assert_eq!(sample.lag.unwrap().low_us, 0.0);
        assert_eq!(sample.behind, Some(0));
    }
}

#[test]
fn silent_link_is_unknown_after_missed_heartbeats() {
    let mut cluster = Cluster::new(1);
    let states: Vec<State> = (0..90).map(|_| cluster.state()).collect();
    assert_eq!(states[70], State::Idle);
    assert_eq!(states[80], State::Unknown, "75 s without a heartbeat");
    cluster.heartbeats += 1;
    assert_eq!(cluster.state(), State::Idle);
}

#[test]
fn cut_link_lags_at_once_and_is_blocked_within_six_seconds() {
    let mut cluster = Cluster::new(2);
    for _ in 0..5 {
        cluster.write(10);
        assert_eq!(cluster.state(), State::InStep);
    }
    let (mut low, mut states) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        cluster.written += 10;
        cluster.received[2] = cluster.written;
        cluster.applied[2] = cluster.written;
        states.push(cluster.state());
        low.push(cluster.monitor.sample(1, cluster.now).lag.unwrap().low_us);
    }
    assert!(low.is_sorted_by(|one, other| one < other), "{low:?}");
    let blocked = states.iter().position(|state| *state == State::Blocked);
    assert_eq!(blocked, Some(5), "{states:?}");
    // It has the first 50 transactions, which the link had carried, then all.
    cluster.write(10);
    let (states, changes) = cluster.second();
    assert_eq!(states[1..], [State::InStep, State::InStep]);
    assert_eq!(changes, ["replica1 in-step"]);
}

#[test]
fn slow_applier_lags_and_is_not_blocked() {
    let mut cluster = Cluster::new(1);
    let mut states = Vec::new();
    for _ in 0..20 {
        cluster.written += 10;
        cluster.received[1] = cluster.written;
        cluster.applied[1] += 1;
        states.push(cluster.state());
    }
    assert_eq!(states.last(), Some(&State::Lagging));
    assert!(!states.contains(&State::Blocked), "{states:?}");
}

#[test]
fn stopped_applier_and_its_error_number_show_at_once() {
    let mut cluster = Cluster::new(1);
    cluster.state();
    cluster.stopped = vec![1];
    let (states, changes) = cluster.second();
    assert_eq!(states[1], State::Stopped);
    assert!(changes[0].contains("error 1062"), "{changes:?}");
}

#[test]
fn server_that_is_gone_is_unreachable_and_delays_no_other() {
    let mut cluster = Cluster::new(2);
    cluster.write(10);
    cluster.second();
    cluster.gone = vec![1];
    let mut states = Vec::new();
    for _ in 0..8 {
        cluster.write(10);
        let (all, _) = cluster.second();
        assert_eq!(all[2], State::InStep);
        states.push(all[1]);
    }
    assert_eq!(states[7], State::Unreachable);
    // Back again after an hour, with a short uptime.
    cluster.now = cluster.now + Nanos(3_600 * S);
    cluster.gone.clear();
    cluster.uptime = Some(Duration::from_secs(20));
    cluster.write(10);
    let (all, changes) = cluster.second();
    assert_eq!(all[1], State::InStep);
    assert!(
        changes
            .iter()
            .any(|change| change == "replica1 it was restarted"),
        "{changes:?}"
    );
}

#[test]
fn unreachable_primary_leaves_its_replicas_unknown() {
    let mut cluster = Cluster::new(1);
    cluster.second();
    cluster.gone = vec![0];
    let last = (0..8).map(|_| cluster.second().0).last().unwrap();
    assert_eq!(last, [State::Unreachable, State::Unknown]);
}

#[test]
fn failover_is_followed() {
    let mut cluster = Cluster::new(2);
    for _ in 0..5 {
        cluster.write(10);
        cluster.second();
    }
    cluster.gone = vec![0];
    cluster.primary = 1;
    let mut changes = Vec::new();
    for _ in 0..8 {
        cluster.write(10);
        changes.extend(cluster.second().1);
    }
    let (states, _) = cluster.second();
    assert_eq!(states[1..], [State::Primary, State::InStep]);
    assert!(
        changes
            .iter()
            .any(|change| change == "replica1 it takes the writes now"),
        "{changes:?}"
    );
}

#[test]
fn errant_transactions_are_ahead() {
    let mut cluster = Cluster::new(1);
    cluster.second();
    cluster.own[1] = 3;
    for _ in 0..4 {
        cluster.write(1);
        cluster.second();
    }
    cluster.write(1);
    assert_eq!(cluster.state(), State::Ahead);
    let errant = cluster.monitor.sample(1, cluster.now).errant;
    assert_eq!(errant, Some(1), "at least: numbers of a domain are shared");
}

#[test]
fn transactions_that_no_replica_has_received_are_counted() {
    let mut cluster = Cluster::new(2);
    cluster.second();
    cluster.written += 7;
    cluster.received = vec![0, 102, 105];
    cluster.second();
    let (round, _) = cluster.monitor.decide(cluster.now);
    assert_eq!(round.not_received, Some(2));
    assert_eq!(round.servers[1].behind, Some(7));
}

/// A day with one replica stopped: the positions that are kept stay few.
#[test]
fn memory_is_flat_over_a_day_with_a_stopped_replica() {
    let mut cluster = Cluster::new(2);
    let mut most = 0;
    for _ in 0..86_400 {
        cluster.written += 10;
        cluster.received[2] = cluster.written;
        cluster.applied[2] = cluster.written;
        cluster.second();
        most = cluster.monitor.history.len().max(most);
    }
    assert!((1_000..3_000).contains(&most), "{most}");
    let lag = cluster.monitor.sample(1, cluster.now).lag.unwrap();
    assert!(lag.low_us < 86_400e6 && lag.low_us > 86_000e6, "{lag:?}");
}

#[test]
fn kept_servers_keep_what_is_known_about_them() {
    let mut target = TargetSettings::default();
    let (_, plan) = WatchSettings::default().plan(&mut target).unwrap();
    let names = |names: [&str; 3]| names.map(str::to_owned);
    let mut monitor = Monitor::new(names(["a", "b", "c"]), Some(1), &plan, Nanos(0));
    monitor.fail(1, "refused".to_owned());
    monitor.follow(&names(["d", "b", "c"]), Some(0), Nanos(1));
    assert_eq!(monitor.servers[1].failure.as_deref(), Some("refused"));
    assert_eq!(monitor.primary, Some(1));
    let (round, changes) = monitor.decide(Nanos(2));
    let servers: Vec<_> = round.servers.iter().map(|one| &one.server).collect();
    assert_eq!(servers, ["d", "b", "c"]);
    let texts = changes
        .iter()
        .map(|one| format!("{} {}", one.server, one.text));
    let texts: Vec<_> = texts.collect();
    assert_eq!(
        texts,
        ["d it is watched from now on", "a it is no longer watched"]
    );
    monitor.follow(&names(["d", "c", "e"]), Some(0), Nanos(3));
    assert_eq!(monitor.primary, Some(0), "as it is declared");
}

#[test]
fn values_of_a_table_decide_where_there_are_no_gtids() {
    let mut cluster = Cluster::without_gtids(2);
    let (states, _) = cluster.second();
    assert_eq!(states[1..], [State::InStep; 2]);
    let mut states = Vec::new();
    for number in 2..10 {
        cluster.values[0] = Ok(number);
        cluster.values[2] = Ok(number);
        let (all, _) = cluster.second();
        assert_eq!(all[2], State::InStep);
        states.push(all[1]);
    }
    assert!(states.contains(&State::Lagging), "{states:?}");
    assert_eq!(states.last(), Some(&State::Blocked));
    cluster.values.fill(Ok(10));
    assert_eq!(cluster.state(), State::InStep, "a proof of the link");
    // The writer pauses; heartbeats of the source prove the link.
    cluster.heartbeats += 1;
    let last = (0..60).map(|_| cluster.state()).last();
    assert_eq!(last, Some(State::Idle));
    let sample = cluster.monitor.sample(1, cluster.now);
    assert_eq!(sample.lag.map(|lag| lag.low_us), Some(0.0));
}

#[test]
fn table_that_cannot_be_read_is_named_and_read_again() {
    let mut cluster = Cluster::without_gtids(1);
    cluster.second();
    let grant = "`a`.`b` cannot be read: GRANT SELECT ON `a`.`b` TO the user";
    cluster.values[1] = Err(grant);
    let (states, changes) = cluster.second();
    assert_eq!(states[1], State::Unknown);
    assert_eq!(changes[0], format!("replica1 {grant}"));
    assert!(changes[1].ends_with(grant), "{changes:?}");
    cluster.values = vec![Err("there is no table `a`.`b`"), Ok(1)];
    let (_, changes) = cluster.second();
    let missing = "gtid_mode is OFF; there is no table `a`.`b`";
    let reason = cluster.monitor.sample(1, cluster.now).reason;
    assert!(reason.ends_with(missing), "{reason}, {changes:?}");
    cluster.values = vec![Ok(2); 2];
    let (states, changes) = cluster.second();
    assert_eq!(states[1], State::InStep, "{changes:?}");
    // Where positions are known, nothing is missing without the table.
    cluster.has_gtids = true;
    cluster.values[1] = Err(grant);
    assert_eq!(cluster.second().0[1], State::InStep);
}

#[test]
fn value_that_the_primary_never_showed_is_unknown() {
    let mut cluster = Cluster::without_gtids(1);
    cluster.values = vec![Ok(5), Ok(4)];
    assert_eq!(cluster.state(), State::Unknown);
    let reason = cluster.monitor.sample(1, cluster.now).reason;
    assert!(reason.contains("has not shown"), "{reason}");
    cluster.values[1] = Ok(5);
    assert_eq!(cluster.state(), State::InStep);
}

#[test]
fn probe_proves_links_without_heartbeats_and_is_never_idle() {
    let mut cluster = Cluster::new(1);
    cluster.monitor.probe = Some(Ok(()));
    cluster.monitor.probe_limit = Nanos(5 * S / 2);
    for _ in 0..100 {
        cluster.write(1);
        assert_eq!(cluster.state(), State::InStep);
        let sample = cluster.monitor.sample(1, cluster.now);
        assert!(sample.proof_age_us.unwrap_or(0.0) <= 2e6, "{sample:?}");
    }
    // The link is cut: its row does not arrive.
    let states: Vec<State> = (0..8)
        .map(|_| {
            cluster.written += 1;
            cluster.state()
        })
        .collect();
    assert_eq!(states[5], State::Blocked, "{states:?}");
    // A primary that is read-only.
    cluster.write(1);
    let reason = "the server is read-only".to_owned();
    cluster.monitor.take_probe(cluster.now, Err(reason));
    let (_, changes) = cluster.second();
    assert_eq!(
        changes[0],
        "primary the probe does not write: the server is read-only"
    );
    let last = (0..90).map(|_| cluster.state()).last();
    assert_eq!(last, Some(State::Unknown));
    assert!(cluster.monitor.writer(cluster.now).is_some());
    cluster.gone = vec![0];
    let _ = (0..9).map(|_| cluster.state()).count();
    assert_eq!(cluster.monitor.writer(cluster.now), None);
}
