//! The settings of `front`.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    PlanError, Settings, TargetSettings, contradiction,
    core_use::{CoreUse, ServerPlace},
    site, units,
};
use crate::{
    load::{DataSize, ReadTarget},
    target::Target,
    time_span::TimeSpan,
};

/// The address without `--listen`.
const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
/// Maximum number of connections to each server.
const MAX_CONNECTIONS: u32 = 1000;
/// Maximum time after a post for which the primary is read.
const MAX_PRIMARY_FOR: TimeSpan = TimeSpan::from_secs(3600);

one_of! {
    /// Remedy against reads that miss a visitor's own post.
    pub enum Remedy {
        /// None: the reading servers take turns
        None = "none",
        /// One replica per visitor: never an older page than before
        Sticky = "sticky",
        /// Wait on the replica until it has applied the visitor's last post
        WaitForGtid = "wait-for-gtid",
        /// Read from the primary for some time after a post
        PrimaryFor = "primary-for",
        /// Read from the primary always
        PrimaryAlways = "primary-always",
    }
}

/// The settings of `front`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Measurement")]
pub struct FrontSettings {
    /// Serve for this time, such as 60s [default: until Ctrl-C]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<TimeSpan>,

    /// Listen at this address; port 0 for any free port [default: {default}]
    #[arg(long, value_name = "ADDRESS:PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub listen: Option<SocketAddr>,

    /// Number of fronts, with HAProxy as the load balancer in front of several [default: {default}]
    ///
    /// Each has connections of its own.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fronts: Option<u32>,

    /// Accept an address that other machines can reach
    ///
    /// Anyone who reaches it can then add posts, up to --max-rows. Names of servers and reasons of errors are not shown there.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_remote: bool,

    /// Also answer requests for this host name; repeatable
    ///
    /// Addresses and localhost are always answered.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_host: Vec<String>,

    /// Servers that reads use: replicas, primary or all [default: {default}]
    #[arg(long, value_name = "WHERE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadTarget>,

    /// Remedy against reads that miss the visitor's own post [default: {default}]
    #[arg(long, value_name = "REMEDY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,

    /// Time after a post for which primary-for reads the primary [default: 2s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_for: Option<TimeSpan>,

    /// Number of connections to each server [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,

    /// Processor time that the front adds to each request, such as 500us [default: {default}]
    ///
    /// The work of a site in an interpreted language is not free.
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front_cost: Option<TimeSpan>,

    /// Rows to begin with, or a size such as 300MB [default: {default}]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_size: Option<DataSize>,

    /// Refuse posts after this number of them [default: {default}]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u64>,

    /// Report figures once per interval [default: {default}]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_interval: Option<TimeSpan>,
}

/// A `front` measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontPlan {
    /// Duration of the measurement; until the user ends it when `None`.
    pub duration: Option<TimeSpan>,
    /// The address to listen at.
    pub listen: SocketAddr,
    /// Number of fronts.
    pub fronts: u32,
    /// Host names that are answered besides addresses and `localhost`.
    pub allow_host: Vec<String>,
    /// Servers that reads use.
    pub reads: ReadTarget,
    /// The remedy.
    pub remedy: Remedy,
    /// Time after a post for which `primary-for` reads from the primary.
    pub primary_for: TimeSpan,
    /// Connections to each server.
    pub connections: u32,
    /// Processor time added to each request.
    pub cost: TimeSpan,
    /// Rows to begin with.
    pub data_size: DataSize,
    /// Maximum number of added rows.
    pub max_rows: u64,
    /// Report interval: length of each window.
    pub report_interval: TimeSpan,
    /// How the client uses the cores of this machine.
    pub cores: CoreUse,
}

impl Settings for FrontSettings {
    const NAME: &'static str = "front";
    type Plan = FrontPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, FrontPlan), PlanError> {
        if self.duration == Some(TimeSpan::from_secs(0)) {
            return contradiction("duration must be above 0; omit it to serve until Ctrl-C");
        }
        let report_interval = units::report_interval(&mut self.report_interval, self.duration)?;
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("front serves one target; run it once for each");
        }
        let listen = *self.listen.get_or_insert(LISTEN);
        if !listen.ip().is_loopback() && !self.allow_remote {
            return Err(PlanError::Contradiction(format!(
                "listen = {listen} can be reached from other machines; add allow-remote, or listen at 127.0.0.1"
            )));
        }
        if let Some(name) = self.allow_host.iter().find(|name| !is_host_name(name)) {
            return Err(PlanError::Contradiction(format!(
                "allow-host: `{}` is not a host name; write it without scheme and port",
                name.escape_default()
            )));
        }
        let fronts = site::fronts(&mut self.fronts, 1)?;
        let remedy = *self.remedy.get_or_insert(Remedy::None);
        let primary_for = primary_for(&mut self.primary_for, remedy == Remedy::PrimaryFor)?;
        let reads = *self.reads.get_or_insert(ReadTarget::Replicas);
        if reads == ReadTarget::Primary && remedy != Remedy::None {
            return contradiction("with reads = primary, every read is current: omit the remedy");
        }
        let connections = *self.connections.get_or_insert(10);
        if connections == 0 || connections > MAX_CONNECTIONS {
            return Err(PlanError::Contradiction(format!(
                "connections must be from 1 to {MAX_CONNECTIONS}"
            )));
        }
        let cost = site::cost(&mut self.front_cost)?;
        let max_rows = *self.max_rows.get_or_insert(1_000_000);
        if max_rows == 0 {
            return contradiction("max-rows must be above 0");
        }
        let plan = FrontPlan {
            duration: self.duration,
            listen,
            fronts,
            allow_host: self.allow_host.clone(),
            reads,
            remedy,
            primary_for,
            connections,
            cost,
            data_size: *self.data_size.get_or_insert(DataSize::Rows(1000)),
            max_rows,
            report_interval,
            // Its threads are many, and none of them measures.
            cores: CoreUse::decide(
                &mut None,
                None,
                connections.max(2),
                ServerPlace::of(&targets),
            ),
        };
        Ok((targets, plan))
    }
}

/// Returns the time after a post for which the primary is read, if that is the remedy.
pub(super) fn primary_for(
    given: &mut Option<TimeSpan>,
    is_remedy: bool,
) -> Result<TimeSpan, PlanError> {
    if given.is_some() && !is_remedy {
        return contradiction("primary-for requires remedy = primary-for");
    }
    let span = given.unwrap_or(TimeSpan::from_secs(2));
    if span == TimeSpan::from_secs(0) || span > MAX_PRIMARY_FOR {
        return Err(PlanError::Contradiction(format!(
            "primary-for must be above 0 and at most {MAX_PRIMARY_FOR}"
        )));
    }
    if is_remedy {
        *given = Some(span);
    }
    Ok(span)
}

/// Returns whether a text is a host name: letters, digits, hyphens and dots.
fn is_host_name(name: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    !name.is_empty() && name.len() <= 253 && name.bytes().all(of_name)
}
