//! The page of promises names tests that exist.

use std::{collections::BTreeSet, fs};

use super::sources::rust_files;
use crate::net::repository;

#[test]
fn every_test_of_a_promise_exists() {
    let page = fs::read_to_string(repository().join("docs/promises.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| "));
    let named: BTreeSet<&str> = rows
        .filter_map(|row| row.split(" | ").nth(2))
        .flat_map(|tests| tests.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 50, "{} tests are named", named.len());
    let code: Vec<String> = rust_files()
        .into_iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let exists = |name: &str| {
        let function = format!("fn {name}(");
        code.iter().any(|code| code.contains(&function))
    };
    let missing: Vec<&str> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "docs/promises.md: {missing:#?}");
}
