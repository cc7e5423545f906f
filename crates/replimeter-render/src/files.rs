//! Files of run directories. A directory can come from another user, and root writes into directories:
//! files are created only if their name is free, and opened only if they are regular.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{fs::OFlags, io::Errno};

/// Creates a file for this user only.
///
/// # Errors
/// If it cannot be created, or the name exists, even as a link.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Opens a regular file of at most this many bytes.
///
/// # Errors
/// If it cannot be read, is larger, or is something else, such as a link or a pipe: neither is followed nor waited for.
pub fn open_regular(path: &Path, most: u64) -> io::Result<File> {
    let refuse = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return refuse("it is a link".to_owned());
        }
        opened => opened?,
    };
    let meta = file.metadata()?;
    match meta.len() {
        _ if !meta.is_file() => refuse("it is not a regular file".to_owned()),
        size if size > most => refuse(format!("it has {size} bytes, more than {most}")),
        _ => Ok(file),
    }
}

/// Reads a regular file of at most this many bytes, as text.
///
/// # Errors
/// As those of [`open_regular`], and if it is no text.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    // One that grows is cut.
    let mut file = open_regular(path, most)?.take(most);
    file.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn only_regular_files_of_a_bounded_size_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("regular"), "text").unwrap();
        symlink(path("regular"), path("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), 0o600.into()).unwrap();
        assert_eq!(read_text(&path("regular"), 4).unwrap(), "text");
        for (name, most, reason) in [
            ("regular", 3, "it has 4 bytes, more than 3"),
            ("link", 4, "it is a link"),
            ("pipe", 4, "it is not a regular file"),
            ("", 4096, "it is not a regular file"),
        ] {
            let error = read_text(&path(name), most).unwrap_err();
            assert_eq!(error.to_string(), reason, "{name}");
        }
    }
}
