//! `NOW_USEC()` and `NOW_NSEC()` for MariaDB and MySQL: the server's calendar clock at the moment
//! of the call.
//!
//! `NOW_USEC()` returns a text of 26 characters, `YYYY-MM-DD HH:MM:SS.uuuuuu`, in UTC regardless of
//! the session's time zone; `NOW_NSEC()` returns an INTEGER, nanoseconds since 1970. Neither is
//! treated as a constant: each call reads the clock, for each row, and again on a replica when the
//! statement is replicated. The library runs inside the server, so it never panics or waits.
#![allow(
    unsafe_code,
    reason = "the macro of crate `udf` writes the functions that the server calls by C's conventions; it wraps the safe ones below"
)]
#![allow(
    missing_docs,
    unreachable_pub,
    reason = "the same functions: the server prescribes their names"
)]

mod text;

use std::{
    num::NonZeroU8,
    time::{SystemTime, UNIX_EPOCH},
};

use udf::{register, ArgList, BasicUdf, Init, Process, ProcessError, UdfCfg};

use crate::text::{write, LENGTH};

/// Returns nanoseconds since 1970; valid until 2262. A clock before 1970 returns 0.
fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Declares both functions' properties to the server.
fn declare(cfg: &UdfCfg<Init>, args: &ArgList<'_, Init>, name: &str) -> Result<(), String> {
    if !args.is_empty() {
        return Err(format!(
            "{name}() takes no arguments: it reads the server's clock"
        ));
    }
    // The server treats a function without arguments as a constant unless told otherwise.
    cfg.set_is_const(false);
    cfg.set_maybe_null(false);
    Ok(())
}

/// `NOW_USEC()`.
struct NowUsec {
    text: [u8; LENGTH],
}

#[register(name = "now_usec")]
impl BasicUdf for NowUsec {
    type Returns<'a> = &'a [u8];

    fn init(cfg: &UdfCfg<Init>, args: &ArgList<'_, Init>) -> Result<Self, String> {
        declare(cfg, args, "NOW_USEC")?;
        cfg.set_max_len(LENGTH as u64);
        Ok(Self {
            text: [b'0'; LENGTH],
        })
    }

    fn process<'a>(
        &'a mut self,
        _cfg: &UdfCfg<Process>,
        _args: &ArgList<'_, Process>,
        _error: Option<NonZeroU8>,
    ) -> Result<&'a [u8], ProcessError> {
        write(now_ns() / 1_000, &mut self.text);
        Ok(&self.text)
    }
}

/// `NOW_NSEC()`.
struct NowNsec;

#[register(name = "now_nsec")]
impl BasicUdf for NowNsec {
    type Returns<'a> = i64;

    fn init(cfg: &UdfCfg<Init>, args: &ArgList<'_, Init>) -> Result<Self, String> {
        declare(cfg, args, "NOW_NSEC").map(|()| Self)
    }

    fn process(
        &mut self,
        _cfg: &UdfCfg<Process>,
        _args: &ArgList<'_, Process>,
        _error: Option<NonZeroU8>,
    ) -> Result<i64, ProcessError> {
        Ok(now_ns())
    }
}
