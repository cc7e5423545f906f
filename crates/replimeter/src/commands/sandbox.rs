//! `replimeter sandbox`: sandboxes that keep running.

use std::{
    io::{self, BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use replimeter_engine::{
    Connections, Node, ServerError, Session, help::CLIENT, membership::ClusterState,
    option_file::PASSWORD_VARIABLE, source::SourceError,
};
use replimeter_model::{
    plan::TargetSettings,
    sandbox::{SandboxName, SandboxRef, SandboxSpec},
    sandboxes::{ListedLink, ListedNode, ListedSandbox, SANDBOXES_SCHEMA, SandboxesDocument},
    shape::Shape,
    target::{Role, Target},
};
use replimeter_render::{report::Report, sandboxes};
use replimeter_run::{
    cli_error::{CliError, unexpected},
    json_text,
    options::OutputForm,
    print_document,
};
use replimeter_sandbox::{
    SandboxError, endpoint,
    home::TAKEN,
    managed::{
        self, LaunchReport, LinkChange, LinkState, ManagedRecord, ManagedSandbox, NamedSandbox,
        SupervisorConfig, SupervisorRequest, SupervisorResponse, TOPOLOGY, clients::quoted,
    },
    reaper,
};
use serde::{Deserialize, Serialize};

use crate::{
    active::Active,
    cli::{DownArgs, EnvArgs, ExecArgs, LinkArgs, ListArgs, SandboxCommand, UpArgs},
    credentials::hide_memory,
    environment,
    print::{print, print_failure, say},
    progress::StatusLine,
    terminal::Terminal,
};

/// The settings that `up` passes to the supervisor, in one line of JSON.
#[derive(Serialize, Deserialize)]
struct StartSandbox {
    name: SandboxName,
    target: TargetSettings,
}

pub(crate) fn run(command: &SandboxCommand, active: &Active) -> Result<(), CliError> {
    let stop = &active.stop;
    match command {
        SandboxCommand::Up(args) => up(args, stop),
        SandboxCommand::List(args) => list(args),
        SandboxCommand::Env(args) => env(args),
        SandboxCommand::Exec(args) => exec(args),
        SandboxCommand::Link(args) => link(args),
        SandboxCommand::Down(args) => down(args, stop),
        SandboxCommand::Keep => keep(active),
        SandboxCommand::Guard { token } => {
            reaper::watch(token, &mut io::stdin().lock());
            Ok(())
        }
        SandboxCommand::RestoreApplier => {
            hide_memory();
            replimeter_instruments::backlog::rescue(&mut io::stdin().lock());
            Ok(())
        }
    }
}

fn up(args: &UpArgs, stop: &Arc<AtomicBool>) -> Result<(), CliError> {
    let mut target = args.servers.0.clone();
    target.sandbox = Some(vec![SandboxRef::Shape(args.shape)]);
    // The supervisor runs in another folder.
    target.servers = target
        .servers
        .map(|path| std::path::absolute(&path).unwrap_or(path));
    target.replica_server =
        target
            .replica_server
            .map(|server| match std::path::absolute(&server) {
                Ok(path) if path.is_dir() => path.display().to_string(),
                _ => server,
            });
    let _ = spec(&target)?;
    let home = environment::private_home()?;
    let program = std::env::current_exe().map_err(|error| {
        CliError::failed(
            format!("cannot find Replimeter's executable: {error}"),
            "check whether it was replaced or removed",
        )
    })?;
    let line = StatusLine::new();
    for attempt in 1u32.. {
        let name = match &args.name {
            Some(name) => name.clone(),
            None => default_name(args.shape, attempt)?,
        };
        if args.name.is_none()
            && managed::list(&home)
                .map_err(SourceError::from)?
                .iter()
                .any(|found| found.name() == name.as_str())
        {
            continue;
        }
        line.say(format!("starting {} as {name}", args.shape));
        let order = serde_json::to_string(&StartSandbox {
            name: name.clone(),
            target: target.clone(),
        })
        .map_err(unexpected)?;
        match managed::launch(
            &program,
            &["sandbox", "keep"],
            &environment::for_supervisor(),
            &order,
            stop,
        )
        .map_err(SourceError::from)?
        {
            LaunchReport::Ready(_) => {
                line.clear();
                let managed = ManagedSandbox::find(&home, &name).map_err(SourceError::from)?;
                return show_new(&managed, args.form.chosen);
            }
            LaunchReport::Failed {
                interrupted: true,
                message,
                ..
            } => return Err(CliError::interrupted(message)),
            // Another process took the chosen name.
            LaunchReport::Failed { message, .. }
                if args.name.is_none() && message.contains(TAKEN) => {}
            LaunchReport::Failed { message, hint, .. } if message.contains(TAKEN) => {
                return Err(CliError::usage(message, hint));
            }
            LaunchReport::Failed { message, hint, .. } => {
                return Err(CliError::failed(message, hint));
            }
        }
    }
    unreachable!("the loop ends by returning")
}

fn default_name(shape: Shape, attempt: u32) -> Result<SandboxName, CliError> {
    let base = match shape.to_string().rsplit('/').next() {
        Some("none") => "lone".to_owned(),
        Some(text) => text.replace(':', "-"),
        None => "sandbox".to_owned(),
    };
    let name = if attempt == 1 {
        base
    } else {
        format!("{base}-{attempt}")
    };
    name.parse()
        .map_err(|error: String| CliError::usage(error, "choose a name with --name"))
}

fn spec(target: &TargetSettings) -> Result<SandboxSpec, CliError> {
    match target.resolve()?.pop() {
        Some(Target::Sandbox(spec)) => Ok(spec),
        _ => Err(CliError::usage(
            "there is nothing to start",
            "name a shape, such as async:1",
        )),
    }
}

fn show_new(managed: &ManagedSandbox, form: OutputForm) -> Result<(), CliError> {
    let listed = listed(&NamedSandbox::Running(Box::new(managed.clone())));
    let report = sandboxes::started(&listed, managed.record().start_us, CLIENT);
    show(form, &report, || vec![listed])
}

/// Prints a report of sandboxes, or the document of all of them.
fn show(
    form: OutputForm,
    report: &Report,
    listed: impl FnOnce() -> Vec<ListedSandbox>,
) -> Result<(), CliError> {
    let json = || {
        json_text(&SandboxesDocument {
            schema: SANDBOXES_SCHEMA.to_owned(),
            results: listed(),
            warnings: Vec::new(),
        })
    };
    print_document(form, report, json, "", &Terminal)
}

fn listed(found: &NamedSandbox) -> ListedSandbox {
    let empty = |state: &str| ListedSandbox {
        name: found.name().to_owned(),
        state: state.to_owned(),
        shape: None,
        since: None,
        topology: None,
        nodes: Vec::new(),
        links: Vec::new(),
    };
    let managed = match found {
        NamedSandbox::Dead(_) => {
            return empty("dead: its supervisor was killed, and its servers with it");
        }
        NamedSandbox::Changing(_) => return empty("starting or stopping"),
        NamedSandbox::Running(managed) => managed,
    };
    let answer = managed.ask(&SupervisorRequest::Status);
    let reachable = managed.nodes(&Connections::default()).unwrap_or_default();
    let state_of = |name: &str| match &answer {
        Ok(answer) => match answer
            .nodes
            .iter()
            .find(|node| node.name == name)
            .and_then(|node| node.ended.clone())
        {
            Some(how) => format!("exited ({how})"),
            None => {
                let member = reachable
                    .iter()
                    .find(|(node, role, _)| node.name == name && *role == Role::Node);
                let words = member.map_or_else(String::new, |(node, ..)| {
                    format!(", {}", member_state(node))
                });
                format!("running{words}")
            }
        },
        Err(_) => "unknown".to_owned(),
    };
    let ManagedRecord {
        shape,
        since,
        nodes,
        ..
    } = managed.details();
    let (user, _) = managed.credentials();
    let nodes = nodes.iter().map(|node| ListedNode {
        name: node.name.clone(),
        role: node.role,
        source: node.source.clone(),
        port: node.port,
        socket: node.socket.clone(),
        log: node.log.clone(),
        version: node.version.clone(),
        state: state_of(&node.name),
        url: endpoint(user, node.port).to_string(),
    });
    ListedSandbox {
        name: found.name().to_owned(),
        state: if answer.is_ok() {
            "running"
        } else {
            "frozen: its supervisor does not respond"
        }
        .to_owned(),
        shape: Some(shape.clone()),
        since: Some(since.clone()),
        topology: Some(managed.folder().join(TOPOLOGY)),
        nodes: nodes.collect(),
        links: answer
            .as_ref()
            .map(|answer| answer.links.iter().map(listed_link).collect())
            .unwrap_or_default(),
    }
}

/// Returns the reported state of a cluster member.
fn member_state(node: &Node) -> String {
    let patience = Node {
        answer: Duration::from_secs(1),
        ..node.clone()
    };
    let ask = || -> Result<Option<String>, ServerError> {
        let mut session = Session::open(&patience)?;
        let state = ClusterState::current(&mut session)?;
        Ok(state.as_ref().and_then(ClusterState::state_and_part))
    };
    match ask() {
        Ok(state) => state.unwrap_or_else(|| "in no cluster".to_owned()),
        Err(error) => format!("no reply: {}", error.cause),
    }
}

fn listed_link(link: &LinkState) -> ListedLink {
    ListedLink {
        name: link.name.clone(),
        state: if link.cut { "cut" } else { "open" }.to_owned(),
        delay_us: link.delay_ns / 1000,
        jitter_us: link.jitter_ns / 1000,
        bandwidth_bits_per_s: link.bandwidth_bits,
        bytes: link.bytes,
    }
}

fn list(args: &ListArgs) -> Result<(), CliError> {
    let home = environment::private_home()?;
    let found: Vec<ListedSandbox> = managed::list(&home)
        .map_err(SourceError::from)?
        .iter()
        .map(listed)
        .collect();
    show(args.form.chosen, &sandboxes::list(&found), || found)
}

/// Returns the running sandbox of this name.
fn find(name: &SandboxName) -> Result<ManagedSandbox, SourceError> {
    Ok(ManagedSandbox::find(&environment::private_home()?, name)?)
}

fn env(args: &EnvArgs) -> Result<(), CliError> {
    let managed = find(&args.name)?;
    let mut variables: Vec<(String, String)> = Vec::new();
    if let Some(name) = &args.node {
        let environment = managed.environment(managed.node(name).map_err(SourceError::from)?);
        variables.extend(
            environment
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value)),
        );
    } else {
        let (user, password) = managed.credentials();
        variables.push(("REPLIMETER_SANDBOX".to_owned(), args.name.to_string()));
        variables.push((
            "REPLIMETER_TOPOLOGY".to_owned(),
            managed.folder().join(TOPOLOGY).display().to_string(),
        ));
        for node in &managed.details().nodes {
            variables.push((
                format!("{}_URL", node.name.to_uppercase()),
                endpoint(user, node.port).to_string(),
            ));
        }
        variables.push(("REPLIMETER_USER".to_owned(), user.to_owned()));
        variables.push((PASSWORD_VARIABLE.to_owned(), password.reveal().to_owned()));
    }
    let text: String = variables
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", quoted(value)))
        .collect();
    print(&text)
}

fn exec(args: &ExecArgs) -> Result<(), CliError> {
    let managed = find(&args.name)?;
    let node = managed.node(&args.node).map_err(SourceError::from)?;
    // The client's own message would not name the sandbox. Other commands can be of use.
    if let Ok(state) = managed.ask(&SupervisorRequest::Status)
        && let Some(advice) = managed.ended_servers(&state)
    {
        say(&format!("{advice}\n"));
    }
    Err(SourceError::from(managed.exec(node, &args.command, environment::path())).into())
}

fn link(args: &LinkArgs) -> Result<(), CliError> {
    let managed = find(&args.name)?;
    let nanos = |span: replimeter_model::time_span::TimeSpan| {
        u64::try_from(span.0.as_nanos()).unwrap_or(u64::MAX)
    };
    let change = LinkChange {
        cut: match (args.cut, args.heal) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
        delay_ns: args.delay.map(nanos),
        jitter_ns: args.jitter.map(nanos),
        bandwidth_bits: if args.no_bandwidth {
            Some(0)
        } else {
            args.bandwidth.map(|bandwidth| bandwidth.bits)
        },
    };
    let question = if change == LinkChange::default() && args.link.is_none() {
        SupervisorRequest::Status
    } else {
        SupervisorRequest::Link {
            link: args.link.clone(),
            change,
        }
    };
    let ask = |question| managed.ask(question).map_err(SourceError::from);
    if let Some(name) = &args.link {
        let SupervisorResponse { links, .. } = ask(&SupervisorRequest::Status)?;
        let known = || links.iter().map(|link| link.name.as_str());
        if !links.is_empty() && !known().any(|known| known == name) {
            let known: Vec<&str> = known().collect();
            return Err(CliError::usage(
                format!("sandbox {} has no link `{name}`", args.name),
                format!("the links are {}", known.join(", ")),
            ));
        }
    }
    let SupervisorResponse { links, .. } = ask(&question)?;
    let named = |link: &&LinkState| args.link.as_ref().is_none_or(|name| link.name == *name);
    let links: Vec<ListedLink> = links.iter().filter(named).map(listed_link).collect();
    if links.is_empty() {
        return Err(CliError::usage(
            format!("sandbox {} has no links", args.name),
            "start it with --link-delay (0 for a link without delay)",
        ));
    }
    show(args.form.chosen, &sandboxes::links(&links), || {
        vec![listed(&NamedSandbox::Running(Box::new(managed)))]
    })
}

fn down(args: &DownArgs, stop: &Arc<AtomicBool>) -> Result<(), CliError> {
    let home = environment::private_home()?;
    let names: Vec<SandboxName> = if args.all {
        managed::list(&home)
            .map_err(SourceError::from)?
            .iter()
            .filter_map(|found| found.name().parse().ok())
            .collect()
    } else {
        args.names.clone()
    };
    let line = StatusLine::new();
    let mut failure = None;
    for name in &names {
        if stop.load(Ordering::Relaxed) {
            return Err(CliError::interrupted(
                "interrupted; the remaining sandboxes are still running",
            ));
        }
        line.say(format!("stopping {name}"));
        // A sandbox that does not stop must not keep the others running.
        match managed::down(&home, name) {
            Ok(()) => {}
            Err(error) => {
                let error = CliError::from(SourceError::from(error));
                match &failure {
                    None => failure = Some(error),
                    Some(_) => print_failure(&error),
                }
            }
        }
    }
    line.clear();
    failure.map_or(Ok(()), Err)
}

/// Runs the supervisor. It prints one line, then nothing.
fn keep(active: &Active) -> Result<(), CliError> {
    let line = io::stdin().lock().lines().next();
    let order: StartSandbox = match line.map(|line| line.map(|line| serde_json::from_str(&line))) {
        Some(Ok(Ok(order))) => order,
        _ => {
            return Err(CliError::usage(
                "the supervisor is started by `replimeter sandbox up`",
                "use that command",
            ));
        }
    };
    let ended = start_and_keep(order, active);
    if let Err(error) = &ended {
        let said = LaunchReport::Failed {
            message: error.to_string(),
            hint: error.hint(),
            interrupted: matches!(error, SandboxError::Interrupted),
        };
        let _ = write_report(&said);
    }
    Ok(ended.map_err(SourceError::from)?)
}

fn start_and_keep(order: StartSandbox, active: &Active) -> Result<(), SandboxError> {
    let usage = |failure: CliError| SandboxError::Impossible {
        what: failure.message,
        hint: failure.hint,
    };
    let spec = spec(&order.target).map_err(usage)?;
    let sandboxes = environment::sandboxes(active.connections.begin(), active.sandboxes.clone())
        .map_err(|error| usage(error.into()))?;
    let settings = sandboxes.settings(&spec);
    let watched = Arc::clone(&active.stop);
    // Until `up` confirms, its end also ends the sandbox.
    thread::spawn(move || {
        let line = io::stdin().lock().lines().next();
        if !matches!(line, Some(Ok(line)) if line == "go on") {
            watched.store(true, Ordering::Relaxed);
        }
    });
    let now = || {
        jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string()
    };
    managed::supervise(
        &SupervisorConfig {
            name: order.name,
            spec,
        },
        &settings,
        &now,
        &active.stop,
        &mut |record| write_report(&LaunchReport::Ready(Box::new(record.clone()))),
    )
}

#[allow(
    clippy::disallowed_methods,
    reason = "the reader is the command that started the supervisor"
)]
fn write_report(said: &LaunchReport) -> io::Result<()> {
    let mut text = serde_json::to_string(said)?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}
