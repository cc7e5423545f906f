//! Links between servers, and a network namespace for each member of a cluster. Members exchange
//! their addresses, so they would bypass a link in front of a port; in its own namespace a member
//! reaches nothing but the links.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
};

use replimeter_engine::namespace::Namespace;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::{Deserialize, Serialize};

use crate::link::{Link, LinkSettings};

/// The links between two servers, which are set, cut and healed together.
#[derive(Debug)]
pub(crate) struct ServerLinks {
    /// The two servers' names with a dash between.
    pub(crate) name: String,
    /// One for each port of each side.
    pub(crate) links: Vec<Link>,
}

impl ServerLinks {
    /// Returns its settings.
    pub(crate) fn settings(&self) -> LinkSettings {
        self.links.first().map(Link::settings).unwrap_or_default()
    }
}

/// A change of a replication link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkChange {
    /// Cuts it, or heals it.
    pub cut: Option<bool>,
    /// One-way delay in nanoseconds.
    pub delay_ns: Option<u64>,
    /// Jitter in nanoseconds.
    pub jitter_ns: Option<u64>,
    /// Bits per second; 0 for no limit.
    pub bandwidth_bits: Option<u64>,
}

/// State of a replication link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Its name.
    pub name: String,
    /// Whether it is cut.
    pub cut: bool,
    /// One-way delay in nanoseconds.
    pub delay_ns: u64,
    /// Jitter in nanoseconds.
    pub jitter_ns: u64,
    /// Bits per second, when limited.
    pub bandwidth_bits: Option<u64>,
    /// Bytes delivered, towards the source and from it.
    pub bytes: [u64; 2],
}

/// Creates a network namespace whose only interface is the loopback.
pub(crate) fn create() -> io::Result<Namespace> {
    // On a separate thread, which ends in its new namespace.
    let made = thread::spawn(|| -> io::Result<Namespace> {
        #[allow(
            unsafe_code,
            reason = "unsharing affects the calling thread alone, which ends at once"
        )]
        // SAFETY: no file descriptor table or memory is unshared.
        unsafe {
            unshare_unsafe(UnshareFlags::NEWNET)?;
        }
        raise_loopback()?;
        File::open("/proc/thread-self/ns/net").map(Namespace::of)
    });
    made.join().unwrap_or_else(|_| {
        Err(io::Error::other(
            "internal error: a thread ended unexpectedly",
        ))
    })
}

/// Brings up the loopback of the calling thread's namespace.
fn raise_loopback() -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    #[allow(unsafe_code, reason = "no library at hand sets an interface's flags")]
    // SAFETY: `request` is a whole, zeroed ifreq with a terminated name, and outlives the call.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Creates a link whose port is in one namespace (the caller's when `None`) and whose target is the
/// same port in another.
pub(crate) fn link(
    name: &str,
    from: Option<&Namespace>,
    to: &Namespace,
    port: u16,
    settings: LinkSettings,
) -> io::Result<Link> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = match from {
        Some(from) => from.run(bind)??,
        None => bind()?,
    };
    link_from(name, listener, Some(to.clone()), port, settings)
}

/// Creates a link from `listener` to a port of a namespace, the caller's when `None`.
pub(crate) fn link_from(
    name: &str,
    listener: TcpListener,
    to: Option<Namespace>,
    port: u16,
    settings: LinkSettings,
) -> io::Result<Link> {
    let connect = move || {
        let connect = || TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        match &to {
            Some(namespace) => namespace.run(connect)?,
            None => connect(),
        }
    };
    Link::start(name, listener, Box::new(connect), settings)
}
