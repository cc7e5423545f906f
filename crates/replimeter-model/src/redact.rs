//! Redaction of texts that could contain a password.
//!
//! Only the last `@` of a URL marks the end of its password: with an unencoded `/`, `?` or
//! `#` in it, a parser takes the rest for a path or parameters.

use crate::engine::EXAMPLE_URL;

/// Replaces what is not shown.
pub(crate) const HIDDEN: &str = "…";

/// Returns what may be shown of a text given as a server's URL: the host and port behind
/// its last `@`, and neither user and password nor path and parameters.
#[must_use]
pub fn url(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("{HIDDEN}@{}", address(rest)),
        None => match text.split_once("://") {
            Some((scheme, rest)) => format!("{scheme}://{}", address(rest)),
            None => address(text),
        },
    }
}

/// Returns host and port at the beginning of a text; something else behind the colon may be a
/// password whose host was forgotten.
fn address(text: &str) -> String {
    let text = &text[..text.find(['/', '?', '#']).unwrap_or(text.len())];
    // An IPv6 address stands in brackets.
    let host = text.find(']').map_or_else(
        || text.find(':').unwrap_or(text.len()),
        |bracket| bracket + 1,
    );
    match text[host..].strip_prefix(':') {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => text.to_owned(),
        Some(_) => format!("{}:{HIDDEN}", &text[..host]),
        None => text[..host].to_owned(),
    }
}

/// Redacts a message that may repeat URLs, such as one given in place of a file name: removes
/// what lies between a scheme and the last `@` of the line, if it can hold a password.
#[must_use]
pub fn message(text: &str) -> String {
    let line = |line: &str| {
        // The example in Replimeter's own messages contains no password, though it has an `@`.
        let (line, example) = match line.find(EXAMPLE_URL) {
            Some(at) if line[at + EXAMPLE_URL.len()..].rfind('@').is_none() => line.split_at(at),
            _ => (line, ""),
        };
        let credentials = line.find(":/").and_then(|colon| {
            // A path may have lost one of its slashes.
            let start = line.len() - line[colon + 1..].trim_start_matches('/').len();
            let end = start + line[start..].rfind('@')?;
            line[start..end].contains(':').then_some((start, end))
        });
        let shown = credentials.map_or_else(
            || line.to_owned(),
            |(start, end)| format!("{}{HIDDEN}{}", &line[..start], &line[end..]),
        );
        shown + example
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Redacts a message of serde, which repeats values that are not as expected, also
/// those of a URL without its scheme.
#[must_use]
pub fn serde_message(text: &str) -> String {
    const REPEATING: [&str; 4] = [
        "invalid type: string ",
        "invalid value: string ",
        "unknown field ",
        "unknown variant ",
    ];
    let beginning = REPEATING
        .into_iter()
        .find(|beginning| text.starts_with(beginning));
    match beginning.zip(text.rfind('@')) {
        // Its quotation mark is one byte.
        Some((beginning, at)) if at > beginning.len() => {
            format!("{}{HIDDEN}{}", &text[..=beginning.len()], &text[at..])
        }
        _ => message(text),
    }
}

/// Returns whether a part of a file must not be shown, since it could contain a password.
#[must_use]
pub fn may_hold_password(piece: &str) -> bool {
    ["://", "@", "password"]
        .into_iter()
        .any(|sign| piece.contains(sign))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::target::{Endpoint, EndpointError};

    #[test]
    fn url_shows_only_the_host_after_its_last_at() {
        for (text, want) in [
            ("mysql://dba:12/secret@h/", "…@h"),
            ("mysql://dba:12?secret@h:3307/shop?ssl-mode=x", "…@h:3307"),
            ("mysql://dba:secret@@h:x/", "…@h:…"),
            ("mysql://d/ba:secret@[::1]:3306/", "…@[::1]:3306"),
            ("mysql://dba:secret@[::1]/", "…@[::1]"),
            ("mysql://dba:secret@/", "…@"),
            ("dba:secret@h", "…@h"),
            ("mysql:dba:secret@h", "…@h"),
            ("mysql://h:99999/?password=secret", "mysql://h:99999"),
            // The host was forgotten.
            ("mysql://dba:secret", "mysql://dba:…"),
            ("dba:secret", "dba:…"),
            ("localhost", "localhost"),
            ("", ""),
        ] {
            assert_eq!(url(text), want, "{text}");
        }
    }

    #[test]
    fn possible_passwords_are_hidden_in_messages() {
        for (text, want) in [
            (
                "cannot read mysql://u:12/secret@h/: no",
                "cannot read mysql://…@h/: no",
            ),
            (
                "cannot read mysql:/u:12/secret@h/: no",
                "cannot read mysql:/…@h/: no",
            ),
            (
                "first\nx://u:a@b c://u:secret@h\nlast",
                "first\nx://…@h\nlast",
            ),
            (
                "write mysql://user@host:3306/",
                "write mysql://user@host:3306/",
            ),
            (
                "`mysql://a:99999/` is none; write mysql://user@host:3306/",
                "`mysql://a:99999/` is none; write mysql://user@host:3306/",
            ),
            (
                "mysql://u:1/2; write mysql://user@host:3306/3@h",
                "mysql://…@h",
            ),
            ("denied for 'u'@'h' (h:3306)", "denied for 'u'@'h' (h:3306)"),
        ] {
            assert_eq!(message(text), want);
        }
    }

    #[test]
    fn serde_message_hides_the_repeated_value() {
        for (text, want) in [
            (
                "invalid type: string \"dba:secret@h\", expected a sequence",
                "invalid type: string \"…@h\", expected a sequence",
            ),
            (
                "unknown field `secret@h`, expected `url`",
                "unknown field `…@h`, expected `url`",
            ),
            (
                "`insert@primary` is not a load",
                "`insert@primary` is not a load",
            ),
            (
                "`mysql://u:secret@h` is no shape",
                "`mysql://…@h` is no shape",
            ),
        ] {
            assert_eq!(serde_message(text), want);
        }
    }

    /// No four characters in a row of a password occur in what is shown outside of `harmless`.
    fn assert_hidden(shown: &str, password: &str, harmless: &str) {
        let letters: Vec<char> = password.chars().collect();
        for piece in letters
            .windows(4)
            .map(|window| window.iter().collect::<String>())
        {
            assert!(
                !shown.contains(&piece) || harmless.contains(&piece),
                "{piece:?} of {password:?} in {shown:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_part_of_a_password_is_shown(
            user in "[^\\x00]{0,8}",
            password in "[^\\x00]{0,40}|[/?#@:%a-z1-9\\[\\]]{4,40}",
            host in "[a-z]{1,9}(\\.[a-z]{1,9})?(:[0-9]{1,5})?|\\[::1\\]",
            slash in "/?",
        ) {
            let text = format!("mysql://{user}:{password}@{host}{slash}");
            let shown = url(&text);
            assert_eq!(shown, format!("{HIDDEN}@{host}"));
            assert_hidden(shown.trim_start_matches(HIDDEN), &password, &format!("@{host}"));
            match Endpoint::parse(&text) {
                Ok((endpoint, _)) => assert!(host.trim_start_matches('[').starts_with(&endpoint.host), "{endpoint:?}"),
                Err(
                    EndpointError::Syntax { url, .. }
                    | EndpointError::Encoding(url)
                    | EndpointError::Unencoded(url),
                ) => assert_eq!(url, shown),
                Err(error) => panic!("{error}"),
            }
        }

        #[test]
        fn no_part_of_a_password_stays_in_a_message(password in "[^\\x00\\n]{0,40}") {
            assert_eq!(message(&format!("not mysql://u:{password}@h!")), format!("not mysql://{HIDDEN}@h!"));
        }
    }
}
