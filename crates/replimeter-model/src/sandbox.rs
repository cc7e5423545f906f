//! Settings of a sandbox beyond its shape: options by server, wait point,
//! links.

mod name;
mod quantities;

use std::{collections::BTreeSet, fmt, path::PathBuf};

pub use self::{
    name::{SandboxName, SandboxRef},
    quantities::{Bandwidth, Cpus},
};
use crate::{
    engine::Engine, replication::Mode, server_option::NodeOption, shape::Shape, time_span::TimeSpan,
};

one_of! {
    /// When a semi-synchronous primary waits for its replicas' acknowledgement.
    pub enum WaitPoint {
        /// After the commit in the engine: other clients may see the row before
        AfterCommit = "after-commit",
        /// Before the commit in the engine: no client sees what no replica has
        AfterSync = "after-sync",
    }
}

impl WaitPoint {
    /// Returns the servers' own name for it.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::AfterCommit => "AFTER_COMMIT",
            Self::AfterSync => "AFTER_SYNC",
        }
    }
}

/// Settings of every replication link of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// One-way delay, applied in each direction.
    pub delay: TimeSpan,
    /// Maximum deviation of the delay, uniformly distributed, in both directions.
    pub jitter: TimeSpan,
    /// Bandwidth; unlimited when `None`.
    pub bandwidth: Option<Bandwidth>,
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} one way", self.delay)?;
        if !self.jitter.0.is_zero() {
            write!(f, " ± {}", self.jitter)?;
        }
        match self.bandwidth {
            Some(bandwidth) => write!(f, ", {bandwidth}"),
            None => Ok(()),
        }
    }
}

/// A resolved sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxSpec {
    /// Shape of the sandbox.
    pub shape: Shape,
    /// Options for its servers.
    pub server_options: Vec<NodeOption>,
    /// Directory of the server binaries; searched for when `None`.
    pub servers: Option<PathBuf>,
    /// The replicas' binaries, when they differ: a directory, or the
    /// beginning of a version among the servers found.
    pub replica_server: Option<String>,
    /// Semi-synchronous only; the engine's own default when `None`.
    pub wait_point: Option<WaitPoint>,
    /// Semi-synchronous only: number of replicas that must acknowledge (MySQL).
    pub wait_for_replicas: Option<u32>,
    /// Group Replication only: every member takes writes.
    pub multi_primary: bool,
    /// Replication goes through Replimeter's links.
    pub link: Option<LinkSpec>,
    /// One-way delay of the link between Replimeter and each server.
    pub client_link: Option<TimeSpan>,
    /// Least time of a server's flush to the disk.
    pub flush_delay: Option<TimeSpan>,
    /// Replimeter's functions `NOW_USEC()` and `NOW_NSEC()` are loaded.
    pub udf: bool,
    /// The engine FEDERATED is turned on.
    pub federated: bool,
    /// Whether servers have a binary log; only a standalone server can be without.
    pub binary_log: bool,
    /// Share of the machine that each server is limited to; no limit
    /// when `None`.
    pub cpus: Option<Cpus>,
    /// The number of hosts among which this machine is divided, if it is: the client, and as many
    /// servers as the largest sandbox of the run has.
    pub hosts: Option<u32>,
}

/// Returns the number of hosts that the servers of the largest of these sandboxes and the client are.
///
/// # Errors
/// When the share of each server is chosen, too.
pub fn hosts_of(
    shapes: impl IntoIterator<Item = Shape>,
    cpus: Option<Cpus>,
) -> Result<u32, String> {
    if cpus.is_some() {
        return Err("hosts chooses the share of each server; remove cpus-per-server".to_owned());
    }
    let servers = shapes.into_iter().map(Shape::servers);
    Ok(servers.max().unwrap_or(0) + 1)
}

/// Returns whether a server with these settings may have a quota of processor time: a host has one if the machine has too few cores.
#[must_use]
pub fn may_have_quota(cpus: Option<Cpus>, hosts: bool) -> bool {
    hosts || cpus.is_some_and(|cpus| cpus.whole().is_none())
}

impl SandboxSpec {
    /// Returns whether its servers may have a quota of processor time.
    #[must_use]
    pub fn may_have_quota(&self) -> bool {
        may_have_quota(self.cpus, self.hosts.is_some())
    }

    /// Returns a sandbox of this shape with default settings.
    #[must_use]
    pub fn of(shape: Shape) -> Self {
        Self {
            shape,
            server_options: Vec::new(),
            servers: None,
            replica_server: None,
            wait_point: None,
            wait_for_replicas: None,
            multi_primary: false,
            link: None,
            client_link: None,
            flush_delay: None,
            udf: false,
            federated: false,
            binary_log: true,
            cpus: None,
            hosts: None,
        }
    }

    /// Splits settings for several shapes into those of each.
    ///
    /// # Errors
    /// When a setting applies to none of them, or is not possible.
    pub fn resolve(shapes: &[Shape], common: &Self) -> Result<Vec<Self>, String> {
        if (common.wait_point.is_some() || common.wait_for_replicas.is_some())
            && !shapes.iter().any(|shape| shape.mode().waits_for_receipt())
        {
            return Err(
                "a wait point, or a number of replicas to wait for, requires semi-sync:N"
                    .to_owned(),
            );
        }
        if common.multi_primary && !shapes.iter().any(|shape| shape.mode() == Mode::Group) {
            return Err(
                "multi-primary requires group:N (every Galera node takes writes anyway)".to_owned(),
            );
        }
        let hosts = common.hosts;
        let hosts = hosts
            .map(|_| hosts_of(shapes.iter().copied(), common.cpus))
            .transpose()?;
        let replicating = |shape: &Shape| shape.servers() > 1;
        if common.link.is_some() && !shapes.iter().any(replicating) {
            return Err("a link requires a shape that replicates, such as async:1".to_owned());
        }
        if let Some(link) = common.link
            && link.jitter > link.delay
        {
            return Err(format!(
                "a jitter of {} is greater than the delay of {}; it can be at most the delay",
                link.jitter, link.delay
            ));
        }
        if !common.binary_log && shapes.iter().any(replicating) {
            return Err("servers that replicate require a binary log; only a standalone server (`none`) can be without one".to_owned());
        }
        let has_replicas = |shape: &Shape| !shape.mode().has_members() && replicating(shape);
        if common.replica_server.is_some() && !shapes.iter().any(has_replicas) {
            return Err(
                "another server for the replicas requires a shape with replicas, such as async:1"
                    .to_owned(),
            );
        }
        let names: BTreeSet<String> = shapes.iter().flat_map(|shape| shape.nodes()).collect();
        for option in &common.server_options {
            if !names.iter().any(|name| option.is_for(name)) {
                let node = option.node.as_deref().unwrap_or_default();
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                return Err(format!(
                    "the server option `{option}` is for `{node}`, which does not exist; the servers are {}",
                    known.join(", ")
                ));
            }
        }
        common.check_waiting(shapes)?;
        let one = |shape: &Shape| Self {
            shape: *shape,
            server_options: common
                .server_options
                .iter()
                .filter(|option| shape.nodes().iter().any(|name| option.is_for(name)))
                .cloned()
                .collect(),
            servers: common.servers.clone(),
            replica_server: common
                .replica_server
                .clone()
                .filter(|_| has_replicas(shape)),
            wait_point: common
                .wait_point
                .filter(|_| shape.mode().waits_for_receipt()),
            wait_for_replicas: common
                .wait_for_replicas
                .filter(|_| shape.mode().waits_for_receipt()),
            multi_primary: common.multi_primary && shape.mode() == Mode::Group,
            link: common.link.filter(|_| replicating(shape)),
            client_link: common.client_link,
            flush_delay: common.flush_delay,
            udf: common.udf,
            federated: common.federated,
            binary_log: common.binary_log,
            cpus: common.cpus,
            hosts,
        };
        Ok(shapes.iter().map(one).collect())
    }

    /// Rejects a wait for more replicas than there are, or on an engine that waits for one only.
    fn check_waiting(&self, shapes: &[Shape]) -> Result<(), String> {
        let Some(wanted) = self.wait_for_replicas else {
            return Ok(());
        };
        for shape in shapes
            .iter()
            .filter(|shape| shape.mode().waits_for_receipt())
        {
            if wanted == 0 || wanted >= shape.servers() {
                return Err(format!(
                    "{shape} cannot wait for {wanted} replicas; give 1 to {}",
                    shape.servers() - 1
                ));
            }
            if shape.engine() == Some(Engine::MariaDb) && wanted > 1 {
                return Err("MariaDB waits for the first replica only; a number of replicas requires mysql/semi-sync:N".to_owned());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shapes(texts: &[&str]) -> Vec<Shape> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn settings_apply_to_matching_shapes() {
        let common = SandboxSpec {
            wait_point: Some(WaitPoint::AfterSync),
            server_options: vec![
                "replica2:sync_binlog=1".parse().unwrap(),
                "expire_logs_days=1".parse().unwrap(),
            ],
            ..SandboxSpec::of("none".parse().unwrap())
        };
        let all = SandboxSpec::resolve(&shapes(&["async:1", "semi-sync:2"]), &common).unwrap();
        assert_eq!((all[0].wait_point, all[0].server_options.len()), (None, 1));
        assert_eq!(
            (all[1].wait_point, all[1].server_options.len()),
            (Some(WaitPoint::AfterSync), 2)
        );
    }

    #[test]
    fn hosts_are_as_many_for_each_shape() {
        let common = SandboxSpec {
            hosts: Some(2),
            ..SandboxSpec::of("none".parse().unwrap())
        };
        let all = SandboxSpec::resolve(&shapes(&["none", "async:2", "async:1"]), &common).unwrap();
        let hosts: Vec<_> = all.iter().map(|spec| spec.hosts).collect();
        assert_eq!(hosts, [Some(4); 3]);
    }

    #[test]
    fn setting_without_matching_shape_is_refused() {
        let none = || SandboxSpec::of("none".parse().unwrap());
        let link = Some(LinkSpec {
            delay: TimeSpan::from_millis(1),
            jitter: TimeSpan::from_millis(2),
            bandwidth: None,
        });
        for (shape, common, want) in [
            (
                "async:1",
                SandboxSpec {
                    wait_point: Some(WaitPoint::AfterSync),
                    ..none()
                },
                "semi-sync",
            ),
            (
                "semi-sync:2",
                SandboxSpec {
                    wait_for_replicas: Some(3),
                    ..none()
                },
                "1 to 2",
            ),
            (
                "mariadb/semi-sync:2",
                SandboxSpec {
                    wait_for_replicas: Some(2),
                    ..none()
                },
                "first replica",
            ),
            (
                "galera:3",
                SandboxSpec {
                    multi_primary: true,
                    ..none()
                },
                "group:N",
            ),
            ("none", SandboxSpec { link, ..none() }, "replicates"),
            (
                "async:1",
                SandboxSpec {
                    hosts: Some(3),
                    cpus: Some(Cpus { milli: 500 }),
                    ..none()
                },
                "cpus-per-server",
            ),
            (
                "async:1",
                SandboxSpec {
                    binary_log: false,
                    ..none()
                },
                "binary log",
            ),
            ("async:1", SandboxSpec { link, ..none() }, "jitter"),
            (
                "group:3",
                SandboxSpec {
                    replica_server: Some("9".to_owned()),
                    ..none()
                },
                "replicas",
            ),
            (
                "async:1",
                SandboxSpec {
                    server_options: vec!["replica2:sync_binlog=1".parse().unwrap()],
                    ..none()
                },
                "primary, replica1",
            ),
        ] {
            let error = SandboxSpec::resolve(&shapes(&[shape]), &common).unwrap_err();
            assert!(error.contains(want), "{shape}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(replica1|node2)?:?\\PC{0,20}") {
            let _ = text.parse::<NodeOption>();
            let _ = text.parse::<SandboxRef>();
            if let Ok(bandwidth) = text.parse::<Bandwidth>() {
                prop_assert_eq!(bandwidth.to_string().parse::<Bandwidth>(), Ok(bandwidth));
            }
        }
    }
}
