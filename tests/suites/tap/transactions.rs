//! Every transaction is matched, regardless of its form; filters by schema and table.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use replimeter_suites::{
    LIMIT, TestEnvironment, clean, password, shared, sql, value, wait, wait_until,
};
use serde_json::Value;

use super::{Written, all_matched, args, followed, followed_on, number, tables, traffic};

pub(super) fn mariadb_tap_follows_rotations_and_tables() {
    let sandbox = shared("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    tables(primary);
    // The floor lasts as long as the run, so that it has transactions.
    let more = ["--group-by", "table", "--floor-duration", "1000s"];
    let (tool, document) = followed(&sandbox, &args(&sandbox, &more), &[], |_| {
        sql(primary, "FLUSH BINARY LOGS");
        sql(replica, "FLUSH BINARY LOGS");
    });
    assert_eq!(
        (document["schema"].as_str(), document["status"].as_str()),
        (Some("replimeter.tap/1"), Some("complete"))
    );
    all_matched(&document);
    let row = &document["results"]["rows"][0];
    let groups = row["group_by"].as_array().unwrap();
    assert_eq!(groups[0]["table"], "orders");
    assert_eq!(groups[1]["table"], "carts");
    let of_groups: u64 = groups
        .iter()
        .map(|group| number(&group["lag"]["count"]))
        .sum();
    assert!(
        of_groups >= number(&row["matched"]) - 2,
        "each touches one table: {row:#}"
    );
    assert!(
        number(&document["results"]["streams"][0]["rotations"]) >= 1
            && number(&document["results"]["streams"][1]["rotations"]) >= 1
    );
    assert!(number(&document["results"]["floor"]["transactions"]) > 0);
    let windows = document["results"]["windows"].as_array().unwrap();
    let of_windows: u64 = windows
        .iter()
        .map(|window| number(&window["matched"]))
        .sum();
    assert_eq!(of_windows, number(&row["matched"]));
    assert!(clean(primary) && clean(replica), "nothing is written");
    // The run's directory is whole, and renders again.
    let dir = tool.only_run();
    for name in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
    ] {
        assert!(dir.join(name).exists(), "{name}");
    }
    let again = tool.run(&["report", dir.to_str().unwrap()]).with_code(0);
    assert!(again.words().contains("shop.orders"), "{again:#?}");
    let plan = dir.join("plan.toml");
    let planned = tool
        .run(&["run", "--dry-run", plan.to_str().unwrap()])
        .with_code(0);
    assert!(
        planned.stdout.contains("command = \"tap\"")
            && planned.stdout.contains("group-by = \"table\"")
    );
}

pub(super) fn mysql_tap_follows_tags_and_compression() {
    let sandbox = shared("mysql/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    let prefix = [
        "SET SESSION gtid_next = 'AUTOMATIC:batch'",
        "SET SESSION binlog_transaction_compression = 1",
    ];
    let more = ["--group-by", "schema"];
    let (_, document) = followed(&sandbox, &args(&sandbox, &more), &prefix, |_| {});
    all_matched(&document);
    let row = &document["results"]["rows"][0];
    assert_eq!(row["group_by"][0]["schema"], "shop");
    // The commits' own timestamps tell a lag too, to within what is known of the clocks.
    let clocks = document["results"]["clocks"].as_array().unwrap();
    let of = |clock: &Value, name: &str| clock[name].as_f64().unwrap();
    assert_eq!(clocks.len(), 2);
    let bounds: f64 = clocks.iter().map(|clock| of(clock, "bound_us")).sum();
    assert!(
        number(&row["by_servers"]["count"]) > 100 && of(&row["by_servers"], "min_us") > -bounds,
        "{row:#} {clocks:#?}"
    );
    // Servers of one host have one clock.
    assert!(
        (of(&clocks[0], "offset_us") - of(&clocks[1], "offset_us")).abs() <= bounds,
        "{clocks:#?}"
    );
    assert_eq!(
        document["results"]["streams"][0]["tls"], true,
        "MySQL offers TLS by default"
    );
}

pub(super) fn tap_follows_a_replica_of_a_replica() {
    let sandbox = shared("mariadb/chain:2", &[]);
    tables(&sandbox.nodes()[0]);
    let first = &sandbox.nodes()[1];
    // The floor ends during the stop.
    let more = ["--floor-duration", "1s"];
    let (_, document) = followed(&sandbox, &args(&sandbox, &more), &[], |following| {
        sql(first, "STOP SLAVE");
        following.await_pending("replica1");
        thread::sleep(STOP);
        sql(first, "START SLAVE");
    });
    all_matched(&document);
    for index in 0..2 {
        let lag = &document["results"]["rows"][index]["lag"];
        assert!(
            lag["max_us"].as_f64().unwrap() > 0.9e6,
            "the second hop is at least as late as the first: {document:#}"
        );
    }
}

/// Time for which the first of two hops is stopped.
const STOP: Duration = Duration::from_secs(1);

/// A replica of MariaDB logs nothing of what a filter leaves out, which can also be the last transaction.
pub(super) fn tap_awaits_nothing_that_a_filter_left_out() {
    let sandbox = shared("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    let filter = |table: &str| {
        let set = format!("SET GLOBAL replicate_ignore_table = '{table}'");
        for statement in ["STOP SLAVE", &set, "START SLAVE"] {
            sql(&sandbox.nodes()[1], statement);
        }
    };
    filter("shop.carts");
    let more = ["--floor-duration", "0"];
    // The run ends when it has shown that nothing is pending.
    let (_, document) = followed(&sandbox, &args(&sandbox, &more), &[], |_| {});
    filter("");
    let row = &document["results"]["rows"][0];
    let of = |name: &str| number(&row[name]);
    assert!(of("matched") > 0 && of("unmatched") > 0, "{row:#}");
    assert_eq!(
        (of("matched") + of("unmatched"), of("pending")),
        (of("transactions"), 0),
        "{row:#}"
    );
    let reason = &row["unmatched_reasons"][0]["reason"];
    assert!(reason.as_str().unwrap().contains("a filter"), "{row:#}");
}

/// In group commit a transaction is in the log before it is among the executed ones.
pub(super) fn transaction_in_group_commit_is_not_foreign() {
    let sandbox = shared("mysql/async:1", &[]);
    let primary = &sandbox.nodes()[0];
    tables(primary);
    let names = ["sync_binlog", "binlog_group_commit_sync_delay"];
    let set = |values: [&str; 2]| {
        for (name, value) in names.into_iter().zip(values) {
            sql(primary, &format!("SET GLOBAL {name} = {value}"));
        }
    };
    let before = names.map(|name| value(primary, &format!("SELECT @@GLOBAL.{name}")).unwrap());
    // A commit takes a second, so there are some whenever the run begins.
    set(["1", "1000000"]);
    let (stop, written) = (AtomicBool::new(false), Written::default());
    let more = ["--floor-duration", "0", "--duration", "4s", "--json"];
    let document = thread::scope(|scope| {
        scope.spawn(|| traffic(&[primary], &[], &stop, &written));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            wait_until("there is traffic", LIMIT, || written.all() > 0);
            let tool = TestEnvironment::new();
            let mut command = tool.command(&args(&sandbox, &more));
            command.env("REPLIMETER_PASSWORD", password(primary));
            wait(command.spawn().unwrap(), LIMIT)
        }));
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    });
    set(before.each_ref().map(String::as_str));
    let document = document.with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert!(number(&row["before_start"]) > 0, "{row:#}");
    assert_eq!(row["unmatched_reasons"], serde_json::json!([]), "{row:#}");
}

pub(super) fn tap_filters_by_schema_and_table() {
    let sandbox = shared("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    let grouped = |filter: [&str; 2], prefix: &[&str], counted: fn(&Written) -> u64| {
        let more = ["--floor-duration", "0", "--group-by", "table"];
        let args = args(&sandbox, &[&more[..], &filter].concat());
        let writers = [&sandbox.nodes()[0]];
        let (_, document, expected) =
            followed_on(&sandbox, &writers, &args, prefix, counted, |_| {});
        let row = document["results"]["rows"][0].clone();
        assert_eq!(row["matched"], row["transactions"], "{row:#}");
        assert_eq!(number(&row["transactions"]), expected, "{row:#}");
        assert!(
            number(&document["results"]["streams"][0]["transactions"]) >= expected,
            "{document:#}"
        );
        let tables: Vec<String> = row["group_by"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["table"].as_str().unwrap().to_owned())
            .collect();
        tables
    };
    let include = grouped(["--include", "shop.carts"], &[], Written::carts);
    assert_eq!(include, ["carts"]);
    let exclude = grouped(["--exclude", "shop.carts"], &[], Written::orders);
    assert_eq!(exclude, ["orders"]);
    // Of a statement, compressed here, the schema is known.
    let set = |on: &str, bytes: &str| {
        let primary = &sandbox.nodes()[0];
        sql(primary, &format!("SET GLOBAL log_bin_compress = {on}"));
        sql(
            primary,
            &format!("SET GLOBAL log_bin_compress_min_len = {bytes}"),
        );
    };
    set("ON", "10");
    let prefix = ["SET SESSION binlog_format = 'STATEMENT'", "USE shop"];
    let include = grouped(["--include", "shop"], &prefix, Written::all);
    assert_eq!(include, [""]);
    set("OFF", "256");
}
