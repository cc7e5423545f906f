//! Names of tables, each with a small number.

use std::collections::HashMap;

/// Maximum names kept; later ones are [`TableId::OTHER`].
const MAX_NAMES: usize = 1 << 16;

/// The number of a schema and a table within one [`Tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl TableId {
    /// All tables beyond the maximum.
    pub const OTHER: Self = Self(u32::MAX);
}

/// Numbers for pairs of schema and table. The table is empty where a statement names only the
/// schema.
#[derive(Debug, Default)]
pub struct Tables {
    numbers: HashMap<Box<[u8]>, TableId>,
    names: Vec<(String, String)>,
    key: Vec<u8>,
}

impl Tables {
    /// Returns the number of a table.
    pub fn id(&mut self, schema: &[u8], table: &[u8]) -> TableId {
        self.key.clear();
        self.key.extend_from_slice(schema);
        // Names contain no zero byte.
        self.key.push(0);
        self.key.extend_from_slice(table);
        if let Some(id) = self.numbers.get(self.key.as_slice()) {
            return *id;
        }
        if self.names.len() == MAX_NAMES {
            return TableId::OTHER;
        }
        let id = TableId(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        self.names.push((text(schema), text(table)));
        self.numbers.insert(self.key.as_slice().into(), id);
        id
    }

    /// Returns the schema and table of a number; `None` for [`TableId::OTHER`].
    #[must_use]
    pub fn name(&self, id: TableId) -> Option<(&str, &str)> {
        self.names
            .get(id.0 as usize)
            .map(|(schema, table)| (schema.as_str(), table.as_str()))
    }

    /// Returns the number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}
