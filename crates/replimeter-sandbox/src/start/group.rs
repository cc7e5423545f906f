//! A MySQL group.

use replimeter_engine::{Session, dialect::group::group_state};

use super::{Ports, Started, Starter, port_taken};
use crate::{engine::REPLICATION_USER, error::SandboxError, process};

impl Starter<'_> {
    /// Returns the arguments of a member.
    pub(super) fn group_arguments(&self, index: usize, ports: &[Ports]) -> Vec<String> {
        let templates: Vec<String> = ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports.group))
            .collect();
        let single = if self.settings.spec.multi_primary {
            ("OFF", "ON")
        } else {
            ("ON", "OFF")
        };
        vec![
            "--plugin-load-add=group_replication.so".to_owned(),
            format!(
                "--loose-group-replication-group-name={}",
                self.identity.uuid(0)
            ),
            format!(
                "--loose-group-replication-local-address=127.0.0.1:{}",
                ports[index].group
            ),
            format!(
                "--loose-group-replication-group-seeds={}",
                templates.join(",")
            ),
            "--loose-group-replication-start-on-boot=OFF".to_owned(),
            "--loose-group-replication-bootstrap-group=OFF".to_owned(),
            format!("--loose-group-replication-single-primary-mode={}", single.0),
            format!(
                "--loose-group-replication-enforce-update-everywhere-checks={}",
                single.1
            ),
            // Members listen on every interface, and by default accept private networks.
            "--loose-group-replication-ip-allowlist=127.0.0.1/32".to_owned(),
            "--loose-group-replication-ip-whitelist=127.0.0.1/32".to_owned(),
            // The members authenticate over connections without TLS.
            "--loose-group-replication-recovery-get-public-key=ON".to_owned(),
        ]
    }

    /// Makes the first member bootstrap the group and the others join it.
    pub(super) fn form_group(&self, started: &[Started]) -> Result<(), SandboxError> {
        let (first, others) = (&started[0], &started[1..]);
        self.on_all(started, |server| self.prepare_member(server))?;
        {
            let mut session = Session::open(&first.member.node)?;
            let operation = "cannot bootstrap the group";
            session.run(
                operation,
                "SET GLOBAL group_replication_bootstrap_group = ON",
            )?;
            self.start_group(&mut session, first)?;
            session.run(
                operation,
                "SET GLOBAL group_replication_bootstrap_group = OFF",
            )?;
        }
        self.await_group(first, 1)?;
        // One after another: of two that join at once one is refused, and tries again only after seconds.
        for server in others {
            self.start_group(&mut Session::open(&server.member.node)?, server)?;
        }
        self.on_all(started, |server| self.await_group(server, started.len()))
    }

    fn prepare_member(&self, server: &Started) -> Result<(), SandboxError> {
        let mut session = Session::open(&server.member.node)?;
        let operation = "cannot prepare the member";
        // Transactions of the start itself would prevent joining.
        session.run_first_accepted(
            operation,
            &[
                "RESET BINARY LOGS AND GTIDS".to_owned(),
                "RESET MASTER".to_owned(),
            ],
        )?;
        let password = self.password;
        let new = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_USER='{REPLICATION_USER}', SOURCE_PASSWORD='{password}' FOR CHANNEL 'group_replication_recovery'"
        );
        let old = format!(
            "CHANGE MASTER TO MASTER_USER='{REPLICATION_USER}', MASTER_PASSWORD='{password}' FOR CHANNEL 'group_replication_recovery'"
        );
        session.run_first_accepted(operation, &[new, old])?;
        Ok(())
    }

    fn start_group(&self, session: &mut Session, server: &Started) -> Result<(), SandboxError> {
        session
            .run("cannot start group replication", "START GROUP_REPLICATION")
            .map_err(|error| {
                let log = process::log_tail(&server.member.log());
                if port_taken(&log) {
                    return SandboxError::NotReady {
                        node: server.member.node.name.clone(),
                        seconds: 0,
                        state: error.to_string(),
                        log,
                    };
                }
                SandboxError::NotReplicating {
                    node: server.member.node.name.clone(),
                    state: format!("{error}; the end of its log:\n{log}"),
                }
            })
    }

    /// Waits until a member sees this number of members, all of them online.
    fn await_group(&self, server: &Started, count: usize) -> Result<(), SandboxError> {
        self.await_state(server, |session| {
            let state = group_state(session)?.unwrap_or_default();
            let ready = state.members.len() >= count && state.online() == state.members.len();
            Ok((!ready).then(|| state.description()))
        })
    }
}
