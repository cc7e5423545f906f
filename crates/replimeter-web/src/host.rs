//! Names by which a server may be addressed.

use std::net::IpAddr;

/// Returns the name in a `Host`, without its port.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

/// Returns whether a request for this `Host` is answered: an address, `localhost` or a given name. The name of a domain
/// that was rebound to this machine is not among them, so a page elsewhere cannot use the server by its visitors.
pub(crate) fn is_allowed(host: &str, names: &[String]) -> bool {
    let name = without_port(host);
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|one| one.eq_ignore_ascii_case(name))
}

/// Returns whether a page of this `Origin` belongs to the site at `host`, ports included.
pub(crate) fn is_same_site(origin: &str, host: &str) -> bool {
    let (_, authority) = origin.split_once("://").unwrap_or_default();
    authority.eq_ignore_ascii_case(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_given_names_are_allowed() {
        let names = ["Blog.example".to_owned()];
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "10.0.0.7:1",
            "LOCALHOST:80",
            "blog.example:8080",
        ] {
            assert!(is_allowed(host, &names), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "127.0.0.1.evil.example:80",
            "[evil]",
            "localhost.evil",
        ] {
            assert!(!is_allowed(host, &names), "{host}");
        }
    }

    #[test]
    fn only_pages_of_the_same_host_and_port_may_post() {
        assert!(is_same_site("http://localhost:8080", "LocalHost:8080"));
        for origin in ["null", "http://localhost:81", "https://evil.example", ""] {
            assert!(!is_same_site(origin, "localhost:8080"), "{origin}");
        }
    }
}
