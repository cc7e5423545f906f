//! The text of metrics: which of two formats a client takes, and the older one from the newer.

/// The type of OpenMetrics' text format.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type of Prometheus' text format.
pub(super) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns whether a client that accepts these types takes OpenMetrics, and prefers no other format.
pub(super) fn takes_open_metrics(accept: &str) -> bool {
    let (mut open, mut plain) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut version, mut quality) = (None, 1.0);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => version = Some(value.trim().trim_matches('"')),
                // What is no number asks for nothing.
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                _ => {}
            }
        }
        let (best, own) = match kind.as_str() {
            "application/openmetrics-text" => (&mut open, "1.0.0"),
            "text/plain" => (&mut plain, "0.0.4"),
            _ => continue,
        };
        if version.is_none_or(|version| version == own) {
            *best = f64::max(*best, quality);
        }
    }
    open > 0.0 && open >= plain
}

/// Returns an exposition of OpenMetrics, without timestamps and exemplars, in Prometheus' text format: counters and infos
/// are named as their samples, other types have other names, and there are no units and no end.
pub(super) fn prometheus_text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    // The family of the lines that follow, and how the names of its samples end.
    let (mut family, mut ending) = ("", "");
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (keyword, name, rest) = (words.next(), words.next(), words.next());
        let (Some(keyword), Some(name)) = (keyword, name) else {
            continue;
        };
        let rest = rest.unwrap_or_default();
        match keyword {
            "TYPE" => {
                let kind;
                (kind, ending) = match rest {
                    "counter" => ("counter", "_total"),
                    "info" => ("gauge", "_info"),
                    "stateset" => ("gauge", ""),
                    "unknown" => ("untyped", ""),
                    "gaugehistogram" => ("histogram", ""),
                    other => (other, ""),
                };
                family = name;
                out.push_str(&format!("# TYPE {name}{ending} {kind}\n"));
            }
            "HELP" => {
                let ending = if name == family { ending } else { "" };
                // A quotation mark has no backslash here.
                let help = rest.replace("\\\"", "\"");
                out.push_str(&format!("# HELP {name}{ending} {help}\n"));
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn formats_are_negotiated() {
        for open in [
            "application/openmetrics-text",
            "Application/OpenMetrics-Text; version=1.0.0; charset=utf-8",
            "text/plain;q=0.5, application/openmetrics-text;q=0.5",
            // Prometheus 2 and 3.
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
        ] {
            assert!(takes_open_metrics(open), "{open}");
        }
        for plain in [
            "",
            "*/*",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
            "application/openmetrics-text;q=NaN",
            "text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5",
        ] {
            assert!(!takes_open_metrics(plain), "{plain}");
        }
    }

    #[test]
    fn open_metrics_become_prometheus_text() {
        let open = r##"# TYPE lag_seconds gauge
# UNIT lag_seconds seconds
# HELP lag_seconds Upper end of the \"lag\" of C:\\ and\nmore.
lag_seconds{server="a b\"#"} +Inf
lag_seconds{server="b"} NaN
# TYPE polls counter
# HELP polls Polls.
polls_total{server="b"} 17
# HELP other Before its type.
# TYPE other unknown
other 1
# TYPE build info
build_info{version="1"} 1
# TYPE state stateset
state{state="idle"} 1
# TYPE span histogram
span_bucket{le="+Inf"} 1
# EOF
"##;
        let plain = r##"# TYPE lag_seconds gauge
# HELP lag_seconds Upper end of the "lag" of C:\\ and\nmore.
lag_seconds{server="a b\"#"} +Inf
lag_seconds{server="b"} NaN
# TYPE polls_total counter
# HELP polls_total Polls.
polls_total{server="b"} 17
# HELP other Before its type.
# TYPE other untyped
other 1
# TYPE build_info gauge
build_info{version="1"} 1
# TYPE state gauge
state{state="idle"} 1
# TYPE span histogram
span_bucket{le="+Inf"} 1
"##;
        assert_eq!(prometheus_text(open), plain);
        assert_eq!(prometheus_text("# EOF\n"), "");
    }

    proptest! {
        #[test]
        fn no_accept_panics(accept in "(application/openmetrics-text|text/plain|[;,=q ]|\\PC){0,20}") {
            takes_open_metrics(&accept);
        }
    }
}
