//! What ends this process and the one that restores an applier together.

use std::fs;

/// The first namespace of processes of every Linux (`PROC_PID_INIT_INO` in the kernel's sources).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// What can be killed as a whole.
#[derive(Debug, PartialEq, Eq)]
enum Confinement {
    Container,
    /// A service of systemd, and whether it is one of a user's.
    Service {
        unit: String,
        of_user: bool,
    },
}

/// Returns what a process is in, from its namespace of processes and its `cgroup` (cgroups(7)). Scopes, as of a login, end
/// with their processes.
fn confinement(namespace: &str, groups: &str) -> Option<Confinement> {
    if namespace != FIRST_NAMESPACE {
        return Some(Confinement::Container);
    }
    let path = groups.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        (number == "0" || controllers == "name=systemd").then_some(path)
    })?;
    let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
    let unit = path.rsplit('/').find(is_unit)?;
    unit.ends_with(".service").then(|| Confinement::Service {
        unit: unit.to_owned(),
        of_user: path.contains("/user@"),
    })
}

/// Returns what the user must know about the process that restores an applier if this one is killed: it may end together
/// with it.
#[must_use]
pub fn rescuer_note() -> Option<String> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    confinement(&namespace.to_string_lossy(), &groups).map(|confinement| note(&confinement))
}

fn note(confinement: &Confinement) -> String {
    let (place, remedy) = match confinement {
        Confinement::Container => (
            "this container".to_owned(),
            "run Replimeter outside of it".to_owned(),
        ),
        Confinement::Service { unit, of_user } => (
            format!("the unit {unit}"),
            format!(
                "give the run a scope of its own: systemd-run {}--scope replimeter backlog …",
                if *of_user { "--user " } else { "" }
            ),
        ),
    };
    format!(
        "if {place} is killed as a whole, the process that restores the applier ends too, and the applier stays stopped until it is started by hand (`replimeter doctor` shows the statement); to avoid that, {remedy}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_and_service_are_recognized() {
        let service = |unit: &str, of_user| {
            Some(Confinement::Service {
                unit: unit.to_owned(),
                of_user,
            })
        };
        for (groups, expected) in [
            (
                "0::/system.slice/ci.service\n",
                service("ci.service", false),
            ),
            (
                "0::/system.slice/ci.service/work\n",
                service("ci.service", false),
            ),
            (
                "4:cpu,cpuacct:/\n1:name=systemd:/system.slice/cron.service\n",
                service("cron.service", false),
            ),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/work.service\n",
                service("work.service", true),
            ),
            ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
            (
                "0::/user.slice/user-1000.slice/user@1000.service/app.slice/terminal-7.scope\n",
                None,
            ),
            ("0::/\n", None),
            ("", None),
        ] {
            assert_eq!(confinement(FIRST_NAMESPACE, groups), expected, "{groups}");
            assert_eq!(
                confinement("pid:[4026532177]", groups),
                Some(Confinement::Container)
            );
        }
    }

    #[test]
    fn note_names_what_helps() {
        let text = note(&Confinement::Service {
            unit: "ci.service".to_owned(),
            of_user: true,
        });
        assert!(
            text.contains("the unit ci.service")
                && text.ends_with("systemd-run --user --scope replimeter backlog …"),
            "{text}"
        );
        let text = note(&Confinement::Container);
        assert!(text.ends_with("run Replimeter outside of it"), "{text}");
    }
}
