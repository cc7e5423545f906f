//! The page in a real browser: charts are drawn and interactive, no requests, no
//! messages of the browser, hostile names have no effect.

use std::{fs, path::Path};

use replimeter_suites::{
    TestEnvironment, browser,
    harness::{Test, skip},
    headless, net,
    synthetic::{SyntheticSamples, lag_run},
    test,
};
use serde_json::{Value, json};

pub(crate) const TESTS: &[Test] = &[
    test!(page_works_from_a_file_without_network),
    test!(every_command_has_a_working_page),
    test!(pages_of_several_runs_work),
];

const NO_BROWSER: &str = "no Chromium on PATH; on Debian: apt-get install chromium";

/// Uses the page like a reader and records the results.
const ACT: &str = r#"
<script>
addEventListener("load", function () {
  // The first picture is drawn, the others follow.
  setTimeout(act, 1000);
});
function act() {
  var found = { pictures: {} };
  function mouse(element, type, x, y) {
    element.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, view: window, clientX: x, clientY: y, button: 0, buttons: 1 }));
  }
  var ids = Array.from(document.querySelectorAll(".picture")).map(function (picture) { return picture.id; });
  ids.forEach(function (id) {
    var picture = document.getElementById(id);
    var note = found.pictures[id] = { svgs: picture.querySelectorAll("svg.main-svg").length, traces: picture.data.length };
    note.drawn = picture.querySelectorAll(".point path, .points path, path.js-line").length;
    var shown = picture.data.findIndex(function (trace) { return trace.visible !== "legendonly" && trace.x.length; });
    Plotly.Fx.hover(id, [{ curveNumber: shown, pointNumber: 0 }]);
    note.hover = picture.querySelectorAll(".hoverlayer .hovertext").length;
    note.hoverText = Array.from(picture.querySelectorAll(".hoverlayer .hovertext")).map(function (text) { return text.textContent; }).join(" ");
    note.before = picture.layout.xaxis.range.slice();
    var drag = picture.querySelector(".nsewdrag").getBoundingClientRect();
    var y = drag.top + drag.height / 2;
    var area = picture.querySelector(".nsewdrag");
    mouse(area, "mousedown", drag.left + drag.width * 0.3, y);
    mouse(document, "mousemove", drag.left + drag.width * 0.5, y + 5);
    mouse(document, "mousemove", drag.left + drag.width * 0.6, y + 5);
    mouse(document, "mouseup", drag.left + drag.width * 0.6, y + 5);
  });
  setTimeout(function () {
    ids.forEach(function (id) {
      var picture = document.getElementById(id);
      found.pictures[id].after = picture.layout.xaxis.range.slice();
      var toggle = picture.querySelector(".legendtoggle");
      found.pictures[id].legend = Boolean(toggle);
      if (toggle) {
        found.pictures[id].visibleBefore = picture.data.map(function (trace) { return trace.visible === undefined ? true : trace.visible; });
        mouse(toggle, "mousedown", 0, 0);
        mouse(toggle, "mouseup", 0, 0);
      }
    });
    setTimeout(function () {
      ids.forEach(function (id) {
        var picture = document.getElementById(id);
        found.pictures[id].visibleAfter = picture.data.map(function (trace) { return trace.visible === undefined ? true : trace.visible; });
      });
      var colour = function () { return getComputedStyle(document.body).backgroundColor + " " + document.querySelector(".xtitle").style.fill; };
      found.light = colour();
      document.getElementById("theme").click();
      found.dark = colour();
      found.alerted = Boolean(window.hostile);
      document.body.setAttribute("data-found", JSON.stringify(found));
    }, 1500);
  }, 1500);
}
</script>
</body>"#;

/// The page's final document, all messages of the browser, and the network requests
/// of the page (not those of the browser).
fn visit(page: &Path, folder: &Path) -> (String, String, Vec<String>) {
    let profile = tempfile::tempdir_in(folder).unwrap();
    let network = profile.path().join("network.json");
    let output = headless(profile.path())
        .args(["--virtual-time-budget=15000", "--window-size=1200,2400"])
        .arg(format!("--log-net-log={}", network.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let traffic = fs::read_to_string(network).unwrap();
    let of_page = |line: &&str| {
        let by_page =
            line.contains("\"initiator\":") && !line.contains("\"initiator\":\"not an origin\"");
        by_page
            && ["\"url\":\"http", "\"url\":\"ws", "\"url\":\"ftp"]
                .iter()
                .any(|url| line.contains(url))
    };
    let asked = traffic.lines().filter(of_page).map(str::to_owned).collect();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr), asked)
}

fn complaints(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect()
}

/// Returns the results that the script recorded.
fn found(dom: &str) -> Value {
    let start = dom
        .find("data-found=\"")
        .expect("the page's own script ran to its end")
        + "data-found=\"".len();
    let json = dom[start..]
        .split('"')
        .next()
        .unwrap()
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&json).unwrap()
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
            "command = \"lag\"\ntitle = {hostile:?}\n[target]\nsandbox = \"async:2\"\nserver-options = [{option:?}]\n[lag]\nrow-sizes = \"1000..3000:1000\"\nrows-per-step = 40\nstep-pause = \"10ms\"\nsweeps = 2\n",
            option = "general_log_file=</script><script>window.hostile=1</script>"
        ),
    )
    .unwrap();
    let _ = tool.run(&["run", "plan.toml"]).with_code(0);
    let page = tool.only_run().join("report.html");
    let text = fs::read_to_string(&page).unwrap();

    let (dom, log, asked) = visit(&page, tool.folder());
    assert_eq!(complaints(&log), Vec::<&str>::new());
    assert!(dom.matches("main-svg").count() >= 4, "pictures are drawn");
    assert_eq!(
        asked,
        Vec::<String>::new(),
        "a page from a file makes no request"
    );
    // A page that makes a request shows that requests are detected.
    let control = tool.folder().join("control.html");
    fs::write(
        &control,
        "<!doctype html><img src='http://127.0.0.1:9/picture.png'>",
    )
    .unwrap();
    let (_, log, asked) = visit(&control, tool.folder());
    assert_eq!(asked.len(), 1, "{asked:?}");
    drop(log);

    let acting = tool.folder().join("acting.html");
    fs::write(&acting, text.replace("</body>", ACT)).unwrap();
    let (dom, log, _) = visit(&acting, tool.folder());
    assert_eq!(complaints(&log), Vec::<&str>::new());
    let found = found(&dom);
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
const LOOK: &str = r#"
<script>
addEventListener("load", function () {
  function all(what) { return Array.from(document.querySelectorAll(what)); }
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
  setTimeout(function () {
    var found = { pictures: {}, title: document.title, tables: all("table").length };
    all(".picture").forEach(function (picture) {
      found.pictures[picture.id] = picture.querySelectorAll(
        ".point path, .points path, path.js-line, path.js-fill, .heatmaplayer image, .errorbar path").length;
    });
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
    setTimeout(function () {
      var edge = document.body.getBoundingClientRect().right + 1;
      found.cut = all("table, pre, figure, p, .picture").filter(function (part) {
        return part.getClientRects().length && part.getBoundingClientRect().right > edge;
      }).map(function (part) { return part.tagName + ": " + part.textContent.trim().slice(0, 60); });
      document.body.setAttribute("data-found", JSON.stringify(found));
    }, 1000);
  }, 1500);
});
</script>
</body>"#;

fn every_command_has_a_working_page() {
    if browser().is_none() {
        return skip(NO_BROWSER);
    }
    let recorded = [
        "load",
        "cost",
        "scale",
        "stale-galera",
        "loss",
        "exposure",
        "front",
        "calibrate",
        "lag-methods",
        "backlog",
        "tap",
    ];
    for case in recorded {
        let tool = TestEnvironment::new();
        net::copy_run(case, &tool.folder().join(case));
        let _ = tool.run(&["report", case]).with_code(0);
        look_at(
            &tool,
            &tool.folder().join(case).join("report.html"),
            &[case],
        );
    }
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
    let found = look_at(&tool, &tool.folder().join("all.html"), &["report"]);
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
    look_at(
        &tool,
        &tool.folder().join("compared/report.html"),
        &["compare"],
    );
}

/// Opens a page and checks that it has a title, tables and drawn pictures, that it is readable, usable by
/// keyboard and printable, and that it causes no requests and no messages of the browser.
fn look_at(tool: &TestEnvironment, page: &Path, what: &[&str]) -> Value {
    let text = fs::read_to_string(page).unwrap();
    let looking = tool.folder().join("looking.html");
    fs::write(&looking, text.replace("</body>", LOOK)).unwrap();
    let (dom, log, asked) = visit(&looking, tool.folder());
    let found = found(&dom);
    assert_eq!(complaints(&log), Vec::<&str>::new(), "{what:?}");
    assert_eq!(asked, Vec::<String>::new(), "{what:?}");
    assert!(!found["title"].as_str().unwrap().is_empty(), "{what:?}");
    let pictures = found["pictures"].as_object().unwrap();
    // Counters that stayed 0 are in the table only.
    let empty = pictures
        .iter()
        .filter(|(name, drawn)| drawn.as_u64() == Some(0) && *name != "counters");
    assert!(
        !pictures.is_empty() && empty.count() == 0,
        "{what:?}: {found:#}"
    );
    assert!(found["tables"].as_u64().unwrap() > 0, "{what:?}");
    assert_eq!(
        found["mute"],
        json!([]),
        "{what:?}: pictures without a name or a table behind them"
    );
    assert_eq!(
        found["unreachable"], 0,
        "{what:?}: parts that the keyboard cannot scroll"
    );
    for least in found["faintest"].as_array().unwrap() {
        assert!(
            least["ratio"].as_f64().unwrap() >= 4.5,
            "{what:?}: too faint to read: {least}"
        );
    }
    assert_eq!(
        (&found["printed"], &found["cut"]),
        (&json!(true), &json!([])),
        "{what:?}: cut on paper"
    );
    found
}
