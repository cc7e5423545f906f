//! The name of a table.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of a table and of its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName {
    schema: String,
    table: String,
}

/// A text that is not the name of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not the name of a table; write it as SCHEMA.TABLE", .0.escape_default())]
pub struct NoTableName(String);

impl FromStr for TableName {
    type Err = NoTableName;

    fn from_str(text: &str) -> Result<Self, NoTableName> {
        let is_name = |name: &str| {
            let refused = |char: char| char == '`' || char == '.' || char.is_control();
            !name.is_empty()
                && name.chars().count() <= 64
                && !name.ends_with(' ')
                && !name.contains(refused)
        };
        match text.split_once('.') {
            Some((schema, table)) if is_name(schema) && is_name(table) => Ok(Self {
                schema: schema.to_owned(),
                table: table.to_owned(),
            }),
            _ => Err(NoTableName(text.to_owned())),
        }
    }
}

impl TryFrom<String> for TableName {
    type Error = NoTableName;

    fn try_from(text: String) -> Result<Self, NoTableName> {
        text.parse()
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        format!("{}.{}", name.schema, name.table)
    }
}

/// The name as statements have it.
impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`.`{}`", self.schema, self.table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_are_quoted_and_others_refused() {
        let name: TableName = "percona.heartbeat".parse().unwrap();
        assert_eq!(name.to_string(), "`percona`.`heartbeat`");
        assert!("my schema.Tab-le$é".parse::<TableName>().is_ok());
        let long = format!("a.{}", "b".repeat(65));
        for refused in [
            "heartbeat",
            "",
            ".",
            "a.",
            ".b",
            "a.b.c",
            "a.b`; DROP TABLE c",
            "`a`.`b`",
            "a.b\n",
            "a.b\0",
            "a.b ",
            &long,
        ] {
            assert!(refused.parse::<TableName>().is_err(), "{refused:?}");
        }
    }
}
