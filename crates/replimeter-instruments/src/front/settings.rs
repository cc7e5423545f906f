//! The settings of `front`.

use std::net::SocketAddr;

use replimeter_model::{
    load::{DataSize, ReadTarget},
    one_of,
    plan::{
        PlanError, Settings, TargetSettings,
        checks::{SECOND, above_zero, from_to, interval_in},
        contradiction,
        core_use::{CoreUse, ServerPlace},
    },
    settings,
    target::Target,
    time_span::TimeSpan,
};

use super::site;

/// The address without `--listen`.
const LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);
/// Maximum number of connections to each server.
const MAX_CONNECTIONS: u32 = 1000;
/// Default time after a post for which the primary is read.
pub(crate) const PRIMARY_FOR: TimeSpan = TimeSpan::from_secs(2);
/// Its maximum.
const MAX_PRIMARY_FOR: TimeSpan = TimeSpan::from_secs(3600);

one_of! {
    /// Remedy against reads that miss a visitor's own post.
    pub enum Remedy {
        /// None: the reading servers take turns
        None = "none",
        /// One replica per visitor: never an older page than before
        Sticky = "sticky",
        /// Wait on the replica until it has applied the visitor's last post
        WaitForCommit = "wait-for-gtid",
        /// Read from the primary for some time after a post
        PrimaryFor = "primary-for",
        /// Read from the primary always
        PrimaryAlways = "primary-always",
    }
}

settings! {
    /// The settings of `front`.
    FrontSettings;
    /// A `front` measurement.
    FrontPlan(given, targets);

    [Measurement]
    /// Serve for this time, such as 60s [default: until Ctrl-C]
    duration "TIME": Option<TimeSpan>, above_zero("; omit it to serve until Ctrl-C");

    /// Listen at this address; port 0 for any free port [default: {default}]
    #[schemars(with = "Option<String>")]
    listen "ADDRESS:PORT": SocketAddr = LISTEN;

    /// Number of fronts, with HAProxy as the load balancer in front of several [default: {default}]
    ///
    /// Each has connections of its own.
    fronts "N": u32 = 1, from_to(1, site::MAX_FRONTS, "");

    /// Accept an address that other machines can reach
    ///
    /// Anyone who reaches it can then add posts, up to --max-rows. Names of servers and reasons of errors are not shown there.
    only allow_remote: bool;

    /// Also answer requests for this host name; repeatable
    ///
    /// Addresses and localhost are always answered.
    allow_host "NAME": Vec<String>, host_name;

    /// Servers that reads use: replicas, primary or all [default: {default}]
    reads "WHERE": ReadTarget = ReadTarget::Replicas;

    /// Remedy against reads that miss the visitor's own post [default: {default}]
    remedy "REMEDY": Remedy = Remedy::None;

    /// Time after a post for which primary-for reads the primary [default: 2s]
    primary_for "TIME" if (remedy == Remedy::PrimaryFor) else "remedy = primary-for": TimeSpan = PRIMARY_FOR, check_primary_for;

    /// Number of connections to each server [default: {default}]
    connections "N": u32 = 10, from_to(1, MAX_CONNECTIONS, "");

    /// Processor time that the front adds to each request, such as 500us [default: {default}]
    ///
    /// The work of a site in an interpreted language is not free.
    front_cost "TIME": TimeSpan = TimeSpan::default(), site::check_cost;

    /// Rows to begin with, or a size such as 300MB [default: {default}]
    data_size "SIZE": DataSize = DataSize::Rows(1000);

    /// Refuse posts after this number of them [default: {default}]
    max_rows "N": u64 = 1_000_000, above_zero("");

    /// Report figures once per interval [default: {default}]
    report_interval "TIME": TimeSpan = SECOND, interval_in(duration);

    plan
    /// How the client uses the cores of this machine: its threads are many, and none of them measures.
    cores: CoreUse = CoreUse::decide(&mut None, None, connections.max(2), ServerPlace::of(targets));
}

impl Settings for FrontSettings {
    const NAME: &'static str = "front";
    type Plan = FrontPlan;

    fn plan(&mut self, target: &mut TargetSettings) -> Result<(Vec<Target>, FrontPlan), PlanError> {
        let targets = target.plan()?;
        if targets.len() > 1 {
            return contradiction("front serves one target; run it once for each");
        }
        let plan = Self::resolve(self, &targets)?;
        if !plan.listen.ip().is_loopback() && !self.allow_remote {
            return contradiction(format!(
                "listen = {} can be reached from other machines; add allow-remote, or listen at 127.0.0.1",
                plan.listen
            ));
        }
        if plan.reads == ReadTarget::Primary && plan.remedy != Remedy::None {
            return contradiction("with reads = primary, every read is current: omit the remedy");
        }
        Ok((targets, plan))
    }
}

/// Rejects an implausible time after a post for which the primary is read.
pub(crate) fn check_primary_for(_: &str, value: &TimeSpan) -> Result<(), PlanError> {
    if value.0.is_zero() || *value > MAX_PRIMARY_FOR {
        return contradiction(format!(
            "primary-for must be above 0 and at most {MAX_PRIMARY_FOR}"
        ));
    }
    Ok(())
}

/// Rejects what is no host name: letters, digits, hyphens and dots.
pub(crate) fn host_name(_: &str, name: &str) -> Result<(), PlanError> {
    let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    if name.is_empty() || name.len() > 253 || !name.bytes().all(of_name) {
        return contradiction(format!(
            "allow-host: `{}` is not a host name; write it without scheme and port",
            name.escape_default()
        ));
    }
    Ok(())
}
