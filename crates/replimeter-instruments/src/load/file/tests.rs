use proptest::prelude::*;

use super::{
    super::{
        distribution::{Shape, ZIPF},
        value::{Bound, Literal, Place, Source},
        workload::{Parameter, Step, Version},
    },
    statement::parameters,
    *,
};

fn refused(text: &str) -> (usize, String) {
    let error = parse(text).unwrap_err();
    (error.line, error.reason)
}

#[test]
fn documented_load_file_is_read() {
    let inner = parse(
        "[[statement]]\nsql = \"SELECT c FROM t WHERE id = :id\"\nid = {zipf = [1, 1000000]}",
    )
    .unwrap();
    let [operation] = inner.operations.as_slice() else {
        panic!("one operation")
    };
    let [Step::Prepared(statement)] = operation.steps.as_slice() else {
        panic!("one statement")
    };
    assert_eq!(
        (statement.sql.as_str(), statement.line, statement.repeat),
        ("SELECT c FROM t WHERE id = ?", 2, 1)
    );
    let zipf = Source::Range(Shape::Zipf(ZIPF), Bound::Fixed(1), Bound::Fixed(1_000_000));
    assert_eq!(statement.parameters, [Parameter::Drawn(zipf)]);
}

/// A server is sent the types of parameters once: it would read 1.5 as a whole number of 4.6 × 10¹⁸.
#[test]
fn choice_of_mixed_types_is_refused() {
    let text = |list: &str| format!("[[statement]]\nsql = 'SELECT :a'\na = {{choice = {list}}}");
    for mixed in [
        "[1, 'a']",
        "[1, 1.5]",
        "[1.5, 2]",
        "['a', true]",
        "[1970-01-01, 1]",
    ] {
        let (line, reason) = refused(&text(mixed));
        assert_eq!(line, 3, "{mixed}");
        assert!(reason.contains("must be of one type"), "{mixed}: {reason}");
    }
    for list in ["[1, true]", "[1.0, 1.5]", "['a', 1970-01-01]"] {
        assert!(parse(&text(list)).is_ok(), "{list}");
    }
}

#[test]
fn shared_same_and_sum_values_are_resolved() {
    let text = r#"
            transaction = true
            [shared]
            id = {uniform = [1, "rows"]}
            [[statement]]
            sql = "DELETE FROM t WHERE id = :id AND ':x' <> :a AND a <> :a -- :b"
            a = {text = [3, 5]}
            [[statement]]
            sql = "SELECT * FROM t WHERE id BETWEEN :id AND :last AND c = :one"
            last = {plus = ["id", 99]}
            one = 1
            repeat = 3
        "#;
    let inner = parse(text).unwrap();
    let operation = &inner.operations[0];
    assert_eq!(
        operation.shared,
        [Source::Range(
            Shape::Uniform,
            Bound::Fixed(1),
            Bound::Rows(0)
        )]
    );
    assert_eq!(operation.statements(), 6);
    let Step::Prepared(first) = &operation.steps[0] else {
        panic!()
    };
    assert_eq!(
        first.sql,
        "DELETE FROM t WHERE id = ? AND ':x' <> ? AND a <> ? -- :b"
    );
    assert_eq!(
        first.parameters,
        [
            Parameter::Shared(0),
            Parameter::Drawn(Source::Text(3, 5)),
            Parameter::Same(1)
        ]
    );
    let Step::Prepared(second) = &operation.steps[1] else {
        panic!()
    };
    let plus = Parameter::Drawn(Source::Plus(Place::Shared(0), 99));
    let one = Parameter::Drawn(Source::Value(Literal::Int(1)));
    assert_eq!(second.parameters, [Parameter::Shared(0), plus, one]);
}

#[test]
fn version_columns_are_tracked_per_row() {
    let one = |text: &str| match &parse(text).unwrap().operations[0].steps[0] {
        Step::Prepared(statement) => statement.version(),
        Step::Words(_) => None,
    };
    let update = "[[statement]]\nsql = 'UPDATE t SET c = :c, v = last_insert_id (v + 1) WHERE id = :id'\nc = 1\nid = 2\n";
    assert_eq!(one(update), None);
    assert_eq!(
        one(&format!("{update}version-of = 'id'")),
        Some(Version::Written(1))
    );
    let select = "[[statement]]\nsql = 'select v FROM t WHERE id = :id'\nid = 2\n";
    assert_eq!(
        one(&format!("{select}version-of = 'id'")),
        Some(Version::Read(0))
    );
    for (text, line, want) in [
            (format!("{select}version-of = 'v'"), 4, "no parameter `:v`"),
            (
                "[[statement]]\nsql = 'UPDATE t SET v = v + 1 WHERE id = :id'\nid = 2\nversion-of = 'id'".to_owned(),
                4,
                "must return it",
            ),
            ("[[statement]]\nsql = 'DELETE FROM t WHERE id = :id'\nid = 2\nversion-of = 'id'".to_owned(), 4, "only a SELECT"),
            (format!("transaction = true\n{select}version-of = 'id'"), 3, "outside of a transaction"),
        ] {
            let (at, reason) = refused(&text);
            assert!(at == line && reason.contains(want), "{text}: line {at}: {reason}");
        }
    assert!(parse(&format!("transaction = true\n{update}version-of = 'id'")).is_ok());
}

#[test]
fn operations_with_weights_are_read() {
    let text = "
            [[operation]]
            name = 'read'
            weight = 9
            [[operation.statement]]
            sql = 'SELECT 1'
            [[operation]]
            transaction = true
            [[operation.statement]]
            sql = 'INSERT INTO t VALUES (:n)'
            n = {sequence = 'rows+1'}
        ";
    let inner = parse(text).unwrap();
    assert_eq!(
        (
            inner.operations.len(),
            inner.operations[0].weight,
            inner.operations[1].transaction
        ),
        (2, 9, true)
    );
}

#[test]
fn tables_with_columns_and_sizes_are_read() {
    let text = "size = '3MB'\n[[table]]\nname = 't'\ncreate = 'CREATE TABLE t (id INT PRIMARY KEY, c CHAR(10));'\n\
                    after = ['CREATE INDEX c ON t (c)']\n[table.columns]\nid = {row = true}\nc = {pattern = '##-@@'}\n\
                    [[statement]]\nsql = 'SELECT 1'";
    let inner = parse(text).unwrap();
    assert_eq!(inner.size, DataSize::Bytes(3_000_000));
    let table = &inner.tables[0];
    assert_eq!(
        table
            .columns
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        ["id", "c"]
    );
    assert!(table.row_bytes > 9 && !table.create.ends_with(';'));
}

#[test]
fn invalid_load_file_is_refused_with_its_line() {
    let statement = |more: &str| format!("[[statement]]\nsql = 'SELECT :id'\n{more}");
    for (text, line, wanted) in [
        (statement(""), 2, "`:id` does not exist"),
        (statement("id = 1\nother = 2"), 4, "no parameter `:other`"),
        (
            statement("id = {zipf = [9, 1]}"),
            3,
            "ends before it begins",
        ),
        (
            statement("id = {zip = [1, 9]}"),
            3,
            "unknown parameter kind `zip`",
        ),
        (statement("id = {uniform = [1, 9], text = 3}"), 3, "one of"),
        (
            statement("id = {uniform = [1, 9], exponent = 3}"),
            3,
            "only zipf",
        ),
        (
            statement("id = {zipf = [1, 9], exponent = -1.0}"),
            3,
            "exponent",
        ),
        (
            statement("id = {uniform = [-1, 9]}"),
            3,
            "whole number from 0",
        ),
        (
            statement("id = {uniform = ['rows!', 9]}"),
            3,
            "a bound must be",
        ),
        (
            statement("id = {text = 99999999}"),
            3,
            "whole number from 0",
        ),
        (statement("id = {row = true}"), 3, "only a table's columns"),
        (statement("id = {plus = ['x', 1]}"), 3, "no parameter `x`"),
        (statement("id = 1\nrepeat = 0"), 4, "never run"),
        (
            "[[statement]]\nsql = 'SELECT ?'".to_owned(),
            2,
            "write :name",
        ),
        (
            "[[statement]]\nsql = 'SELECT 1; SELECT 2'".to_owned(),
            2,
            "one statement",
        ),
        (
            "[[statement]]\nsql = \"SELECT 'a\"".to_owned(),
            2,
            "unterminated",
        ),
        (
            "[[statement]]\nsq = 'SELECT 1'".to_owned(),
            1,
            "needs its `sql`",
        ),
        ("\nx = 3".to_owned(), 2, "unknown setting `x`"),
        ("".to_owned(), 1, "no statement to run"),
        ("[[statement]]\nsql = 'SELECT 1".to_owned(), 2, ""),
        (
            "size = 'big'\n[[statement]]\nsql = 'SELECT 1'".to_owned(),
            1,
            "`big`",
        ),
        (
            "size = 5\n[[statement]]\nsql = 'SELECT 1'".to_owned(),
            1,
            "no table",
        ),
        (
            "[shared]\nx = 1\n[[statement]]\nsql = 'SELECT 1'".to_owned(),
            1,
            "`x` is shared",
        ),
        ("statement = 3".to_owned(), 1, "[[statement]]"),
        ("[[table]]\nname = 'a b'\n".to_owned(), 2, "letters, digits"),
        ("[[table]]\nname = 'probe_1'\n".to_owned(), 2, "reserved"),
        ("[[table]]\nname = 'a'\n".to_owned(), 1, "needs a `create`"),
        ("[[operation]]\nweight = 0".to_owned(), 2, "weight of 0"),
    ] {
        let (got, reason) = refused(&text);
        assert!(
            got == line && reason.contains(wanted),
            "{text}\n{got}: {reason}"
        );
    }
}

#[test]
fn colons_outside_parameters_are_kept() {
    let (text, names) =
        parameters("SELECT @a := 1, '12:30:x', 1:2 /* :c */, `a:b`, x::y, :z_1").unwrap();
    assert_eq!(
        (text.as_str(), names.len()),
        ("SELECT @a := 1, '12:30:x', 1:2 /* :c */, `a:b`, x::y, ?", 1)
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "(\\[\\[statement\\]\\]\n|\\[\\[table\\]\\]\n|sql = |'|\"|:id|id = |\\{|\\}|\\[|\\]|uniform|rows|text|[0-9]{1,20}|=|\n|,|-|/\\*|[a-zé?; ]){0,40}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_sql_panics(sql in "\\PC{0,60}") {
        let _ = parameters(&sql);
        let _ = parse(&format!("[[statement]]\nsql = '''{sql}'''\nid = {{uniform = [1, 2]}}"));
    }

    #[test]
    fn no_value_panics(value in "(\\{|\\}|\\[|\\]|zipf|plus|choice|pattern|sequence| = |'[a-z+#@-]{0,8}'|,|-?[0-9.e]{1,20}|true|nan|inf|1979-05-27){0,15}") {
        let _ = parse(&format!("[[statement]]\nsql = 'SELECT :id'\nid = {value}"));
    }
}
