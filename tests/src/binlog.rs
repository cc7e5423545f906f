//! The binary log of a server, as the server itself decodes it.

use std::collections::BTreeMap;

use replimeter_engine::Node;

use crate::session;

/// Events read by one statement.
const PAGE: usize = 20_000;

/// An event of a binary log.
#[derive(Debug)]
pub struct BinlogEvent {
    /// Its type, such as `Query`, `Table_map`, `Write_rows_v1` (MariaDB) or `Write_rows` (MySQL).
    pub kind: String,
    /// Its content in the server's words.
    pub info: String,
    /// The `server_id` of the server that wrote it first.
    pub server_id: String,
    /// Its size in bytes.
    pub bytes: u64,
}

impl BinlogEvent {
    /// Returns the schemas that the event concerns; `None` if it changes nothing by itself.
    ///
    /// # Panics
    /// If it is a statement without a known schema.
    #[must_use]
    pub fn schemas(&self) -> Option<Vec<String>> {
        let unquoted = |name: &str| name.trim_matches('`').to_owned();
        match self.kind.as_str() {
            // table_id: 18 (schema.table)
            "Table_map" => {
                let name = self.info.split_once('(').unwrap().1;
                Some(vec![unquoted(name.split_once('.').unwrap().0)])
            }
            "Query" if matches!(self.info.as_str(), "BEGIN" | "COMMIT") => None,
            "Query" => {
                // use `schema`; statement
                let (default, statement) = match self.info.strip_prefix("use `") {
                    Some(rest) => {
                        let (schema, statement) = rest.split_once("`; ").unwrap();
                        (Some(schema.to_owned()), statement)
                    }
                    None => (None, self.info.as_str()),
                };
                let words: Vec<&str> = statement.split_whitespace().collect();
                let named = words
                    .iter()
                    .find_map(|word| word.trim_matches(';').split_once('.'));
                let upper = statement.to_ascii_uppercase();
                let schema = match named {
                    _ if upper.contains(" DATABASE ") || upper.contains(" SCHEMA ") => words
                        .iter()
                        .skip(2)
                        .find(|word| !["IF", "NOT", "EXISTS"].contains(word))
                        .copied(),
                    Some((schema, _)) => Some(schema),
                    None => None,
                };
                let schemas: Vec<String> =
                    schema.map(unquoted).into_iter().chain(default).collect();
                assert!(!schemas.is_empty(), "a statement of no schema: {self:?}");
                Some(schemas)
            }
            _ => None,
        }
    }
}

/// Returns the place after the last event of each log of a server.
#[must_use]
pub fn binlog_end(node: &Node) -> BTreeMap<String, u64> {
    let logs = session(node).rows("test", "SHOW BINARY LOGS").unwrap();
    let end = |row: BTreeMap<String, String>| {
        let size = row["File_size"].parse().unwrap();
        (row["Log_name"].clone(), size)
    };
    logs.into_iter()
        .map(|row| end(row.into_iter().collect()))
        .collect()
}

/// Returns the transactions that a server logged after a place: the events of each.
#[must_use]
pub fn transactions_since(node: &Node, place: &BTreeMap<String, u64>) -> Vec<Vec<BinlogEvent>> {
    let mut session = session(node);
    let mut transactions: Vec<Vec<BinlogEvent>> = Vec::new();
    for (log, size) in binlog_end(node) {
        let mut from = place.get(&log).copied().unwrap_or(4);
        loop {
            let sql = format!("SHOW BINLOG EVENTS IN '{log}' FROM {from} LIMIT {PAGE}");
            let events = session.rows("test", &sql).unwrap();
            let begin = |event: &BTreeMap<String, String>| event["Pos"].parse::<u64>().unwrap();
            // The end of an event is where the next one begins: since MariaDB 11.4, those in a transaction have none of their own.
            let is_last_page = events.len() < PAGE;
            let ends = events
                .iter()
                .skip(1)
                .map(begin)
                .chain(is_last_page.then_some(size));
            for (event, end) in events.iter().zip(ends) {
                let kind = event["Event_type"].clone();
                if matches!(kind.as_str(), "Gtid" | "Anonymous_Gtid") {
                    transactions.push(Vec::new());
                }
                // A log begins with events of no transaction.
                if let Some(transaction) = transactions.last_mut() {
                    transaction.push(BinlogEvent {
                        kind,
                        info: event["Info"].clone(),
                        server_id: event["Server_id"].clone(),
                        bytes: end.saturating_sub(begin(event)),
                    });
                }
            }
            match events.last() {
                Some(last) if !is_last_page => from = begin(last),
                _ => break,
            }
        }
    }
    transactions
}
