//! User and password for the user's servers: URL, environment, option file,
//! prompt, in this order.

use std::{io::IsTerminal, path::Path, time::Duration};

use replimeter_model::target::{NodeSpec, Passwords, Secret};
use replimeter_server::{ErrorKind, Node, Session, option_file};

use crate::{environment, failure::Failure};

/// How long an answer may take before a measurement sets its own limit.
const ANSWER: Duration = Duration::from_secs(10);

/// Builds the nodes of a user's cluster, in the order given.
pub(crate) fn nodes(
    specs: &[NodeSpec],
    from_urls: &Passwords,
    defaults_file: Option<&Path>,
    ask: bool,
) -> Result<Vec<Node>, Failure> {
    let file = read_option_file(defaults_file)?;
    let mut asked: Option<Secret> = None;
    let mut nodes = Vec::new();
    for NodeSpec {
        name,
        url: endpoint,
        ..
    } in specs
    {
        let user = endpoint
            .user
            .clone()
            .or_else(|| file.user.clone())
            .unwrap_or_else(environment::login_name);
        let known = from_urls
            .get(name)
            .cloned()
            .or_else(|| environment::password(name))
            .or_else(|| file.password.clone());
        let mut node = Node {
            name: name.clone(),
            endpoint: endpoint.clone(),
            user,
            password: known,
            answer: ANSWER,
            namespace: None,
        };
        node.check_files()?;
        if ask {
            node.password = Some(match &asked {
                Some(password) => password.clone(),
                None => asked.insert(prompt("Password for every server: ")?).clone(),
            });
        } else if node.password.is_none() && std::io::stdin().is_terminal() && wants_password(&node)
        {
            node.password = Some(prompt(&format!(
                "Password for {}@{} ({}): ",
                node.user,
                node.endpoint.address(),
                node.name
            ))?);
        }
        nodes.push(node);
    }
    Ok(nodes)
}

fn read_option_file(named: Option<&Path>) -> Result<option_file::Credentials, Failure> {
    let refuse = |error: option_file::OptionFileError| {
        Failure::failed(
            error.to_string(),
            "an option file has groups such as [client] with user=… and password=…",
        )
    };
    match named {
        Some(path) => option_file::read(path).map_err(refuse),
        None => match environment::home_folder()
            .map(|home| home.join(".my.cnf"))
            .filter(|path| path.exists())
        {
            Some(path) => option_file::read(&path).map_err(refuse),
            None => Ok(option_file::Credentials::default()),
        },
    }
}

/// Whether the server refuses the user without a password.
fn wants_password(node: &Node) -> bool {
    matches!(Session::open(node), Err(error) if error.kind == ErrorKind::AccessDenied)
}

fn prompt(text: &str) -> Result<Secret, Failure> {
    rpassword::prompt_password(text).map(Secret::new).map_err(|error| {
        if error.kind() == std::io::ErrorKind::Interrupted {
            return Failure::interrupted("interrupted at the password prompt");
        }
        Failure::usage(
            format!("cannot ask for a password: {error}"),
            "there is no terminal to ask at; use an option file (--defaults-file) or REPLIMETER_PASSWORD",
        )
    })
}
