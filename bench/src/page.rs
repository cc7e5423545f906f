//! The page of a run of a million samples: rendered, and opened.

use std::{fs, path::Path, process::Command};

use replimeter_suites::{Tool, browser};

use crate::{line, spread, watched};

/// Rounds of the run, and so samples.
const ROUNDS: &str = "1000000";
/// Repetitions.
const TIMES: usize = 5;

pub(crate) fn page() {
    let tool = Tool::new();
    // Servers without flushes, so that a million rounds take some minutes.
    let fast = ["innodb_flush_log_at_trx_commit=0", "sync_binlog=0"];
    let mut args = vec!["lag", "--sandbox", "mariadb/async:1", "--pace", "visible", "--rounds", ROUNDS, "--floor-rounds", "0"];
    args.extend(fast.iter().flat_map(|option| ["--server-option", option]));
    args.extend(["--run-dir", "run", "--silent"]);
    let measured = watched(&tool, &args).1;
    let (mut took, mut memory, mut opened) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let (seconds, peak) = watched(&tool, &["report", "run"]);
        took.push(seconds);
        memory.push(peak);
        opened.push(opening(&tool.folder().join("run/report.html"), tool.folder()));
    }
    let size = fs::metadata(tool.folder().join("run/report.html")).expect("a page").len();
    line("page: rendering a run of 1,000,000 samples again (s)", spread(took).1, "≤ 2");
    line("page: memory of that at most (MiB)", spread(memory).1, "≤ 190");
    line("page: memory of the run itself at most (MiB)", format!("{measured:.1}"), "");
    line("page: size (MB)", format!("{:.2}", size as f64 / 1e6), "≤ 6");
    line("page: from opening to drawn in Chromium (s)", spread(opened).1, "≤ 1");
}

/// Seconds from the navigation until the page has drawn its pictures.
fn opening(page: &Path, folder: &Path) -> f64 {
    let text = fs::read_to_string(page).expect("a page");
    // Behind the page's own script: two frames later what it drew is on the screen.
    let timed = "<script>addEventListener('load', () => requestAnimationFrame(() => requestAnimationFrame(() => \
                 document.body.setAttribute('data-opened', performance.now()))));</script></body>";
    let copy = folder.join("timed.html");
    fs::write(&copy, text.replace("</body>", timed)).expect("it writes");
    let profile = tempfile::tempdir_in(folder).expect("a folder");
    let output = Command::new(browser())
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--timeout=20000"])
        .args(["--window-size=1200,2400", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", copy.display()))
        .output()
        .expect("Chromium runs");
    let dom = String::from_utf8_lossy(&output.stdout);
    let millis = dom.split("data-opened=\"").nth(1).and_then(|rest| rest.split('"').next()?.parse::<f64>().ok());
    millis.expect("the page was drawn") / 1e3
}
