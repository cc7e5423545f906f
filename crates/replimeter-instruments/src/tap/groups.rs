//! The transactions that count, and the groups they are counted in.

use std::collections::HashMap;

use replimeter_engine::follow::TableId;

use crate::tap::settings::{GroupBy, TapPlan};

/// Maximum number of groups; later ones are counted in the last one.
const MAX_GROUPS: usize = 1000;

/// The result for one set of tables.
#[derive(Clone, Debug, Default)]
struct GroupMatch {
    wanted: bool,
    groups: Vec<usize>,
}

/// Determines the groups of sets of tables, once for each set.
#[derive(Debug)]
pub(super) struct Groups {
    by: Option<GroupBy>,
    only: Vec<(String, Option<String>)>,
    except: Vec<(String, Option<String>)>,
    names: Vec<(String, String)>,
    verdicts: Vec<GroupMatch>,
    numbers: HashMap<(String, String), usize>,
    groups: Vec<(String, String)>,
}

fn parse(names: &[String]) -> Vec<(String, Option<String>)> {
    let one = |name: &String| match name.split_once('.') {
        Some((schema, table)) => (schema.to_owned(), Some(table.to_owned())),
        None => (name.clone(), None),
    };
    names.iter().map(one).collect()
}

/// Returns whether a table is in the list; a statement, whose table is unknown, is only in whole
/// schemas.
fn among(list: &[(String, Option<String>)], schema: &str, table: &str) -> bool {
    list.iter()
        .any(|(of, name)| of == schema && name.as_deref().is_none_or(|name| name == table))
}

impl Groups {
    pub(super) fn new(plan: &TapPlan) -> Self {
        let (only, except) = (parse(&plan.include), parse(&plan.exclude));
        // Set 0: tables that were not requested, or are unknown.
        let none = GroupMatch {
            wanted: only.is_empty(),
            groups: Vec::new(),
        };
        Self {
            by: plan.group_by,
            only,
            except,
            names: Vec::new(),
            verdicts: vec![none],
            numbers: HashMap::new(),
            groups: Vec::new(),
        }
    }

    /// Adds the tables and sets that a stream has found.
    pub(super) fn add_sets(
        &mut self,
        names: &mut Vec<(String, String)>,
        sets: &mut Vec<Vec<TableId>>,
    ) {
        self.names.append(names);
        for set in sets.drain(..) {
            let verdict = self.judge(&set);
            self.verdicts.push(verdict);
        }
    }

    fn judge(&mut self, set: &[TableId]) -> GroupMatch {
        let unknown = (String::new(), String::new());
        let tables: Vec<(String, String)> = set
            .iter()
            .map(|id| self.names.get(id.0 as usize).unwrap_or(&unknown).clone())
            .collect();
        let kept = |(schema, table): &(String, String)| {
            (self.only.is_empty() || among(&self.only, schema, table))
                && !among(&self.except, schema, table)
        };
        let wanted = tables.iter().any(kept);
        let mut groups = Vec::new();
        for (schema, table) in tables
            .into_iter()
            .filter(|one| self.by.is_some() && kept(one))
        {
            let key = if self.by == Some(GroupBy::Schema) {
                (schema, String::new())
            } else {
                (schema, table)
            };
            groups.push(key);
        }
        let mut numbers: Vec<usize> = groups.into_iter().map(|key| self.number(key)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        GroupMatch {
            wanted,
            groups: numbers,
        }
    }

    fn number(&mut self, key: (String, String)) -> usize {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        if self.groups.len() == MAX_GROUPS {
            return MAX_GROUPS;
        }
        self.groups.push(key.clone());
        self.numbers.insert(key, self.groups.len() - 1);
        self.groups.len() - 1
    }

    /// Returns whether transactions of this set count.
    pub(super) fn is_counted(&self, set: u32) -> bool {
        self.verdicts
            .get(set as usize)
            .is_some_and(|verdict| verdict.wanted)
    }

    /// Returns the groups of a set.
    pub(super) fn groups_of(&self, set: u32) -> &[usize] {
        self.verdicts
            .get(set as usize)
            .map_or(&[], |verdict| &verdict.groups)
    }

    /// Returns an instance with these groups.
    #[cfg(test)]
    pub(super) fn named(groups: Vec<(String, String)>) -> Self {
        let (only, except, names) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            by: None,
            only,
            except,
            names,
            verdicts: Vec::new(),
            numbers: HashMap::new(),
            groups,
        }
    }

    /// Returns schema and table of a group.
    pub(super) fn name(&self, group: usize) -> (String, String) {
        self.groups
            .get(group)
            .cloned()
            .unwrap_or_else(|| ("(others)".to_owned(), String::new()))
    }
}

#[cfg(test)]
mod tests {
    use replimeter_model::plan::{PlanFile, Section};

    use super::*;
    use crate::tap::settings::TapSettings;

    fn groups(settings: &str) -> Groups {
        let text = format!("command = 'tap'\n[tap]\n{settings}");
        let file: PlanFile<TapSettings> =
            PlanFile::from_toml(&text, &[Section::of::<TapSettings>()]).unwrap();
        let mut groups = Groups::new(&file.plan().unwrap().plan);
        let name = |schema: &str, table: &str| (schema.to_owned(), table.to_owned());
        let mut names = vec![
            name("shop", "orders"),
            name("shop", "carts"),
            name("blog", "posts"),
            name("shop", ""),
        ];
        let set = |ids: &[u32]| ids.iter().map(|id| TableId(*id)).collect::<Vec<_>>();
        groups.add_sets(
            &mut names,
            &mut vec![set(&[0]), set(&[0, 1]), set(&[2]), set(&[1, 2]), set(&[3])],
        );
        groups
    }

    fn wanted(settings: &str) -> Vec<u32> {
        let groups = groups(settings);
        (0..=5).filter(|set| groups.is_counted(*set)).collect()
    }

    #[test]
    fn table_filters_are_applied() {
        assert_eq!(wanted(""), [0, 1, 2, 3, 4, 5]);
        assert_eq!(wanted("include = ['shop']"), [1, 2, 4, 5]);
        assert_eq!(wanted("include = ['shop.orders', 'blog']"), [1, 2, 3, 4]);
        assert_eq!(wanted("exclude = ['shop']"), [0, 3, 4]);
        assert_eq!(wanted("exclude = ['shop.orders']"), [0, 2, 3, 4, 5]);
    }

    #[test]
    fn transaction_counts_once_per_touched_group() {
        let by_table = groups("group-by = 'table'");
        assert_eq!(by_table.groups_of(2).len(), 2);
        assert_eq!(
            by_table.name(by_table.groups_of(1)[0]),
            ("shop".to_owned(), "orders".to_owned())
        );
        assert_eq!(groups("group-by = 'schema'").groups_of(2).len(), 1);
        assert!(groups("").groups_of(2).is_empty());
        assert_eq!(
            groups("group-by = 'table'\ninclude = ['blog']")
                .groups_of(4)
                .len(),
            1
        );
    }
}
