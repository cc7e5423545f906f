//! The method `stamp` of MariaDB and MySQL: statements that replicas execute again, and the clocks that stamp their rows.

use replimeter_model::{engine::Engine, replication::Mode};

use super::{
    applier_user::requires_rows, settings::sysdate_is_now, stages::days,
    statements::restricted_variables_privilege,
};
use crate::{ErrorClass, ErrorKind, ServerError, Session, facts::ServerFacts};

/// Operation of its errors.
pub const OPERATION: &str = "cannot measure by `stamp`";
/// The hint when no clock stamps rows on all servers.
pub const NO_CLOCK_HINT: &str = "start the servers without sysdate_is_now, or install NOW_USEC() on all of them, the primary last: CREATE FUNCTION now_usec RETURNS STRING SONAME 'libreplimeter_udf.so'";
/// The hint when rows arrive with the primary's own stamps.
pub const SHIPPED_HINT: &str = "check for a server in between that logs rows, or for binlog_format=ROW on the primary; or use --method poll, wait or tap";
/// Maximum difference between `NOW_USEC()` and `SYSDATE(6)` for the same clock in the same zone.
const SAME_CLOCK_US: i64 = 10_000_000;

/// Checks that the writer of servers in this mode can replicate statements.
///
/// # Errors
/// When it replicates rows only, or logs nothing.
pub fn check_writer(session: &Session, facts: &ServerFacts, mode: Mode) -> Result<(), ServerError> {
    match mode {
        Mode::Group => Err(session.precondition(
            OPERATION,
            "Group Replication refuses binlog_format=STATEMENT (error 3098) and replicates rows, so members have the writer's stamps and none of their own",
            "use --method poll, wait or tap",
        )),
        Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain if !facts.on("log_bin") => {
            Err(session.precondition(
                OPERATION,
                "its binary log is off (log_bin=OFF)",
                "enable the binary log",
            ))
        }
        _ => Ok(()),
    }
}

/// Makes the replicas execute the session's statements again. The schema `replimeter` becomes its
/// default if it exists, since filters judge a statement by the default schema.
///
/// # Errors
/// When the server does not let the session change its format, with the reason.
pub fn prepare(writer: &mut Session, facts: &ServerFacts) -> Result<(), ServerError> {
    if !facts.variables.contains_key("binlog_format") {
        return Err(writer.precondition(
            OPERATION,
            format!(
                "{} {} has no binlog_format: it replicates rows only, with the primary's stamps in them",
                facts.engine.product(),
                facts.version
            ),
            "use --method poll, wait or tap",
        ));
    }
    // Every session of Replimeter has UTC, as which stamps are read, and REPEATABLE READ: InnoDB refuses logged statements under
    // READ COMMITTED (error 1665).
    match writer.run(OPERATION, "SET SESSION binlog_format = STATEMENT") {
        Ok(()) => {}
        // The session may already have the format.
        Err(_) if statement_format(writer)? => {}
        Err(error) if error.kind == ErrorKind::Privilege => {
            let stays = facts.get("binlog_format");
            return Err(ServerError {
                cause: format!(
                    "the session's format stays {stays}, which replicates the row with the primary's stamp: {}",
                    error.cause
                ),
                hint: format!(
                    "GRANT {} ON *.* to the user, or use --method poll, wait or tap",
                    restricted_variables_privilege(facts.engine, &facts.version)
                ),
                ..error
            });
        }
        Err(error) => return Err(error),
    }
    match writer.run(OPERATION, "USE `replimeter`") {
        Err(error)
            if error.class() == Some(ErrorClass::NoSchema)
                || error.kind == ErrorKind::Privilege =>
        {
            Ok(())
        }
        other => other,
    }
}

fn statement_format(session: &mut Session) -> Result<bool, ServerError> {
    Ok(session
        .value(OPERATION, "SELECT @@SESSION.binlog_format")?
        .as_deref()
        == Some("STATEMENT"))
}

/// Checks that a server passes on statements to another one, `behind` it.
///
/// # Errors
/// When it logs rows: the server behind it would have its stamps.
pub fn check_between(
    session: &Session,
    facts: &ServerFacts,
    behind: &str,
) -> Result<(), ServerError> {
    let format = facts.get("binlog_format");
    if format == "STATEMENT" {
        return Ok(());
    }
    Err(session.precondition(
        OPERATION,
        format!(
            "{behind} replicates from it, and its binlog_format is {format}: it passes on rows with its own stamps"
        ),
        match facts.engine {
            Engine::MariaDb => {
                "SET GLOBAL binlog_format=STATEMENT there and restart its applier (a sandbox: --server-option replicas:binlog_format=STATEMENT), or leave out the servers that replicate from it"
            }
            // A MySQL replica that logs statements stops at the first row (error 1666).
            Engine::MySql => {
                "leave out the servers that replicate from it, or, if nothing writes rows, set binlog_format=STATEMENT on every server (a sandbox: --server-option binlog_format=STATEMENT)"
            }
        },
    ))
}

/// Checks that a replica's channel does not stop at a statement.
///
/// # Errors
/// When it does, or the user may not read whether it does.
pub fn check_channel(
    session: &mut Session,
    engine: Engine,
    channel: &str,
) -> Result<(), ServerError> {
    let cause = match requires_rows(engine, session, channel) {
        Ok(false) => return Ok(()),
        Ok(true) => {
            "its replication takes rows only (REQUIRE_ROW_FORMAT=1) and stops at a statement"
                .to_owned()
        }
        Err(error) if error.kind == ErrorKind::Privilege => format!(
            "whether its replication takes rows only (REQUIRE_ROW_FORMAT) could not be read: {}",
            error.cause
        ),
        Err(error) => return Err(error),
    };
    Err(session.precondition(
        OPERATION,
        cause,
        "use --method poll, wait or tap; or set REQUIRE_ROW_FORMAT=0 there with CHANGE REPLICATION SOURCE TO, where the user may read performance_schema.replication_applier_configuration",
    ))
}

/// Returns why `SYSDATE()` returns no current time there.
///
/// # Errors
/// When the connection breaks.
pub fn lacks_sysdate(session: &mut Session) -> Result<Option<String>, ServerError> {
    let words = "it runs with sysdate_is_now: SYSDATE() is the start of the statement, on a replica the primary's";
    Ok(sysdate_is_now(session)?.then(|| words.to_owned()))
}

/// Returns why `NOW_USEC()` returns no stamp there.
///
/// # Errors
/// When the connection breaks.
pub fn lacks_udf(session: &mut Session) -> Result<Option<String>, ServerError> {
    let sysdate = format!("SELECT CONCAT(NOW_USEC(), ' ', {})", micros("SYSDATE(6)"));
    let text = match session.value(OPERATION, &sysdate) {
        Ok(text) => text.unwrap_or_default(),
        Err(error) if error.is_refusal() => {
            return Ok(Some("it has no function NOW_USEC()".to_owned()));
        }
        Err(error) => return Err(error),
    };
    let read = text
        .rsplit_once(' ')
        .and_then(|(udf, sysdate)| Some((udf_micros(udf)?, sysdate.parse::<i64>().ok()?)));
    Ok(match read {
        Some((udf, sysdate)) if (udf - sysdate).abs() < SAME_CLOCK_US => None,
        Some((udf, sysdate)) => Some(format!(
            "its NOW_USEC() is {} s away from UTC: it comes from another library",
            (udf - sysdate) / 1_000_000
        )),
        None => Some(format!(
            "its NOW_USEC() comes from another library: `{text}`"
        )),
    })
}

/// Returns an expression for the microseconds since 1970 of a DATETIME in UTC, regardless of the
/// session's zone.
#[must_use]
pub fn micros(datetime: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', {datetime})")
}

/// Returns the microseconds since 1970 of a result of `NOW_USEC()`, `YYYY-MM-DD HH:MM:SS.uuuuuu` in
/// UTC.
#[must_use]
pub fn udf_micros(text: &str) -> Option<i64> {
    let bytes: &[u8; 26] = text.as_bytes().try_into().ok()?;
    let digits = |from: usize, to: usize| {
        bytes[from..to].iter().try_fold(0i64, |number, byte| {
            byte.is_ascii_digit()
                .then(|| number * 10 + i64::from(byte - b'0'))
        })
    };
    let separators = [
        (4, b'-'),
        (7, b'-'),
        (10, b' '),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
    ];
    if separators
        .iter()
        .any(|(at, separator)| bytes[*at] != *separator)
    {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    let (hour, minute, second) = (digits(11, 13)?, digits(14, 16)?, digits(17, 19)?);
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000 + digits(20, 26)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn udf_result_is_read_exactly() {
        assert_eq!(udf_micros("1970-01-01 00:00:00.000001"), Some(1));
        assert_eq!(
            udf_micros("2000-02-29 23:59:59.999999"),
            Some(951_868_799_999_999)
        );
        assert_eq!(
            udf_micros("2026-11-21 13:04:47.262399"),
            Some(1_795_266_287_262_399)
        );
        for text in [
            "",
            "2026-11-21 13:04:47",
            "2026-11-21T13:04:47.262399",
            "2026-13-21 13:04:47.262399",
            "2026-11-21 24:04:47.262399",
            "2026-11-21 13:04:47.26239x",
            "2026-11-21 13:04:47.2623990",
        ] {
            assert_eq!(udf_micros(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn day_numbers_are_consecutive(days in -100_000i64..100_000) {
            // The inverse: civil_from_days of the same source.
            let shifted = days + 719_468;
            let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
            let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
            let of_year = of_era - (365 * year + year / 4 - year / 100);
            let month = (5 * of_year + 2) / 153;
            let day = of_year - (153 * month + 2) / 5 + 1;
            let month = if month < 10 { month + 3 } else { month - 9 };
            let year = year + era * 400 + i64::from(month <= 2);
            prop_assert_eq!(super::days(year, month, day), days);
        }

        #[test]
        fn no_text_panics(text in "[0-9:. -]{26}|\\PC{0,30}") {
            let _ = udf_micros(&text);
        }
    }
}
