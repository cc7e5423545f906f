//! Replication by channels: asynchronous, semi-synchronous, chained.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use replimeter_engine::{
    Session,
    dialect::{self, ThreadState, acknowledgement},
};
use replimeter_model::{engine::Engine, replication::Mode, sandbox::LinkSpec};

use super::{Started, Starter, link_settings};
use crate::{engine, error::SandboxError, link::Link, network::ServerLinks};

impl Starter<'_> {
    /// Connects every replica to its source and, if requested, enables semi-synchronous
    /// replication.
    pub(super) fn connect_channels(&self, started: &mut [Started]) -> Result<(), SandboxError> {
        let chained = self.mode() == Mode::Chain;
        let sources: Vec<usize> = (0..started.len())
            .map(|index| if chained { index.saturating_sub(1) } else { 0 })
            .collect();
        let endpoints: Vec<(String, u16)> = started
            .iter()
            .map(|server| {
                (
                    server.member.node.name.clone(),
                    server.member.node.endpoint.port,
                )
            })
            .collect();
        for (server, source) in started.iter_mut().zip(&sources).skip(1) {
            server.member.source = Some(endpoints[*source].0.clone());
        }
        let mut ports: Vec<u16> = sources.iter().map(|source| endpoints[*source].1).collect();
        if let Some(spec) = &self.settings.spec.link {
            for (index, port) in ports.iter_mut().enumerate().skip(1) {
                *port = self.put_link(
                    &endpoints[sources[index]].0,
                    &endpoints[index].0,
                    *port,
                    spec,
                )?;
            }
        }
        let started = &*started;
        let semi = self.mode() == Mode::SemiSync;
        let operation = "cannot set up replication";
        self.on_all(&started[1..], |server| {
            let mut session = Session::open(&server.member.node)?;
            if semi {
                // Before the receiving thread connects: it announces to the primary that it
                // acknowledges.
                let words = self.words(&mut session)?;
                session.run(
                    operation,
                    &format!("SET GLOBAL {}_enabled = 1", words.replica),
                )?;
            }
            let index = endpoints
                .iter()
                .position(|(name, _)| *name == server.member.node.name)
                .unwrap_or_default();
            let port = ports[index];
            for alternatives in engine::replicate(self.installs.replica.engine, port, self.password)
            {
                session.run_first_accepted(operation, &alternatives)?;
            }
            Ok(())
        })?;
        if semi {
            // The receivers must exist first: without them, the primary's first write waits until
            // the timeout.
            self.on_all(&started[1..], |server| self.await_receiver(server))?;
            self.enable_semi_sync(&started[0])?;
            self.await_semi_sync(&started[0], started.len() as u64 - 1)?;
        }
        Ok(())
    }

    /// Puts a link in front of the source's port, for one replica, and returns the port of the
    /// link.
    fn put_link(
        &self,
        source: &str,
        replica: &str,
        port: u16,
        spec: &LinkSpec,
    ) -> Result<u16, SandboxError> {
        let name = format!("{source}-{replica}");
        let start = || {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let link = Link::to(
                &name,
                listener,
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
                link_settings(spec),
            )?;
            Ok((link.address().port(), link))
        };
        let (port, link) = start().map_err(|source| SandboxError::Link {
            name: name.clone(),
            source,
        })?;
        self.open_links().push(ServerLinks {
            name,
            links: vec![link],
        });
        Ok(port)
    }

    fn words(&self, session: &mut Session) -> Result<acknowledgement::VariableNames, SandboxError> {
        let facts = replimeter_engine::facts::ServerFacts::read(session)?;
        acknowledgement::VariableNames::of(&facts).ok_or_else(|| SandboxError::NotReplicating {
            node: session.name().to_owned(),
            state: "it does not support semi-synchronous replication although it has the plugin; see its log".to_owned(),
        })
    }

    fn await_receiver(&self, server: &Started) -> Result<(), SandboxError> {
        self.await_state(server, |session| {
            let channels = dialect::channels(self.installs.replica.engine, session)?;
            let running = channels
                .first()
                .is_some_and(|channel| channel.receiver == ThreadState::Running);
            self.refuse_broken(&channels, server)?;
            Ok((!running).then(|| {
                channels
                    .first()
                    .map_or_else(|| "it is not a replica".to_owned(), dialect::Channel::state)
            }))
        })
    }

    fn enable_semi_sync(&self, primary: &Started) -> Result<(), SandboxError> {
        let mut session = Session::open(&primary.member.node)?;
        let words = self.words(&mut session)?;
        let operation = "cannot enable semi-synchronous replication";
        let spec = &self.settings.spec;
        if let Some(point) = spec.wait_point {
            session.run(
                operation,
                &format!(
                    "SET GLOBAL {}_wait_point = '{}'",
                    words.primary,
                    point.variable()
                ),
            )?;
        }
        if let (Some(wanted), Engine::MySql) =
            (spec.wait_for_replicas, self.installs.primary.engine)
        {
            session.run(
                operation,
                &format!("SET GLOBAL {}_{} = {wanted}", words.primary, words.count),
            )?;
        }
        session.run(
            operation,
            &format!("SET GLOBAL {}_enabled = 1", words.primary),
        )?;
        Ok(())
    }

    /// Waits until the primary reports this number of acknowledging replicas.
    pub(super) fn await_semi_sync(
        &self,
        primary: &Started,
        replicas: u64,
    ) -> Result<(), SandboxError> {
        self.await_state(primary, |session| {
            let state = acknowledgement::state(session)?.0.unwrap_or_default();
            let ready = state.active && state.clients == replicas;
            Ok((!ready).then(|| {
                format!(
                    "semi-synchronous replication is {}, {} of {replicas} replicas acknowledge",
                    if state.active { "on" } else { "off" },
                    state.clients
                )
            }))
        })
    }

    /// Returns an error when a replica cannot recover automatically.
    pub(super) fn refuse_broken(
        &self,
        channels: &[dialect::Channel],
        server: &Started,
    ) -> Result<(), SandboxError> {
        let broken = |state: String| {
            Err(SandboxError::NotReplicating {
                node: server.member.node.name.clone(),
                state,
            })
        };
        let Some(channel) = channels.first() else {
            return broken("it is not a replica".to_owned());
        };
        if let Some(reason) = channel.filters.excludes("replimeter", "sentinel") {
            return broken(format!("its replication filter {reason}"));
        }
        if !channel.sql_error.is_empty()
            || (channel.receiver == ThreadState::Stopped && !channel.io_error.is_empty())
        {
            return broken(channel.state());
        }
        Ok(())
    }
}
