//! The files that this process may open: what the servers, the run and the system need is kept, the rest is for visitors.

use std::{fs, io};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections with visitors of one site, at most.
pub(crate) const MAX_VISITORS: usize = 2000;
/// A site with fewer is not started.
const MIN_VISITORS: usize = 10;
/// Files for a short time: those of the run, names that are resolved, statements that are ended.
const OTHER_FILES: u64 = 64;

/// Returns the number of visitors' connections of each site, after the limit of open files was raised as far as they need it.
/// The connections to the servers are open, and so is all else that stays; `reserved` more files are opened later.
///
/// # Errors
/// When the limit leaves too few for visitors.
pub(crate) fn visitors(sites: usize, reserved: u32) -> io::Result<usize> {
    let open = fs::read_dir("/proc/self/fd")?.count() as u64;
    // A connection to a server can be opened again before the old one is closed.
    let kept = 2 * open + u64::from(reserved) + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    let needed = kept + (sites * MAX_VISITORS) as u64;
    let current = limit.maximum.map_or(needed, |most| most.min(needed));
    if limit.current.is_some_and(|now| now < current) {
        let current = Some(current);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit })?;
    }
    let limit = getrlimit(Resource::Nofile).current;
    share(limit, kept, sites).ok_or_else(|| {
        let least = kept + (sites * MIN_VISITORS) as u64;
        io::Error::other(format!(
            "this process may open {} files, and needs {least} at least",
            limit.unwrap_or_default()
        ))
    })
}

/// Returns each site's share of the files that are not kept.
fn share(limit: Option<u64>, kept: u64, sites: usize) -> Option<usize> {
    let free = limit.map_or(u64::MAX, |limit| limit.saturating_sub(kept));
    let free = usize::try_from(free).unwrap_or(usize::MAX);
    let share = (free / sites.max(1)).min(MAX_VISITORS);
    (share >= MIN_VISITORS).then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_get_what_is_not_kept() {
        assert_eq!(share(None, 200, 1), Some(2000));
        assert_eq!(share(Some(1_048_576), 200, 4), Some(2000));
        assert_eq!(share(Some(1024), 200, 1), Some(824));
        assert_eq!(share(Some(1024), 200, 4), Some(206));
        assert_eq!(share(Some(209), 200, 1), None);
        assert_eq!(share(Some(100), 200, 1), None);
    }

    #[test]
    fn limit_is_raised_for_visitors() {
        let most = getrlimit(Resource::Nofile).maximum;
        let visitors = visitors(1, 5).unwrap();
        let limit = getrlimit(Resource::Nofile).current;
        assert!((10..=2000).contains(&visitors), "{visitors}");
        let enough = |limit: u64| limit > 2000 + OTHER_FILES || most == Some(limit);
        assert!(limit.is_none_or(enough), "{limit:?} of {most:?}");
    }
}
