//! The unprivileged system user that servers run as when root starts them.

use std::{fs, io, os::unix::fs::lchown, path::Path};

/// A user to run servers as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemUser {
    /// The name.
    pub name: String,
    /// User and group to switch to; `None` for the current user.
    pub become_ids: Option<(u32, u32)>,
}

impl SystemUser {
    /// Returns the current user, unless that is root: then `mysql` if it exists, else `nobody`
    /// (both engines refuse to run as root).
    #[must_use]
    pub fn choose() -> Self {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::geteuid();
        if !uid.is_root() {
            let name = by_uid(&passwd, uid.as_raw()).unwrap_or_else(|| uid.as_raw().to_string());
            return Self {
                name,
                become_ids: None,
            };
        }
        let (name, ids) = ["mysql", "nobody"]
            .into_iter()
            .find_map(|name| Some((name, by_name(&passwd, name)?)))
            // The kernel's number for nobody, where the system has no such name.
            .unwrap_or(("65534", (65534, 65534)));
        Self {
            name: name.to_owned(),
            become_ids: Some(ids),
        }
    }

    /// Makes the user the owner of a file or folder; of a link itself, since the user may have put
    /// it there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn own(&self, path: &Path) -> io::Result<()> {
        match self.become_ids {
            Some((uid, gid)) => lchown(path, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Returns the first folder above `path`, or itself, that the user cannot enter; `None` when
    /// the user can reach `path`, or is the current user.
    #[must_use]
    pub fn blocked_at(&self, path: &Path) -> Option<std::path::PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        self.become_ids?;
        let mut ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.reverse();
        let closed = |folder: &&Path| {
            fs::metadata(folder)
                .is_ok_and(|meta| meta.is_dir() && meta.permissions().mode() & 0o001 == 0)
        };
        ancestors.into_iter().find(closed).map(Path::to_owned)
    }
}

fn fields(passwd: &str) -> impl Iterator<Item = (&str, u32, u32)> {
    passwd.lines().filter_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        Some((
            name,
            parts.nth(1)?.parse().ok()?,
            parts.next()?.parse().ok()?,
        ))
    })
}

fn by_name(passwd: &str, wanted: &str) -> Option<(u32, u32)> {
    fields(passwd)
        .find(|(name, uid, _)| *name == wanted && *uid != 0)
        .map(|(_, uid, gid)| (uid, gid))
}

fn by_uid(passwd: &str, wanted: u32) -> Option<String> {
    fields(passwd)
        .find(|(_, uid, _)| *uid == wanted)
        .map(|(name, ..)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nmysql:x:0:0:trap::\nnobody:x:65534:65533:n:/:/bin/false\nbroken\n";

    #[test]
    fn mysql_user_with_root_uid_is_refused() {
        assert_eq!(by_name(PASSWD, "mysql"), None);
        assert_eq!(by_name(PASSWD, "nobody"), Some((65534, 65533)));
        assert_eq!(by_uid(PASSWD, 65534).as_deref(), Some("nobody"));
    }
}
