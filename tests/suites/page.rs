//! The page in a real browser: charts are drawn and interactive, no requests, no
//! messages of the browser, hostile names have no effect.

use std::{fs, path::Path};

use replimeter_suites::{
    OpenPage, TestEnvironment, browser,
    harness::{Test, skip},
    net,
    synthetic::{SyntheticSamples, lag_run},
    test,
};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = &[
    test!(page_works_from_a_file_without_network).starts(3),
    test!(pages_of_load_cost_and_scale_work),
    test!(pages_of_stale_loss_and_calibrate_work),
    test!(pages_of_lag_backlog_and_tap_work),
    test!(pages_of_exposure_and_front_work),
    test!(pages_of_several_runs_work),
];

const NO_BROWSER: &str = "no Chromium on PATH; on Debian: apt-get install chromium";

/// Calls a function when a condition holds, or after a minute, so that the test shows what is missing.
const WHEN: &str = r#"
function when(condition, then, left) {
  if (left === undefined) { left = 1200; }
  if (condition() || left === 0) { then(); } else { setTimeout(when, 50, condition, then, left - 1); }
}
function all(what) { return Array.from(document.querySelectorAll(what)); }
"#;

/// Uses the page like a reader and records the results.
const ACT: &str = r#"
// The first picture is drawn, the others follow.
when(function () {
  return all(".picture").every(function (picture) { return drawn(picture) > 0; });
}, act);
function drawn(picture) {
  return picture.querySelectorAll(".point path, .points path, path.js-line").length;
}
function ranges(picture) { return picture.layout.xaxis.range.slice(); }
function visible(picture) {
  return picture.data.map(function (trace) { return trace.visible === undefined ? true : trace.visible; });
}
function act() {
  var found = { pictures: {} };
  function mouse(element, type, x, y) {
    element.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, view: window, clientX: x, clientY: y, button: 0, buttons: 1 }));
  }
  function differ(before, now) {
    return all(".picture").every(function (picture) {
      return JSON.stringify(found.pictures[picture.id][before]) !== JSON.stringify(now(picture));
    });
  }
  all(".picture").forEach(function (picture) {
    var id = picture.id;
    var note = found.pictures[id] = { svgs: picture.querySelectorAll("svg.main-svg").length, traces: picture.data.length };
    note.drawn = drawn(picture);
    var shown = picture.data.findIndex(function (trace) { return trace.visible !== "legendonly" && trace.x.length; });
    Plotly.Fx.hover(id, [{ curveNumber: shown, pointNumber: 0 }]);
    note.hover = picture.querySelectorAll(".hoverlayer .hovertext").length;
    note.hoverText = Array.from(picture.querySelectorAll(".hoverlayer .hovertext")).map(function (text) { return text.textContent; }).join(" ");
    note.before = ranges(picture);
    var drag = picture.querySelector(".nsewdrag").getBoundingClientRect();
    var y = drag.top + drag.height / 2;
    var area = picture.querySelector(".nsewdrag");
    mouse(area, "mousedown", drag.left + drag.width * 0.3, y);
    mouse(document, "mousemove", drag.left + drag.width * 0.5, y + 5);
    mouse(document, "mousemove", drag.left + drag.width * 0.6, y + 5);
    mouse(document, "mouseup", drag.left + drag.width * 0.6, y + 5);
  });
  when(function () { return differ("before", ranges); }, function () {
    all(".picture").forEach(function (picture) {
      var note = found.pictures[picture.id];
      note.after = ranges(picture);
      var toggle = picture.querySelector(".legendtoggle");
      note.legend = Boolean(toggle);
      note.visibleBefore = visible(picture);
      if (toggle) {
        mouse(toggle, "mousedown", 0, 0);
        mouse(toggle, "mouseup", 0, 0);
      }
    });
    when(function () { return differ("visibleBefore", visible); }, function () {
      all(".picture").forEach(function (picture) { found.pictures[picture.id].visibleAfter = visible(picture); });
      var colour = function () { return getComputedStyle(document.body).backgroundColor + " " + document.querySelector(".xtitle").style.fill; };
      found.light = colour();
      document.getElementById("theme").click();
      found.dark = colour();
      found.alerted = Boolean(window.hostile);
      document.body.setAttribute("data-found", JSON.stringify(found));
    });
  });
}
"#;

/// Opens a page of a file; its network, and messages of the browser, are recorded.
fn visit(browser: &mut OpenPage, page: &Path) {
    browser.visit(&format!("file://{}", page.display()));
}

/// Opens a browser that is as large as the pages.
fn large(tool: &TestEnvironment) -> OpenPage {
    let mut browser = OpenPage::empty(tool.folder());
    browser.resize(1200, 2400);
    browser
}

/// Returns the results that the script of the page records at its end.
fn found(browser: &mut OpenPage) -> Value {
    browser.await_text("document.body.hasAttribute('data-found')", "true");
    serde_json::from_str(&browser.text("document.body.getAttribute('data-found')")).unwrap()
}

/// Opens a page and runs a script of the test in it, which its security policy would not let it have.
fn visit_with(browser: &mut OpenPage, page: &Path, script: &str) {
    visit(browser, page);
    browser.run(&format!("{WHEN}{script}"));
}

fn page_works_from_a_file_without_network() {
    if browser().is_none() {
        return skip(NO_BROWSER);
    }
    let tool = TestEnvironment::new();
    let hostile = "<script>window.hostile=1</script><img src=x onerror='window.hostile=1'>\"'&";
    fs::write(
        tool.folder().join("plan.toml"),
        format!(
            "command = \"lag\"\ntitle = {hostile:?}\n[target]\nsandbox = \"async:2\"\nserver-options = [{option:?}]\n[lag]\nrow-sizes = \"1000..3000:1000\"\nrows-per-step = 40\nstep-pause = \"10ms\"\nsweeps = 2\ntimeout = \"60s\"\n",
            option = "general_log_file=</script><script>window.hostile=1</script>"
        ),
    )
    .unwrap();
    let _ = tool.run(&["run", "plan.toml"]).with_code(0);
    let page = tool.only_run().join("report.html");
    let mut browser = large(&tool);

    visit(&mut browser, &page);
    let drawn = "Array.from(document.querySelectorAll('.picture')).every(picture => picture.querySelector('svg.main-svg'))";
    browser.await_text(drawn, "true");
    let pictures = browser.text("document.querySelectorAll('.picture svg.main-svg').length");
    assert!(
        pictures.parse::<u64>().unwrap() >= 4,
        "pictures are drawn: {pictures}"
    );
    assert_eq!(browser.messages(), [""; 0]);
    assert_eq!(
        browser.requests(),
        [""; 0],
        "a page from a file makes no request"
    );
    // A page that makes a request shows that requests are detected.
    let control = tool.folder().join("control.html");
    fs::write(
        &control,
        "<!doctype html><img src='http://127.0.0.1:9/picture.png'>",
    )
    .unwrap();
    visit(&mut browser, &control);
    assert_eq!(browser.requests(), ["http://127.0.0.1:9/picture.png"]);

    // A script that is not the page's own does not run.
    let injected = tool.folder().join("injected.html");
    let text = fs::read_to_string(&page).unwrap();
    let end = "<script>window.hostile=1</script><p style='color:red'></p></body>";
    fs::write(&injected, text.replace("</body>", end)).unwrap();
    visit(&mut browser, &injected);
    assert_eq!(browser.text("window.hostile"), "undefined");
    let refused = browser.messages().iter();
    assert!(
        refused
            .filter(|text| text.contains("Content Security Policy"))
            .count()
            >= 2
    );

    visit_with(&mut browser, &page, ACT);
    let found = found(&mut browser);
    assert_eq!(browser.messages(), [""; 0]);
    assert_eq!(found["alerted"], false, "hostile names are inert");
    assert_ne!(
        found["light"], found["dark"],
        "the theme changes the page and its pictures"
    );
    let pictures = found["pictures"].as_object().unwrap();
    let names: Vec<&str> = pictures.keys().map(String::as_str).collect();
    assert_eq!(names, ["distribution", "quantiles", "course", "sizes"]);
    for (name, picture) in pictures {
        assert!(
            picture["svgs"].as_u64().unwrap() >= 2,
            "{name}: {picture:#}"
        );
        assert!(
            picture["drawn"].as_u64().unwrap() > 0,
            "{name}: {picture:#}"
        );
        assert!(
            picture["hover"].as_u64().unwrap() > 0,
            "{name} shows values: {picture:#}"
        );
        assert!(
            picture["hoverText"]
                .as_str()
                .unwrap()
                .contains(|character: char| character.is_ascii_digit()),
            "{name}: {picture:#}"
        );
        assert_ne!(
            picture["before"], picture["after"],
            "{name} zooms: {picture:#}"
        );
        assert_eq!(picture["legend"], true, "{name}: {picture:#}");
        assert_ne!(
            picture["visibleBefore"], picture["visibleAfter"],
            "{name}: a series goes off: {picture:#}"
        );
    }
}

/// What the page says of itself: its title, pictures that are drawn, and tables; what somebody could not
/// read, reach or understand; and what the edge of a sheet of paper would cut.
const INSPECT: &str = r#"
(function () {
  function drawn(picture) {
    return picture.querySelectorAll(
      ".point path, .points path, path.js-line, path.js-fill, .heatmaplayer image, .errorbar path").length;
  }
  // Counters that stayed 0 are in the table only.
  function complete() {
    return all(".picture").every(function (picture) { return drawn(picture) > 0 || picture.id === "counters"; });
  }
  function cut() {
    var edge = document.body.getBoundingClientRect().right + 1;
    return all("table, pre, figure, p, .picture").filter(function (part) {
      return part.getClientRects().length && part.getBoundingClientRect().right > edge;
    }).map(function (part) { return part.tagName + ": " + part.textContent.trim().slice(0, 60); });
  }
  function channels(colour) { return (colour.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number); }
  function luminance(colour) {
    var parts = colour.slice(0, 3).map(function (part) {
      part /= 255;
      return part <= 0.04045 ? part / 12.92 : Math.pow((part + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  }
  function background(element) {
    for (; element; element = element.parentElement) {
      var colour = channels(getComputedStyle(element).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) { return colour; }
    }
    return [255, 255, 255];
  }
  // The text that stands out least, by the ratio of the Web Content Accessibility Guidelines.
  function faintest() {
    var least = { ratio: 21 };
    all("body *").forEach(function (element) {
      var says = Array.from(element.childNodes).some(function (node) { return node.nodeType === 3 && node.textContent.trim(); });
      if (!says || element.closest("svg, script, style") || !element.getClientRects().length) { return; }
      var one = luminance(channels(getComputedStyle(element).color)), other = luminance(background(element));
      var ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
      if (ratio < least.ratio) { least = { ratio: ratio, text: element.textContent.trim().slice(0, 60) }; }
    });
    return least;
  }
  when(complete, function () {
    var found = { pictures: {}, title: document.title, tables: all("table").length };
    all(".picture").forEach(function (picture) { found.pictures[picture.id] = drawn(picture); });
    found.mute = all(".picture").filter(function (picture) {
      return picture.getAttribute("role") !== "img" || !picture.getAttribute("aria-label") ||
        !picture.parentElement.querySelector("details.values tbody tr");
    }).map(function (picture) { return picture.id; });
    found.unreachable = all(".scroll").filter(function (part) { return part.tabIndex !== 0 || !part.getAttribute("aria-label"); }).length;
    found.faintest = [faintest()];
    document.getElementById("theme").click();
    found.faintest.push(faintest());
    // As on paper: the rules of print on a body of the width of a sheet between its margins.
    window.dispatchEvent(new Event("beforeprint"));
    Array.from(document.styleSheets).forEach(function (sheet) {
      Array.from(sheet.cssRules).forEach(function (rule) {
        if (rule.media && rule.media.mediaText === "print") { rule.media.mediaText = "all"; found.printed = true; }
      });
    });
    document.body.style.width = "273mm";
    when(function () {
      return cut().length === 0;
    }, function () {
      found.cut = cut();
      document.body.setAttribute("data-found", JSON.stringify(found));
    });
  });
})();
"#;

/// Checks the pages of recorded runs.
fn pages_work(cases: &[&str]) {
    if browser().is_none() {
        return skip(NO_BROWSER);
    }
    let tool = TestEnvironment::new();
    let mut browser = large(&tool);
    for &case in cases {
        let run = tool.folder().join(case);
        net::copy_run(case, &run);
        let _ = tool.run(&["report", case]).with_code(0);
        inspect(&mut browser, &run.join("report.html"));
    }
}

fn pages_of_load_cost_and_scale_work() {
    pages_work(&["load", "cost", "scale"]);
}

fn pages_of_stale_loss_and_calibrate_work() {
    pages_work(&["stale-galera", "loss", "calibrate"]);
}

fn pages_of_lag_backlog_and_tap_work() {
    pages_work(&["lag-methods", "backlog", "tap"]);
}

fn pages_of_exposure_and_front_work() {
    pages_work(&["exposure", "front"]);
}

fn pages_of_several_runs_work() {
    if browser().is_none() {
        return skip(NO_BROWSER);
    }
    let tool = TestEnvironment::new();
    for (case, name) in [
        ("lag-load", "one"),
        ("lag-shapes", "two"),
        ("stale-galera", "three"),
    ] {
        net::copy_run(case, &tool.folder().join(name));
    }
    let ended = tool
        .run(&["report", "one", "two", "three", "--page", "all.html"])
        .with_code(0);
    assert!(ended.stdout.contains("all.html"), "{}", ended.stdout);
    let mut browser = large(&tool);
    let found = inspect(&mut browser, &tool.folder().join("all.html"));
    assert!(
        found["pictures"].as_object().unwrap().len() >= 2,
        "lag and staleness have a picture: {found:#}"
    );
    let page = fs::read_to_string(tool.folder().join("all.html")).unwrap();
    for mode in ["async:1", "galera:2"] {
        assert!(page.contains(mode), "{mode}");
    }
    // What compares runs has a page of its own.
    lag_run(&tool.folder().join("a"), SyntheticSamples::default());
    lag_run(
        &tool.folder().join("b"),
        SyntheticSamples {
            seed: 2,
            ..SyntheticSamples::default()
        },
    );
    let _ = tool
        .run(&["compare", "a", "b", "--run-dir", "compared"])
        .with_code(0);
    inspect(&mut browser, &tool.folder().join("compared/report.html"));
}

/// Opens a page and checks that it has a title, tables and drawn pictures, that it is readable, usable by
/// keyboard and printable, and that it causes no requests and no messages of the browser.
fn inspect(browser: &mut OpenPage, page: &Path) -> Value {
    visit_with(browser, page, INSPECT);
    let (found, what) = (found(browser), page.display());
    assert_eq!(browser.messages(), [""; 0], "{what}");
    assert_eq!(browser.requests(), [""; 0], "{what}");
    assert!(!found["title"].as_str().unwrap().is_empty(), "{what}");
    let pictures = found["pictures"].as_object().unwrap();
    let empty = pictures
        .iter()
        .filter(|(name, drawn)| drawn.as_u64() == Some(0) && *name != "counters");
    assert!(
        !pictures.is_empty() && empty.count() == 0,
        "{what}: {found:#}"
    );
    assert!(found["tables"].as_u64().unwrap() > 0, "{what}");
    assert_eq!(
        found["mute"],
        json!([]),
        "{what}: pictures without a name or a table behind them"
    );
    assert_eq!(
        found["unreachable"], 0,
        "{what}: parts that the keyboard cannot scroll"
    );
    for least in found["faintest"].as_array().unwrap() {
        assert!(
            least["ratio"].as_f64().unwrap() >= 4.5,
            "{what}: too faint to read: {least}"
        );
    }
    assert_eq!(
        (&found["printed"], &found["cut"]),
        (&json!(true), &json!([])),
        "{what}: cut on paper"
    );
    found
}
