//! Time dilation: everything that waits is slowed by a factor, so that the cores are as many times faster than it.

use std::time::Duration;

use super::{Bandwidth, LinkSpec, SandboxSpec};
use crate::{
    server_option::{NodeOption, ServerOption},
    shape::Mode,
    time_span::TimeSpan,
};

/// Timers of servers whose whole value is a time, in the server's own unit: the default where it matters within seconds, and the
/// largest value (manuals of MariaDB 11.8 and MySQL 9.7; of both the smaller).
const TIMERS: [(&str, Option<u64>, u64); 11] = [
    ("binlog_commit_wait_usec", None, 4_294_967_295),
    ("binlog_group_commit_sync_delay", None, 1_000_000),
    ("group_replication_flow_control_period", None, 60),
    ("group_replication_member_expel_timeout", Some(5), 3600),
    (
        "group_replication_unreachable_majority_timeout",
        None,
        31_536_000,
    ),
    ("innodb_flush_log_at_timeout", Some(1), 2700),
    ("innodb_lock_wait_timeout", None, 100_000_000),
    ("replica_net_timeout", Some(60), 31_536_000),
    ("rpl_semi_sync_master_timeout", Some(10_000), 4_294_967_295),
    ("rpl_semi_sync_source_timeout", Some(10_000), 4_294_967_295),
    ("slave_net_timeout", Some(60), 31_536_000),
];

/// Galera's timers in tenths of a second (documentation of `wsrep_provider_options`, Galera 4).
const GALERA: [(&str, u64); 8] = [
    ("evs.inactive_check_period", 5),
    ("evs.inactive_timeout", 150),
    ("evs.install_timeout", 75),
    ("evs.join_retrans_period", 10),
    ("evs.keepalive_period", 10),
    ("evs.suspect_timeout", 50),
    ("gmcast.peer_timeout", 30),
    ("repl.causal_read_timeout", 300),
];

/// Galera's options, as one.
const PROVIDER_OPTIONS: &str = "wsrep_provider_options";

/// Parts of the names of options that are times.
const TIMES: [&str; 6] = ["timeout", "delay", "interval", "usec", "period", "lag"];

/// Returns an option's name without the prefix that allows it to be unknown.
fn plain(name: &str) -> &str {
    name.strip_prefix("loose_").unwrap_or(name)
}

/// Returns a time, slowed by a factor.
#[must_use]
pub fn slowed(span: TimeSpan, factor: u32) -> TimeSpan {
    TimeSpan(span.0.saturating_mul(factor))
}

/// Slows a rate.
///
/// # Errors
/// When it is not a multiple of the factor: it would be another rate in plain time.
pub fn slow_rate(rate: &mut u64, factor: u32) -> Result<(), String> {
    if !rate.is_multiple_of(u64::from(factor)) {
        return Err(format!(
            "rate = {rate} cannot be slowed {factor} times; give a multiple of {factor}, which is the rate in plain time"
        ));
    }
    *rate /= u64::from(factor);
    Ok(())
}

impl SandboxSpec {
    /// Returns the settings of the slowed servers: links, flushes and timers take as many times longer as its dilation says.
    #[must_use]
    pub fn dilated(&self) -> Self {
        let Some(factor) = self.dilation else {
            return self.clone();
        };
        let defaults = TIMERS.iter().filter_map(|(name, default, _)| {
            Some(everywhere(
                format!("loose_{name}"),
                (*default)? * u64::from(factor),
            ))
        });
        let given = self.server_options.iter().cloned().map(|mut option| {
            if let Some(value) = slowed_timer(&option.option, factor) {
                option.option.value = Some(value.to_string());
            }
            option
        });
        // A server takes the last of several.
        let mut server_options: Vec<NodeOption> = defaults.chain(given).collect();
        if self.shape.mode() == Mode::Galera {
            slow_galera(&mut server_options, factor);
        }
        Self {
            server_options,
            link: self.link.map(|link| LinkSpec {
                delay: slowed(link.delay, factor),
                jitter: slowed(link.jitter, factor),
                bandwidth: link.bandwidth.map(|bandwidth| Bandwidth {
                    bits: bandwidth.bits / u64::from(factor),
                }),
            }),
            client_link: self.client_link.map(|delay| slowed(delay, factor)),
            flush_delay: self.flush_delay.map(|delay| slowed(delay, factor)),
            ..self.clone()
        }
    }

    /// Returns the user's server options that look like timers, and that a dilation does not slow.
    #[must_use]
    pub fn undilated(&self) -> Vec<String> {
        let Some(factor) = self.dilation else {
            return Vec::new();
        };
        let options = self.server_options.iter().map(|option| &option.option);
        let unknown = options.filter(|option| {
            let name = plain(&option.name);
            let text = match name == PROVIDER_OPTIONS {
                true => option.value.as_deref().unwrap_or_default(),
                false => name,
            };
            TIMES.iter().any(|time| text.contains(time)) && slowed_timer(option, factor).is_none()
        });
        unknown.map(ToString::to_string).collect()
    }
}

/// Returns the slowed value of a timer; `None` for another option, one without a plain number, and beyond what servers take.
fn slowed_timer(option: &ServerOption, factor: u32) -> Option<u64> {
    let (_, _, most) = TIMERS
        .iter()
        .find(|(timer, ..)| *timer == plain(&option.name))?;
    let number: u64 = option.value.as_deref()?.parse().ok()?;
    let slowed = number.checked_mul(u64::from(factor))?;
    (slowed <= *most).then_some(slowed)
}

fn everywhere(name: String, value: impl ToString) -> NodeOption {
    NodeOption {
        node: None,
        option: ServerOption {
            name,
            value: Some(value.to_string()),
        },
    }
}

/// Adds Galera's slowed timers; those that the user gives follow, and count.
fn slow_galera(options: &mut Vec<NodeOption>, factor: u32) {
    let timers = GALERA.map(|(name, tenths)| {
        let time = Duration::from_millis(tenths * 100) * factor;
        format!("{name}=PT{}S", time.as_secs_f64())
    });
    let timers = timers.join(";");
    let given = options.iter_mut().map(|option| &mut option.option);
    for option in given.filter(|option| option.name == PROVIDER_OPTIONS) {
        let value = option.value.get_or_insert_default();
        *value = format!("{timers};{value}");
    }
    options.insert(0, everywhere(PROVIDER_OPTIONS.to_owned(), timers));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(shape: &str, options: &[&str]) -> SandboxSpec {
        SandboxSpec {
            server_options: options.iter().map(|text| text.parse().unwrap()).collect(),
            link: Some(LinkSpec {
                delay: TimeSpan::from_millis(1),
                jitter: TimeSpan::from_millis(1),
                bandwidth: Some("100mbit".parse().unwrap()),
            }),
            client_link: Some("165us".parse().unwrap()),
            flush_delay: Some("200us".parse().unwrap()),
            dilation: Some(10),
            ..SandboxSpec::of(shape.parse().unwrap())
        }
    }

    fn values(spec: &SandboxSpec, name: &str) -> Vec<String> {
        let options = spec.server_options.iter().map(|option| &option.option);
        let named = options.filter(|option| plain(&option.name) == name);
        named.filter_map(|option| option.value.clone()).collect()
    }

    #[test]
    fn all_that_waits_takes_longer() {
        let slow = spec(
            "async:1",
            &["loose_rpl_semi_sync_master_timeout=500", "sync_binlog=1"],
        )
        .dilated();
        assert_eq!(
            slow.link.unwrap().to_string(),
            "10ms one way ± 10ms, 10mbit"
        );
        assert_eq!(slow.client_link.unwrap().to_string(), "1650us");
        assert_eq!(slow.flush_delay.unwrap().to_string(), "2ms");
        // The last one counts.
        assert_eq!(
            values(&slow, "rpl_semi_sync_master_timeout"),
            ["100000", "5000"]
        );
        assert_eq!(values(&slow, "sync_binlog"), ["1"]);
        let plain = SandboxSpec {
            dilation: None,
            ..spec("async:1", &[])
        };
        assert_eq!(plain.dilated(), plain);
    }

    #[test]
    fn timers_of_galera_precede_those_of_the_user() {
        let given = spec("galera:3", &["wsrep_provider_options=gcache.size=1M"]).dilated();
        let values = values(&given, PROVIDER_OPTIONS);
        let last = values.last().unwrap();
        assert!(last.ends_with("evs.suspect_timeout=PT50S;gmcast.peer_timeout=PT30S;repl.causal_read_timeout=PT300S;gcache.size=1M"), "{values:?}");
        assert!(
            last.starts_with("evs.inactive_check_period=PT5S;"),
            "{values:?}"
        );
    }

    #[test]
    fn options_of_a_node_keep_its_timers_slow() {
        let options = [
            "wsrep_provider_options=gcache.size=1M",
            "node1:wsrep_provider_options=gcache.size=2M",
        ];
        for given in [&options[..], &options[1..]] {
            let slow = spec("galera:3", given).dilated();
            let of_node =
                slow.server_options.iter().rev().find(|option| {
                    option.is_for("node1") && option.option.name == PROVIDER_OPTIONS
                });
            let value = of_node.unwrap().option.value.as_deref().unwrap();
            assert!(
                value.contains("evs.suspect_timeout=PT50S") && value.ends_with("gcache.size=2M"),
                "{value}"
            );
            // The others have the timers, too.
            assert!(values(&slow, PROVIDER_OPTIONS)[0].contains("evs.suspect_timeout=PT50S"));
        }
    }

    #[test]
    fn timers_beyond_the_largest_value_are_named() {
        let options = [
            "rpl_semi_sync_master_timeout=18446744073709551615",
            "binlog_group_commit_sync_delay=200000",
            "slave_net_timeout=1K",
        ];
        let slow = spec("async:1", &options);
        assert_eq!(slow.undilated(), options);
        assert_eq!(
            values(&slow.dilated(), "binlog_group_commit_sync_delay"),
            ["200000"]
        );
    }

    #[test]
    fn unknown_timers_are_named() {
        let options = [
            "rpl_semi_sync_master_timeout=1",
            "innodb_purge_batch_size=1",
            "lock_wait_timeout=5",
        ];
        assert_eq!(
            spec("async:1", &options).undilated(),
            ["lock_wait_timeout=5"]
        );
        let galera = [
            "wsrep_provider_options=evs.send_window=4",
            "wsrep_provider_options=evs.install_timeout=PT9S",
        ];
        assert_eq!(spec("galera:3", &galera).undilated(), galera[1..]);
        let unslowed = SandboxSpec {
            dilation: None,
            ..spec("async:1", &options)
        };
        assert!(unslowed.undilated().is_empty());
    }
}
