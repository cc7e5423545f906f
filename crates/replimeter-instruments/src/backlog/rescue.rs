//! A process that restores the applier when Replimeter is killed: it waits for the end of a pipe, which the system closes
//! with Replimeter.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    process::Child,
};

use replimeter_engine::{
    Node,
    identity::{Identity, RecordedIdentity},
};
use replimeter_model::{
    engine::Engine,
    target::{Endpoint, Secret, SslMode, TlsOptions},
};
use serde::{Deserialize, Serialize};

use super::{RELEASE_TIMEOUT, release::HeldApplier, restore::RestoreStatements};

/// Follows the order when nothing is left to do: the applier was restored, or the user was given the statements.
const RELEASED: &str = "released";

/// Starts the process, with a pipe as its standard input.
pub type StartRescuer = Box<dyn Fn() -> io::Result<Child> + Send + Sync>;

/// Everything that restores one applier; it passes through the pipe only, because it has the password.
#[derive(Deserialize, Serialize)]
pub(super) struct RescueOrder {
    name: String,
    host: String,
    port: u16,
    socket: Option<PathBuf>,
    user: String,
    password: Option<String>,
    /// `server_id`, UUID and place.
    identity: Option<(u64, String, String)>,
    mode: Option<SslMode>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    get_server_public_key: Option<bool>,
    engine: Engine,
    channel: String,
    stop: String,
    workers: Option<(u64, String)>,
    start: String,
}

impl RescueOrder {
    pub(super) fn new(
        node: &Node,
        engine: Engine,
        channel: &str,
        statements: &RestoreStatements,
    ) -> Self {
        let (endpoint, tls) = (&node.endpoint, &node.endpoint.tls);
        let identity = node.identity.first();
        // The process runs in another folder.
        let absolute = |path: &Option<PathBuf>| {
            let path = path.as_ref()?;
            Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        };
        Self {
            name: node.name.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port,
            socket: endpoint.socket.clone(),
            user: node.user.clone(),
            password: node
                .password
                .as_ref()
                .map(|password| password.reveal().to_owned()),
            identity: identity.map(|one| (one.server_id, one.uuid.clone(), one.place.clone())),
            mode: tls.mode,
            ca: absolute(&tls.ca),
            cert: absolute(&tls.cert),
            key: absolute(&tls.key),
            get_server_public_key: tls.get_server_public_key,
            engine,
            channel: channel.to_owned(),
            stop: statements.stop.clone(),
            workers: statements
                .workers
                .map(|(workers, variable)| (workers, variable.to_owned())),
            start: statements.start.clone(),
        }
    }

    fn into_applier(self) -> HeldApplier {
        let identity = self.identity.map(|(server_id, uuid, place)| Identity {
            server_id,
            uuid,
            place,
        });
        let endpoint = Endpoint {
            user: None,
            host: self.host,
            port: self.port,
            socket: self.socket,
            tls: TlsOptions {
                mode: self.mode,
                ca: self.ca,
                cert: self.cert,
                key: self.key,
                get_server_public_key: self.get_server_public_key,
            },
        };
        let node = Node {
            password: self.password.map(Secret::new),
            show_errors: false,
            identity: RecordedIdentity::of(identity),
            ..Node::new(&self.name, endpoint, &self.user, RELEASE_TIMEOUT)
        };
        let statements = RestoreStatements {
            stop: self.stop,
            // The process restores one applier.
            workers: self
                .workers
                .map(|(workers, variable)| (workers, &*variable.leak())),
            start: self.start,
        };
        HeldApplier::in_unknown_state(node, self.engine, self.channel, statements)
    }
}

/// A running process that waits for the end of this one.
#[derive(Debug)]
pub(super) struct Rescuer(Child);

impl Rescuer {
    /// Starts the process.
    pub(super) fn start(start: &StartRescuer, order: &RescueOrder) -> io::Result<Self> {
        let mut rescuer = Self(start()?);
        rescuer.send(&serde_json::to_string(order)?)?;
        Ok(rescuer)
    }

    fn send(&mut self, line: &str) -> io::Result<()> {
        let Some(pipe) = &mut self.0.stdin else {
            return Ok(());
        };
        writeln!(pipe, "{line}")?;
        pipe.flush()
    }

    /// Ends the process without an attempt.
    pub(super) fn dismiss(mut self) {
        if self.send(RELEASED).is_err() {
            // It has ended, or would try.
            let _ = self.0.kill();
        }
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs the process: reads the order, waits until the pipe is closed, and restores the applier unless nothing is left to do.
pub fn rescue(pipe: &mut dyn Read) {
    let mut text = String::new();
    if pipe.read_to_string(&mut text).is_err() {
        return;
    }
    let mut lines = text.lines();
    let order = lines.next().map(serde_json::from_str::<RescueOrder>);
    if let (Some(Ok(order)), None) = (order, lines.find(|line| *line == RELEASED)) {
        // No process reads its messages.
        let _ = order
            .into_applier()
            .register()
            .release(RELEASE_TIMEOUT, None, &|_| ());
    }
}
