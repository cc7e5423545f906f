//! User and password for existing servers, from URL, environment, option file and prompt, in this order.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    time::Duration,
};

use replimeter_engine::{
    ErrorKind, Node, Session, option_file,
    source::{SourceError, SourceErrorKind},
};
use replimeter_model::target::{NodeSpec, Passwords, Secret};

use crate::environment;

/// Timeout of replies until a measurement sets its own.
const ANSWER: Duration = Duration::from_secs(10);

/// Sources of user and password.
#[derive(Default)]
pub(crate) struct Credentials {
    /// Passwords in URLs.
    pub(crate) passwords: Passwords,
    /// The option file with user and password.
    pub(crate) defaults_file: Option<PathBuf>,
    /// Whether to ask for a password.
    pub(crate) ask_password: bool,
}

impl Credentials {
    /// Returns the nodes of a user's cluster, in the given order.
    pub(crate) fn nodes(&self, specs: &[NodeSpec]) -> Result<Vec<Node>, SourceError> {
        let file = read_option_file(self.defaults_file.as_deref())?;
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
            let known = self
                .passwords
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
            if self.ask_password {
                node.password = Some(match &asked {
                    Some(password) => password.clone(),
                    None => asked.insert(prompt("Password for every server: ")?).clone(),
                });
            } else if node.password.is_none()
                && std::io::stdin().is_terminal()
                && wants_password(&node)
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
}

fn read_option_file(named: Option<&Path>) -> Result<option_file::Credentials, SourceError> {
    let refuse = |error: option_file::OptionFileError| {
        SourceError::new(
            SourceErrorKind::Failed,
            error.to_string(),
            "use groups such as [client] with user=… and password=…",
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

/// Returns whether the server rejects the user without a password.
fn wants_password(node: &Node) -> bool {
    matches!(Session::open(node), Err(error) if error.kind == ErrorKind::AccessDenied)
}

fn prompt(text: &str) -> Result<Secret, SourceError> {
    rpassword::prompt_password(text).map(Secret::new).map_err(|error| {
        if error.kind() == std::io::ErrorKind::Interrupted {
            return SourceError::new(SourceErrorKind::Interrupted, "interrupted at the password prompt", "");
        }
        SourceError::new(
            SourceErrorKind::Usage,
            format!("cannot ask for a password: {error}"),
            "use an option file (--defaults-file) or REPLIMETER_PASSWORD; without a terminal, Replimeter cannot ask",
        )
    })
}
