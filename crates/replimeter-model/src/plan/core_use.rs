//! How a run's client uses the cores of this machine: by one rule for every command.

use std::net::{IpAddr, SocketAddr, TcpListener};

use crate::target::Target;

/// Whether something is on, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is on.
    pub on: bool,
    /// The reason, for the run's record.
    pub reason: &'static str,
}

/// How a run's client uses the cores of this machine; the same for everything that the run compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreUse {
    /// Whether spinners keep idle cores awake.
    pub keep_awake: Decision,
    /// Whether the measuring threads have real-time priority.
    pub real_time: Decision,
    /// Whether the run has a load, or servers on this machine: both wait for its cores by design.
    pub shared: bool,
}

/// The servers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerPlace {
    /// Started by the run, on this machine.
    Sandbox,
    /// The same, with a quota of processor time for each server, or for some.
    Quota,
    /// Others, at least one of them on this machine: also those of a running sandbox.
    Local,
    /// The user's, on other machines.
    Remote,
}

impl ServerPlace {
    /// Returns where these servers are. A host name other than `localhost` is not resolved, and counts as
    /// another machine.
    pub fn of(targets: &[Target]) -> Self {
        let nodes = match targets {
            [Target::Nodes(nodes)] => nodes,
            _ if targets.iter().any(|one| matches!(one, Target::Running(_))) => return Self::Local,
            _ => {
                let limited = targets.iter().any(|one| match one {
                    Target::Sandbox(spec) => spec.may_have_quota(),
                    _ => false,
                });
                return Self::of_sandbox(limited);
            }
        };
        if nodes.iter().any(|node| is_local(&node.url.host)) {
            Self::Local
        } else {
            Self::Remote
        }
    }

    /// Returns where the servers of a sandbox are that the run starts, and which may have a quota.
    pub fn of_sandbox(may_have_quota: bool) -> Self {
        if may_have_quota {
            Self::Quota
        } else {
            Self::Sandbox
        }
    }
}

fn is_local(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    // Only an address of this machine can be bound.
    host.eq_ignore_ascii_case("localhost")
        || host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_loopback() || TcpListener::bind(SocketAddr::new(ip, 0)).is_ok())
}

impl CoreUse {
    /// Decides both, and stores them in the settings that are not given. `threads` is the largest number of
    /// threads of the run's load at one time; `real_time` is `None` for commands without such threads.
    ///
    /// The rule: idle cores are kept awake for sandboxes that the run starts, but not for servers of another session: there idle
    /// priority does not apply (Linux schedules sessions as groups), and with the spinners of one session a commit of the other took 4 ms
    /// instead of 0.7 ms. Nor if a load has more than one thread, because such a
    /// load keeps the cores busy and the spinners cost it throughput. Nor for servers with a quota: next to a spinner on its core, a
    /// server with half a core got no time at all for more than ten seconds (Linux 6.18, six of six runs of `lag --hosts`). Measuring threads have real-time priority
    /// only if no server shares their cores: it takes the cores from the servers, which the lag and a load show
    /// (`make bench PARTS=ablation`, and the methodology).
    pub fn decide(
        keep_awake: &mut Option<bool>,
        real_time: Option<&mut Option<bool>>,
        threads: u32,
        servers: ServerPlace,
    ) -> Self {
        let awake = match servers {
            _ if threads > 1 => Decision::no("a load has more than one thread"),
            ServerPlace::Quota => Decision::no(
                "servers have a quota of processor time, or may have one, and spinners can keep them from running",
            ),
            ServerPlace::Sandbox => {
                Decision::yes("a sandbox of the run, and no load has more than one thread")
            }
            _ => Decision::no("the servers are not of a sandbox that the run starts"),
        };
        let awake = awake.unless(keep_awake);
        let shared = threads > 0 || servers != ServerPlace::Remote;
        let Some(real_time) = real_time else {
            return Self {
                keep_awake: awake,
                real_time: Decision::no("the command has no measuring threads"),
                shared,
            };
        };
        let priority = match servers {
            ServerPlace::Remote => Decision::yes("no server is known to be on this machine"),
            _ => Decision::no("servers on this machine, whose cores the threads would take"),
        };
        Self {
            keep_awake: awake,
            real_time: priority.unless(real_time),
            shared,
        }
    }
}

impl Decision {
    fn yes(reason: &'static str) -> Self {
        Self { on: true, reason }
    }

    fn no(reason: &'static str) -> Self {
        Self { on: false, reason }
    }

    /// Returns the setting's decision if it is another one; stores this one in a setting that is not given.
    fn unless(self, setting: &mut Option<bool>) -> Self {
        let on = *setting.get_or_insert(self.on);
        if on == self.on {
            return self;
        }
        Self { on, reason: "set" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Endpoint, NodeSpec};

    fn decided(threads: u32, servers: ServerPlace) -> (bool, bool) {
        let (mut awake, mut real_time) = (None, None);
        let cores = CoreUse::decide(&mut awake, Some(&mut real_time), threads, servers);
        let decided = (cores.keep_awake.on, cores.real_time.on);
        assert_eq!((awake, real_time), (Some(decided.0), Some(decided.1)));
        decided
    }

    #[test]
    fn cores_are_used_by_load_and_place_of_servers() {
        use ServerPlace::{Local, Quota, Remote, Sandbox};
        assert_eq!(decided(0, Quota), (false, false));
        assert_eq!(
            [0, 1, 2].map(|threads| decided(threads, Sandbox)),
            [(true, false), (true, false), (false, false)]
        );
        assert_eq!(decided(0, Local), (false, false));
        assert_eq!(decided(8, Remote), (false, true));
    }

    #[test]
    fn given_settings_decide_about_the_cores() {
        let (mut awake, mut real_time) = (Some(true), Some(true));
        let place = ServerPlace::Local;
        let cores = CoreUse::decide(&mut awake, Some(&mut real_time), 8, place);
        assert!(cores.keep_awake.on && cores.real_time.on);
        let reasons = (cores.keep_awake.reason, cores.real_time.reason);
        assert_eq!(reasons, ("set", "set"));
        let cores = CoreUse::decide(&mut Some(false), Some(&mut real_time), 8, place);
        assert_eq!((cores.real_time.on, cores.real_time.reason), (true, "set"));
    }

    #[test]
    fn cores_are_shared_with_a_load_or_local_servers() {
        let shared = |threads, servers| CoreUse::decide(&mut None, None, threads, servers).shared;
        assert!(!shared(0, ServerPlace::Remote));
        assert!(shared(64, ServerPlace::Remote) && shared(1, ServerPlace::Remote));
        assert!(shared(0, ServerPlace::Local) && shared(0, ServerPlace::Sandbox));
    }

    #[test]
    fn servers_of_this_machine_are_recognized() {
        let node = |url: &str| NodeSpec {
            name: String::new(),
            role: None,
            source: None,
            url: Endpoint::parse(url).unwrap().0,
        };
        let place = |urls: &[&str]| {
            ServerPlace::of(&[Target::Nodes(urls.iter().map(|url| node(url)).collect())])
        };
        assert_eq!(
            place(&["mysql://u@db1/", "mysql://u@127.0.0.2/"]),
            ServerPlace::Local
        );
        assert_eq!(place(&["mysql://u@localhost/"]), ServerPlace::Local);
        let running = Target::Running("work".parse().unwrap());
        assert_eq!(ServerPlace::of(&[running]), ServerPlace::Local);
        assert_eq!(place(&["mysql://u@[::1]:3306/"]), ServerPlace::Local);
        assert_eq!(
            place(&["mysql://u@192.0.2.1/", "mysql://u@db/"]),
            ServerPlace::Remote
        );
    }
}
