//! The page of a run of a million samples: time and memory to render it, time to open it.

use std::{fs, path::Path};

use replimeter_suites::{
    TestEnvironment, headless,
    synthetic::{SyntheticSamples, lag_run},
};

use crate::{TIMES, figure, line, watched};

/// Samples of the run.
const SAMPLES: i64 = 1_000_000;

/// Measures all rounds with `--long`, which takes about ten minutes; otherwise replaces the samples of a short run with synthetic ones.
pub(crate) fn page() {
    let tool = TestEnvironment::new();
    let long = std::env::args().any(|arg| arg == "--long");
    let rounds = if long { SAMPLES } else { 2_000 }.to_string();
    // Servers without flushes.
    let fast = ["innodb_flush_log_at_trx_commit=0", "sync_binlog=0"];
    let mut args = vec![
        "lag",
        "--sandbox",
        "mariadb/async:1",
        "--pace",
        "visible",
        "--rounds",
        &rounds,
        "--floor-rounds",
        "0",
    ];
    args.extend(fast.iter().flat_map(|option| ["--server-option", option]));
    args.extend(["--run-dir", "run"]);
    let measured = watched(&tool, &args).1;
    if long {
        line(
            "page: peak memory of the run of 1,000,000 rounds (MiB)",
            format!("{measured:.1}"),
            "",
        );
    } else {
        lag_run(
            &tool.folder().join("made-up"),
            SyntheticSamples {
                count: SAMPLES,
                warm_up: 0,
                correlation: 0.8,
                ..SyntheticSamples::default()
            },
        );
        fs::copy(
            tool.folder().join("made-up/samples.parquet"),
            tool.folder().join("run/samples.parquet"),
        )
        .expect("it copies");
    }
    let (mut took, mut memory, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let (seconds, peak) = watched(&tool, &["report", "run"]);
        took.push(seconds);
        memory.push(peak);
        opened.push(opening(
            &tool.folder().join("run/report.html"),
            tool.folder(),
        ));
    }
    let size = fs::metadata(tool.folder().join("run/report.html"))
        .expect("a page")
        .len();
    line(
        "page: rendering a run of 1,000,000 samples again (s)",
        figure(&took).1,
        "≤ 2",
    );
    line(
        "page: peak memory of rendering it (MiB)",
        figure(&memory).1,
        "≤ 190",
    );
    line(
        "page: size (MB)",
        format!("{:.2}", size as f64 / 1e6),
        "≤ 6",
    );
    line(
        "page: from opening to the first picture in Chromium (s)",
        figure(&opened).1,
        "≤ 1",
    );
}

/// Returns the seconds from the navigation until the page shows its first picture; the others follow one by one.
fn opening(page: &Path, folder: &Path) -> f64 {
    let text = fs::read_to_string(page).expect("a page");
    // After the page's script, which draws one picture before it ends; reading a height forces the layout.
    let timed = "<script>addEventListener('load', () => { document.body.offsetHeight; \
                 document.body.setAttribute('data-opened', performance.now()); });</script></body>";
    let copy = folder.join("timed.html");
    // The page's security policy allows no other script.
    let text = text.replace("Content-Security-Policy", "x-no-policy");
    fs::write(&copy, text.replace("</body>", timed)).expect("it writes");
    let profile = tempfile::tempdir_in(folder).expect("a folder");
    let output = headless(profile.path())
        .args(["--timeout=20000", "--window-size=1200,2400"])
        .arg(format!("file://{}", copy.display()))
        .output()
        .expect("Chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let millis = dom
        .split("data-opened=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next()?.parse::<f64>().ok());
    millis.expect("the page was drawn") / 1e3
}
