//! Names of tables, each under a small number.

use std::collections::HashMap;

/// Names kept; whatever comes after is [`TableId::OTHER`].
const MOST: usize = 1 << 16;

/// The number of a schema and a table within one [`Tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// Every table that came when the list was full.
    pub const OTHER: Self = Self(u32::MAX);
}

/// Numbers for pairs of schema and table. The table is empty where a statement
/// names the schema only.
#[derive(Debug, Default)]
pub struct Tables {
    numbers: HashMap<Box<[u8]>, TableId>,
    names: Vec<(String, String)>,
    key: Vec<u8>,
}

impl Tables {
    /// The number of a table.
    pub fn id(&mut self, schema: &[u8], table: &[u8]) -> TableId {
        self.key.clear();
        self.key.extend_from_slice(schema);
        // No name has a zero byte in it.
        self.key.push(0);
        self.key.extend_from_slice(table);
        if let Some(id) = self.numbers.get(self.key.as_slice()) {
            return *id;
        }
        if self.names.len() == MOST {
            return TableId::OTHER;
        }
        let id = TableId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        self.names.push((text(schema), text(table)));
        self.numbers.insert(self.key.as_slice().into(), id);
        id
    }

    /// Schema and table of a number; `None` for [`TableId::OTHER`].
    #[must_use]
    pub fn name(&self, id: TableId) -> Option<(&str, &str)> {
        self.names
            .get(id.0 as usize)
            .map(|(schema, table)| (schema.as_str(), table.as_str()))
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}
