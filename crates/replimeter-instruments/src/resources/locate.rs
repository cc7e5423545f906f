//! Finds the process of a server on this machine, by the socket on which it listens.

use std::{
    collections::{HashMap, HashSet},
    fmt, fs,
    net::{IpAddr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use procfs::{
    FromReadSI, current_system_info,
    net::{TcpNetEntries, TcpNetEntry, TcpState},
    process::{FDTarget, Process, all_processes},
};
use replimeter_engine::{Node, dialect::PROGRAMS};

/// Why a server's process is not visible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotVisible {
    /// Its address belongs to another machine.
    Elsewhere,
    /// No process visible to this user listens there.
    Hidden,
    /// The listening process is not a database server.
    NoServer(String),
    /// It has ended.
    Gone,
}

impl fmt::Display for NotVisible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere => f.write_str("the server runs on another machine"),
            Self::Hidden => f.write_str("no process visible to this user listens there"),
            Self::NoServer(program) => write!(
                f,
                "the process that listens there is `{program}`, not a database server"
            ),
            Self::Gone => f.write_str("its process ended"),
        }
    }
}

impl NotVisible {
    /// Returns the suggested remedy.
    pub(super) fn hint(&self) -> &'static str {
        match self {
            Self::Elsewhere => {
                "run Replimeter on that machine to measure them; its load then runs there too"
            }
            Self::Hidden => {
                "run as the server's user or as root; for a server in a container, run inside the container"
            }
            Self::NoServer(_) => "give the server's own address, not that of a tunnel or proxy",
            Self::Gone => "see the server's error log",
        }
    }
}

/// Returns the process that listens at a node's address.
pub(super) fn server(node: &Node) -> Result<u32, NotVisible> {
    if let Some(path) = &node.endpoint.socket {
        let path = &fs::canonicalize(path).map_err(|_| NotVisible::Hidden)?;
        let sockets = unix_sockets(path)?;
        return owner(|process, inode| {
            sockets
                .get(&inode)
                .is_some_and(|bound| is_file_of(process, bound, path))
        });
    }
    let addresses = node.addresses().map_err(|_| NotVisible::Elsewhere)?;
    let port = node.endpoint.port;
    let listeners = move || listeners(&addresses, port);
    let sockets = match &node.namespace {
        None => listeners(),
        Some(namespace) => namespace.run(listeners).unwrap_or(Err(NotVisible::Hidden)),
    }?;
    owner(|_, inode| sockets.contains(&inode))
}

/// Returns the numbers of the sockets that listen at the address, if it belongs to this machine.
fn listeners(addresses: &[SocketAddr], port: u16) -> Result<HashSet<u64>, NotVisible> {
    let addresses: Vec<IpAddr> = addresses.iter().map(SocketAddr::ip).collect();
    // Only an address of this machine can be bound.
    let ours = |ip: &IpAddr| TcpListener::bind(SocketAddr::new(*ip, 0)).is_ok();
    if !addresses.iter().any(ours) {
        return Err(NotVisible::Elsewhere);
    }
    // Those of the calling thread, which may be in another namespace than the process.
    let read = |name: &str| {
        let path = format!("/proc/thread-self/net/{name}");
        TcpNetEntries::from_file(path, current_system_info())
            .map(|entries| entries.0)
            .unwrap_or_default()
    };
    let listens = |entry: &TcpNetEntry| {
        let local = entry.local_address;
        entry.state == TcpState::Listen
            && local.port() == port
            && (local.ip().is_unspecified() || addresses.iter().any(|ip| same(*ip, local.ip())))
    };
    let sockets: HashSet<u64> = read("tcp")
        .into_iter()
        .chain(read("tcp6"))
        .filter(listens)
        .map(|entry| entry.inode)
        .collect();
    if sockets.is_empty() {
        Err(NotVisible::Hidden)
    } else {
        Ok(sockets)
    }
}

/// Returns the Unix sockets whose file has this name, the listening one and those of connections, by their numbers; each with the path
/// to which its process bound it.
fn unix_sockets(path: &Path) -> Result<HashMap<u64, PathBuf>, NotVisible> {
    let entries = procfs::net::unix().map_err(|_| NotVisible::Hidden)?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| Some((entry.inode, entry.path?)))
        .filter(|(_, bound)| bound.file_name() == path.file_name())
        .collect())
}

/// Returns whether a path of a process, which can be relative or in a container, leads to the same file as a path here.
fn is_file_of(process: &Process, bound: &Path, path: &Path) -> bool {
    let folder = format!("/proc/{}", process.pid);
    let theirs = match bound.strip_prefix("/") {
        Ok(absolute) => Path::new(&folder).join("root").join(absolute),
        Err(_) => Path::new(&folder).join("cwd").join(bound),
    };
    let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    matches!((file(&theirs), file(path)), (Ok(one), Ok(other)) if one == other)
}

/// Returns whether two addresses are equal, including IPv4 addresses mapped to IPv6.
fn same(one: IpAddr, other: IpAddr) -> bool {
    one.to_canonical() == other.to_canonical()
}

/// Returns the process that has a socket for which `wanted` returns true, given the process and the socket's number.
fn owner(wanted: impl Fn(&Process, u64) -> bool) -> Result<u32, NotVisible> {
    let Ok(processes) = all_processes() else {
        return Err(NotVisible::Hidden);
    };
    let mut stranger = None;
    for process in processes.flatten() {
        let Ok(files) = process.fd() else { continue };
        let holds = files
            .flatten()
            .any(|file| matches!(file.target, FDTarget::Socket(inode) if wanted(&process, inode)));
        if !holds {
            continue;
        }
        match program(&process) {
            None => return u32::try_from(process.pid).map_err(|_| NotVisible::Hidden),
            Some(other) => stranger = Some(other),
        }
    }
    Err(stranger.map_or(NotVisible::Hidden, NotVisible::NoServer))
}

/// Returns the name of the program when it is not a database server. For servers with their own
/// loader, the server is the loader's first argument.
fn program(process: &Process) -> Option<String> {
    let words = process.cmdline().unwrap_or_default();
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let ours = |word: &&String| PROGRAMS.contains(&name(word).as_str());
    if words.iter().take(6).any(|word| ours(&word)) {
        return None;
    }
    Some(
        words
            .first()
            .map(name)
            .or_else(|| process.stat().ok().map(|stat| stat.comm))
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn own_listener_is_found_but_is_not_a_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sockets = listeners(&[address], address.port()).unwrap();
        assert_eq!(sockets.len(), 1);
        let found = owner(|_, inode| sockets.contains(&inode));
        assert!(matches!(found, Err(NotVisible::NoServer(_))));
        drop(listener);
        assert_eq!(
            listeners(&[address], address.port()),
            Err(NotVisible::Hidden)
        );
    }

    #[test]
    fn unix_socket_is_found_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let (bound, link) = (folder.path().join("s.sock"), folder.path().join("l"));
        let _listener = UnixListener::bind(&bound).unwrap();
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        let this = Process::myself().unwrap();
        for path in [&bound, &link.join("s.sock")] {
            assert!(
                unix_sockets(path)
                    .unwrap()
                    .into_values()
                    .any(|found| found == bound)
            );
            assert!(is_file_of(&this, &bound, path));
        }
        assert!(!is_file_of(&this, &bound, &link));
    }

    #[test]
    fn remote_address_is_not_local() {
        // Reserved for documentation (RFC 5737).
        let address = "192.0.2.7:3306".parse().unwrap();
        assert_eq!(listeners(&[address], 3306), Err(NotVisible::Elsewhere));
    }

    #[test]
    fn ipv4_and_mapped_ipv6_addresses_are_equal() {
        assert!(same(
            "::ffff:127.0.0.1".parse().unwrap(),
            "127.0.0.1".parse().unwrap()
        ));
        assert!(!same("::1".parse().unwrap(), "127.0.0.1".parse().unwrap()));
    }
}
