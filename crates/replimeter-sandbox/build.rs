//! Compiles the library that slows flushes of servers, which is part of the program.

use std::{env, path::PathBuf, process::Command};

const SOURCE: &str = "preload/flush.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let library = PathBuf::from(variable("OUT_DIR")).join("flush.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=flush",
            "-Cpanic=abort",
            "-Copt-level=2",
        ])
        .args([
            "-Cstrip=symbols",
            "-Clink-arg=-nostdlib",
            "--target",
            &variable("TARGET"),
            SOURCE,
            "-o",
        ])
        .arg(&library);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg(format!("-Clinker={linker}"));
    }
    match compiler.status() {
        Ok(status) if status.success() => {}
        other => println!("cargo::error=cannot compile {SOURCE}: {other:?}"),
    }
}
