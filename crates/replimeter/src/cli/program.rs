//! Commands about the program itself: its schemas, completions and pages.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// `replimeter schema`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter schema plan > plan.schema.json
  replimeter schema lag
  replimeter schema plan --markdown

The schemas of this version are kept in docs/schema; docs/reference/formats.md says how to use them, and
docs/guides/plans.md how an editor does.")]
pub(crate) struct SchemaArgs {
    /// Of plan files, of a command's JSON document, or of manifest.json
    #[arg(value_name = "OF")]
    pub(crate) name: String,

    /// Print tables in Markdown instead: the keys of `plan`, or the columns of a command's samples.parquet, as in
    /// docs/reference
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// `replimeter completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter completions bash > ~/.local/share/bash-completion/completions/replimeter
  replimeter completions zsh > ~/.zfunc/_replimeter
  replimeter completions fish > ~/.config/fish/completions/replimeter.fish")]
pub(crate) struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `replimeter man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter man | man -l -
  replimeter man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder, which is made if it is not there [default: print the first page]
    #[arg(value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,

    /// Print all of them as one Markdown page instead, as in docs/reference/cli.md
    #[arg(long, conflicts_with = "folder")]
    pub(crate) markdown: bool,
}
