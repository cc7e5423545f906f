//! What a sandbox is made of beyond its shape: options by server, wait point,
//! links.

mod name;
mod quantities;

use std::{collections::BTreeSet, fmt, path::PathBuf};

pub use self::{
    name::{SandboxName, SandboxRef},
    quantities::{Bandwidth, Cpus},
};
use crate::{
    engine::Engine,
    server_option::NodeOption,
    shape::{Mode, Shape},
    time_span::TimeSpan,
};

one_of! {
    /// When a semi-synchronous primary waits for its replicas' acknowledgement.
    pub enum WaitPoint {
        /// After the commit in the engine: other clients may see the row before
        AfterCommit = "after-commit",
        /// Before the commit in the engine: nobody sees what no replica has
        AfterSync = "after-sync",
    }
}

impl WaitPoint {
    /// The servers' own word.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::AfterCommit => "AFTER_COMMIT",
            Self::AfterSync => "AFTER_SYNC",
        }
    }
}

/// What every replication link of a sandbox does to the bytes on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// One-way delay, applied in each direction.
    pub delay: TimeSpan,
    /// By how much the delay varies, uniformly, up and down.
    pub jitter: TimeSpan,
    /// How much passes; without limit when `None`.
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
    /// Which servers.
    pub shape: Shape,
    /// Options for them.
    pub server_options: Vec<NodeOption>,
    /// Where binaries are; found by themselves when `None`.
    pub servers: Option<PathBuf>,
    /// Where the replicas' binaries are, when they differ: a folder, or the
    /// beginning of a version among the servers found.
    pub replica_server: Option<String>,
    /// Semi-synchronous only; the engine's own default when `None`.
    pub wait_point: Option<WaitPoint>,
    /// Semi-synchronous only: how many replicas must acknowledge (MySQL).
    pub wait_for_replicas: Option<u32>,
    /// Group Replication only: every member takes writes.
    pub multi_primary: bool,
    /// Replication goes through links of ours.
    pub link: Option<LinkSpec>,
    /// Our functions `NOW_USEC()` and `NOW_NSEC()` are loaded.
    pub udf: bool,
    /// The engine FEDERATED is turned on.
    pub federated: bool,
    /// Whether servers have a binary log; only a lone one can be without.
    pub binary_log: bool,
    /// Each server has this share of the machine, and no more; the machine is shared
    /// freely when `None`.
    pub cpus: Option<Cpus>,
}

impl SandboxSpec {
    /// A sandbox of this shape and nothing special.
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
            udf: false,
            federated: false,
            binary_log: true,
            cpus: None,
        }
    }

    /// Splits settings for several shapes into what concerns each.
    ///
    /// # Errors
    /// When a setting concerns none of them, or cannot be had.
    pub fn resolve(shapes: &[Shape], common: &Self) -> Result<Vec<Self>, String> {
        let any = |mode: Mode| shapes.iter().any(|shape| shape.mode() == mode);
        if (common.wait_point.is_some() || common.wait_for_replicas.is_some())
            && !any(Mode::SemiSync)
        {
            return Err(
                "a wait point, or a number of replicas to wait for, belongs to semi-sync:N"
                    .to_owned(),
            );
        }
        if common.multi_primary && !any(Mode::Group) {
            return Err(
                "multi-primary belongs to group:N (every Galera node takes writes anyway)"
                    .to_owned(),
            );
        }
        let replicating = |shape: &Shape| shape.servers() > 1;
        if common.link.is_some() && !shapes.iter().any(replicating) {
            return Err("a link needs a shape that replicates, such as async:1".to_owned());
        }
        if let Some(link) = common.link
            && link.jitter > link.delay
        {
            return Err(format!(
                "a jitter of {} around a delay of {} would go back in time; the jitter can be at most the delay",
                link.jitter, link.delay
            ));
        }
        if !common.binary_log && shapes.iter().any(replicating) {
            return Err("servers that replicate need their binary log; only `none`, a lone server, can be without".to_owned());
        }
        let has_replicas = |shape: &Shape| !shape.mode().has_members() && replicating(shape);
        if common.replica_server.is_some() && !shapes.iter().any(has_replicas) {
            return Err(
                "a server for the replicas needs a shape with replicas, such as async:1".to_owned(),
            );
        }
        let names: BTreeSet<String> = shapes.iter().flat_map(|shape| shape.nodes()).collect();
        for option in &common.server_options {
            if !names.iter().any(|name| option.is_for(name)) {
                let node = option.node.as_deref().unwrap_or_default();
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                return Err(format!(
                    "the server option `{option}` is for `{node}`, which is not there; there are {}",
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
            wait_point: common.wait_point.filter(|_| shape.mode() == Mode::SemiSync),
            wait_for_replicas: common
                .wait_for_replicas
                .filter(|_| shape.mode() == Mode::SemiSync),
            multi_primary: common.multi_primary && shape.mode() == Mode::Group,
            link: common.link.filter(|_| replicating(shape)),
            udf: common.udf,
            federated: common.federated,
            binary_log: common.binary_log,
            cpus: common.cpus,
        };
        Ok(shapes.iter().map(one).collect())
    }

    /// Refuses to wait for replicas that are not there, or on an engine that waits for one.
    fn check_waiting(&self, shapes: &[Shape]) -> Result<(), String> {
        let Some(wanted) = self.wait_for_replicas else {
            return Ok(());
        };
        for shape in shapes.iter().filter(|shape| shape.mode() == Mode::SemiSync) {
            if wanted == 0 || wanted >= shape.servers() {
                return Err(format!(
                    "{shape} cannot wait for {wanted} replicas; it can for 1 to {}",
                    shape.servers() - 1
                ));
            }
            if shape.engine() == Some(Engine::MariaDb) && wanted > 1 {
                return Err("MariaDB waits for the first replica only; a number to wait for is MySQL's (mysql/semi-sync:N)".to_owned());
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
