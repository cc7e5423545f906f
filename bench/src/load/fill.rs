//! Compares filling a data set with `sysbench prepare`, alternately on one server.

use std::{fs, process::Stdio, slice, sync::atomic::AtomicBool, time::Instant};

use replimeter_engine::Node;
use replimeter_instruments::load::{Workload, fill_sandbox};
use replimeter_model::load::DataSize;
use replimeter_suites::{sql, start};

use super::{OPTIONS, rounds, sysbench_command};
use crate::{line, ratio};

/// Size of the data set, in bytes.
const FILLED: u64 = 300_000_000;
/// Connections that fill it, on both sides.
const FILLERS: u64 = 4;
/// Numbers of tables. sysbench fills each with one of its threads.
const TABLES: [u64; 2] = [4, 1];

/// Compares the rates of filling 300 MB of sysbench's rows.
pub(super) fn filling(engine: &str) {
    let sandbox = start(&format!("{engine}/none"), &OPTIONS);
    let node = &sandbox.nodes()[0];
    for tables in TABLES {
        let rows = rows() / tables;
        let (in_create, after) = (workload(tables, true), workload(tables, false));
        let mut rates: [Vec<f64>; 4] = Default::default();
        for round in 0..rounds() {
            // The order alternates, so that a drift of the machine affects all.
            let mut order = [0, 1, 2, 3];
            order.rotate_left(round % 4);
            for which in order {
                let (filled, by_file) = match which {
                    0 => (&after, true),
                    1 => (&after, false),
                    _ => (&in_create, true),
                };
                sql(node, &format!("SET GLOBAL local_infile = {by_file}"));
                rates[which].push(match which {
                    3 => sysbench(node, rows, tables),
                    _ => replimeter(node, filled, rows, tables),
                });
            }
        }
        let [file, statement, with_index, theirs] = &rates;
        let what = format!("load: {engine}, {tables} tables, rows filled per s / sysbench");
        for (how, ours, goal) in [
            ("LOAD DATA, index after the rows", file, "≥ 1.0"),
            ("INSERT, index after the rows", statement, ""),
            ("LOAD DATA, index in create", with_index, ""),
        ] {
            line(
                &format!("{what}, {how}"),
                ratio(ours.iter().copied().zip(theirs.iter().copied())),
                goal,
            );
        }
    }
}

fn rows() -> u64 {
    let workload = Workload::named("point-select").unwrap();
    workload.rows(DataSize::Bytes(FILLED))
}

/// Returns the workload `point-select` on this number of tables, with their index in `create` or, like that of sysbench, after
/// the rows.
fn workload(tables: u64, in_create: bool) -> Workload {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../loads/point-select.toml");
    let text = fs::read_to_string(file).unwrap();
    let (head, rest) = text.split_once("[[table]]").unwrap();
    let (table, statement) = rest.split_once("[[statement]]").unwrap();
    let table = if in_create {
        table.to_owned()
    } else {
        let without = table.replace("(id),\n  KEY k_1 (k)", "(id)");
        assert_ne!(without, table);
        let after = "after = [\"CREATE INDEX k_1 ON sbtest1 (k)\"]\nrow-bytes";
        without.replace("row-bytes", after)
    };
    let tables: Vec<String> = (1..=tables)
        .map(|number| {
            let table = table.replace("sbtest1", &format!("sbtest{number}"));
            format!("[[table]]{table}")
        })
        .collect();
    let text = format!("{head}{}[[statement]]{statement}", tables.concat());
    Workload::parse("filled.toml", &text).unwrap()
}

/// Returns rows per second.
fn replimeter(node: &Node, workload: &Workload, rows: u64, tables: u64) -> f64 {
    let stop = AtomicBool::new(false);
    let size = DataSize::Rows(rows);
    let set = fill_sandbox(slice::from_ref(node), workload, size, &mut |_| {}, &stop).unwrap();
    let rate = (rows * tables) as f64 / set.took.as_secs_f64();
    drop(set.remove(node));
    rate
}

/// Returns rows per second.
fn sysbench(node: &Node, rows: u64, tables: u64) -> f64 {
    sql(node, "CREATE DATABASE sysbench");
    let mut command = sysbench_command(node, "sysbench");
    command
        .arg(format!("--threads={FILLERS}"))
        .arg(format!("--tables={tables}"))
        .arg(format!("--table-size={rows}"))
        .args(["oltp_read_write", "prepare"])
        .stdout(Stdio::null());
    let began = Instant::now();
    assert!(command.status().unwrap().success());
    let rate = (rows * tables) as f64 / began.elapsed().as_secs_f64();
    sql(node, "DROP DATABASE sysbench");
    rate
}
