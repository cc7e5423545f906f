//! Values of the settings of `lag`.

use std::{fmt, str::FromStr};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use replimeter_model::{one_of, serde_as_text, suggest, time_span::TimeSpan};

one_of! {
    /// How the moment of visibility is observed.
    #[derive(Default)]
    pub enum Method {
        /// Reads in a tight loop
        #[default]
        Poll = "poll",
        /// Waiting in the replica for the transaction's GTID
        Wait = "wait",
        /// The time at which the statement ran, on the primary and again on the replica, by the server's `SYSDATE(6)`
        Stamp = "stamp",
        /// The same by Replimeter's function `NOW_USEC()`, where it is installed
        StampUdf = "stamp-udf",
        /// Following the binary logs of both
        Tap = "tap",
    }
}

impl Method {
    /// Returns whether it compares the times at which a statement ran.
    #[must_use]
    pub fn stamps(self) -> bool {
        matches!(self, Self::Stamp | Self::StampUdf)
    }
}

one_of! {
    /// Place where the stamps of both servers are joined.
    pub enum StampJoin {
        /// In Replimeter
        Client = "client",
        /// In the replica
        Federated = "federated",
    }
}

/// Methods that observe each row; written `all`, or names with commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Methods {
    /// All that the servers permit; a warning names the others.
    All,
    /// These; one that the servers do not permit is an error. Sorted, never empty.
    Named(Vec<Method>),
}

impl Default for Methods {
    fn default() -> Self {
        Self::Named(vec![Method::Poll])
    }
}

impl Methods {
    /// Returns the methods to try.
    #[must_use]
    pub fn wanted(&self) -> Vec<Method> {
        match self {
            Self::All => Method::ALL.to_vec(),
            Self::Named(methods) => methods.clone(),
        }
    }
}

impl FromStr for Methods {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let mut methods = Vec::new();
        for name in text.split(',').map(str::trim) {
            let method = Method::named(name).ok_or_else(|| {
                let nearest = suggest::hint(name, Method::ALL.map(Method::name).into_iter().chain(["all"]));
                format!("unknown method `{name}`{nearest}; known: poll, wait, stamp, stamp-udf, tap, several with commas, or all")
            })?;
            if methods.contains(&method) {
                return Err(format!("the method `{name}` is given twice"));
            }
            methods.push(method);
        }
        methods.sort_unstable();
        Ok(Self::Named(methods))
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Named(methods) => f.write_str(
                &methods
                    .iter()
                    .map(|method| method.name())
                    .collect::<Vec<_>>()
                    .join(","),
            ),
        }
    }
}

serde_as_text!(
    Methods,
    "description": "Ways of observing, with commas between them, or all",
    "pattern": "^ *(all|(poll|wait|stamp|stamp-udf|tap)( *, *(poll|wait|stamp|stamp-udf|tap))*) *$",
    "examples": ["poll", "wait", "stamp", "stamp-udf", "tap", "poll,tap", "all"]
);

/// Event that starts the next write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The next scheduled time (open loop: a slow round does not move the next).
    Interval(TimeSpan),
    /// Visibility of the previous row on every replica.
    Visible,
    /// The previous write's acknowledgement.
    Ack,
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "visible" => Ok(Self::Visible),
            "ack" => Ok(Self::Ack),
            _ => {
                let interval = text.strip_prefix("interval ").ok_or_else(|| {
                    format!(
                        "unknown pace `{text}`{}; known: visible, ack, `interval 10ms`",
                        suggest::hint(text, ["visible", "ack"])
                    )
                })?;
                let span: TimeSpan = interval.parse().map_err(
                    |error: replimeter_model::time_span::TimeSpanError| error.to_string(),
                )?;
                if span.0.is_zero() {
                    return Err("interval must be above 0; to write without a pause use the pace `visible` or `ack`".to_owned());
                }
                Ok(Self::Interval(span))
            }
        }
    }
}

impl Pace {
    /// Parses paces other than a schedule, which has its own option.
    pub(super) fn closed() -> impl TypedValueParser<Value = Self> {
        PossibleValuesParser::new([
            PossibleValue::new("visible").help("The previous row is visible on every replica"),
            PossibleValue::new("ack").help("The previous write is acknowledged"),
        ])
        .try_map(|text| text.parse::<Self>())
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval(span) => write!(f, "interval {span}"),
            Self::Visible => f.write_str("visible"),
            Self::Ack => f.write_str("ack"),
        }
    }
}

serde_as_text!(
    Pace,
    "description": "When the next row is written: once per interval, when the last one was acknowledged (ack), or when it was visible everywhere (visible)",
    "pattern": "^(ack|visible|interval [0-9].*)$",
    "examples": ["interval 10ms", "ack", "visible"]
);
