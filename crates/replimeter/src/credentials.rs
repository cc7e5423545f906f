//! User and password for existing servers, from URL, environment, option file and prompt, in this order.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    time::Duration,
};

use replimeter_engine::{
    Connections, ErrorKind, Node, Session,
    node::Login,
    option_file::{self, OptionFileError},
    source::{Member, SourceError, SourceErrorKind},
};
use replimeter_model::{
    engine::EXAMPLE_URL,
    target::{NodeSpec, Passwords, Secret, SslMode},
    warning::{Warning, WarningCode},
};
use replimeter_render::terminal;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::{environment, print::say};

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
    /// Whether to show the texts of replication errors.
    pub(crate) show_errors: bool,
}

/// Keeps passwords out of core dumps, and from the user's other processes. Best effort.
pub(crate) fn hide_memory() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

impl Credentials {
    /// Returns the nodes of a user's cluster, in the given order. With nodes from `before`, it neither asks nor prints: what
    /// was typed stays.
    pub(crate) fn nodes(
        &self,
        specs: &[NodeSpec],
        connections: &Connections,
        before: Option<&[Member]>,
    ) -> Result<Vec<Node>, SourceError> {
        let (file, path) = read_option_file(self.defaults_file.as_deref())?;
        if !specs.is_empty() {
            hide_memory();
        }
        if before.is_none() {
            let exposed = file.exposed.iter().map(|path| exposed(path));
            let skipped = file.skipped.iter().map(|reason| skipped(reason));
            say(&terminal::warnings(
                &exposed.chain(skipped).collect::<Vec<_>>(),
            ));
        }
        let mut asked: Option<Secret> = None;
        let mut nodes = Vec::new();
        for NodeSpec {
            name,
            url: endpoint,
            ..
        } in specs
        {
            let (user, user_from) = match (&endpoint.user, &file.user) {
                (Some(user), _) => (user.clone(), Some(IN_URL.to_owned())),
                (None, Some(user)) => (user.value.clone(), Some(shown(&user.file))),
                (None, None) => (environment::login_name(), None),
            };
            let given = match self.passwords.get(name) {
                Some(password) => Some((password.clone(), IN_URL.to_owned())),
                None => environment::password(name)?,
            };
            let known = given.or_else(|| {
                let found = file.password.as_ref()?;
                Some((found.value.clone(), shown(&found.file)))
            });
            let mut endpoint = endpoint.clone();
            endpoint.tls = match file.tls.options() {
                Ok(options) => endpoint.tls.or(&options),
                // The URL has the precedence.
                Err(_) if endpoint.tls.mode.is_some() || endpoint.tls.ca.is_some() => endpoint.tls,
                Err(refused) => {
                    return Err(SourceError::new(
                        SourceErrorKind::Usage,
                        format!("cannot use the TLS options of the option file: {refused}"),
                        "give ssl-mode and ssl-ca in the URLs, or name another file with --defaults-file",
                    ));
                }
            };
            let mut node = Node {
                show_errors: self.show_errors,
                connections: connections.clone(),
                ..Node::new(name, endpoint, &user, ANSWER)
            };
            node.check_files()?;
            let typed = match before {
                Some(before) if self.ask_password || known.is_none() => before
                    .iter()
                    .find(|member| self.ask_password || member.node.name == *name)
                    .and_then(|member| member.node.password.clone()),
                Some(_) => None,
                None => self.typed(&node, known.is_some(), &mut asked)?,
            };
            let password = typed
                .map(|typed| (typed, "the prompt".to_owned()))
                .or(known);
            let password_from = password.as_ref().map(|(password, from)| {
                let empty = password.reveal().is_empty();
                format!("{from}{}", if empty { ", and empty" } else { "" })
            });
            node.login = Some(login(
                &node.user,
                user_from.as_deref(),
                password_from.as_deref(),
                path.as_deref(),
                node.endpoint.tls.mode() != SslMode::Disabled,
            ));
            node.password = password.map(|(password, _)| password);
            nodes.push(node);
        }
        Ok(nodes)
    }
}

impl Credentials {
    /// Asks for the password of a node at the terminal, if that is wanted, or needed and possible; for that of all of them once.
    fn typed(
        &self,
        node: &Node,
        is_known: bool,
        asked: &mut Option<Secret>,
    ) -> Result<Option<Secret>, SourceError> {
        if self.ask_password {
            return Ok(Some(match asked {
                Some(password) => password.clone(),
                None => asked.insert(prompt("Password for every server: ")?).clone(),
            }));
        }
        if is_known || !std::io::stdin().is_terminal() || !wants_password(node) {
            return Ok(None);
        }
        let text = format!(
            "Password for {}@{} ({}): ",
            node.user,
            node.endpoint.address(),
            node.name
        );
        prompt(&text).map(Some)
    }
}

/// Returns the warning for an option file that others may read.
fn exposed(file: &Path) -> Warning {
    Warning::new(
        WarningCode::PasswordInUrl,
        format!(
            "every user may read the option file {}: they can log in with its password",
            file.display()
        ),
        format!("take the right from them: chmod 600 {}", file.display()),
    )
}

/// Returns the warning for an included option file that cannot be read.
fn skipped(reason: &str) -> Warning {
    Warning::new(
        WarningCode::NotChecked,
        format!("{reason}: a user, password or TLS option in it has no effect"),
        "correct or remove its !include line",
    )
}

/// Where a user or password in a URL comes from.
const IN_URL: &str = "the URL";

fn shown(file: &Path) -> String {
    format!("the option file {}", file.display())
}

/// Returns what the error of a refused login adds. `user_from` and `password_from` say where both came from, `file`
/// is the option file, `encrypts` whether TLS is tried.
fn login(
    user: &str,
    user_from: Option<&str>,
    password_from: Option<&str>,
    file: Option<&Path>,
    encrypts: bool,
) -> Login {
    let user = match user_from {
        Some(from) => format!("the user is from {from}"),
        None => format!("no user is given, so `{user}` was tried"),
    };
    let password = match password_from {
        Some(from) => format!("the password is from {from}"),
        None => "no password is given".to_owned(),
    };
    let mut origin = format!("{user}; {password}");
    if let (Some(file), true) = (file, user_from.is_none() || password_from.is_none()) {
        let missing = match (user_from, password_from) {
            (None, None) => "user=… and password=…",
            (None, _) => "user=…",
            _ => "password=…",
        };
        let groups = option_file::GROUPS.map(|group| format!("[{group}]"));
        let (file, groups) = (file.display(), groups.join(", "));
        origin.push_str(&format!("; {file} has no {missing} in {groups}"));
    }
    let name_user = format!("name the user in the URL, as in {EXAMPLE_URL}, or in an option file");
    let mut hints = Vec::new();
    if user_from.is_none() {
        hints.push(name_user.as_str());
    }
    hints.push(match password_from {
        Some(_) => "check the password there, or type it with --ask-password; the server must have the user for this client's host",
        None => "give the password in an option file (--defaults-file, ~/.my.cnf), in REPLIMETER_PASSWORD, or at the prompt (--ask-password)",
    });
    if !encrypts {
        hints.push("remove ssl-mode=disabled if the user must use TLS");
    }
    Login {
        origin,
        hint: hints.join("; "),
    }
}

/// Returns the contents of the option file, and its path if there is one.
fn read_option_file(
    named: Option<&Path>,
) -> Result<(option_file::Credentials, Option<PathBuf>), SourceError> {
    let usual = || Some(environment::home_folder()?.join(".my.cnf")).filter(|path| path.exists());
    let Some(path) = named.map(Path::to_owned).or_else(usual) else {
        return Ok((option_file::Credentials::default(), None));
    };
    match option_file::read(&path) {
        Ok(found) => Ok((found, Some(path))),
        Err(error) => {
            let hint = match error {
                OptionFileError::Read { .. } => {
                    "check its path and permissions; --defaults-file names another file"
                }
                OptionFileError::Writable { .. } => {
                    "take the right to write from others: chmod 600 FILE"
                }
                OptionFileError::TooLarge { .. } => {
                    "name an option file with --defaults-file; an option file is a short text"
                }
                OptionFileError::TooManyFiles { .. } => {
                    "take out the !include lines of files that include each other or themselves"
                }
                OptionFileError::Syntax { .. } => {
                    "write groups such as [client] with user=… and password=\"…\", where \\\" and \\\\ stand for a quote and a backslash"
                }
            };
            let kind = SourceErrorKind::Usage;
            Err(SourceError::new(kind, error.to_string(), hint))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_login_names_the_origin_of_user_and_password() {
        let file = Path::new("/home/dba/.my.cnf");
        for (user_from, password_from, origin, hint) in [
            (
                Some(IN_URL),
                Some("REPLIMETER_PASSWORD"),
                "the user is from the URL; the password is from REPLIMETER_PASSWORD",
                "check the password there",
            ),
            (
                None,
                Some("the prompt"),
                "no user is given, so `ann` was tried; the password is from the prompt; /home/dba/.my.cnf has no user=… in [client], ",
                "name the user in the URL, as in mysql://user@host:3306/",
            ),
            (
                Some(IN_URL),
                None,
                "no password is given; /home/dba/.my.cnf has no password=… in [client], ",
                "give the password in an option file",
            ),
        ] {
            let login = login("ann", user_from, password_from, Some(file), true);
            assert!(login.origin.contains(origin), "{}", login.origin);
            assert!(login.hint.contains(hint), "{}", login.hint);
        }
    }
}
