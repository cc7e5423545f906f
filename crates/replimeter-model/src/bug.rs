//! The hint of errors that only a defect of the program causes.

/// The hint: where to report the defect, if the workspace's `Cargo.toml` names its repository.
pub const REPORT_BUG: &str = if env!("CARGO_PKG_REPOSITORY").is_empty() {
    "report this as a bug"
} else {
    concat!(
        "report this as a bug at ",
        env!("CARGO_PKG_REPOSITORY"),
        "/issues"
    )
};
