"""What Sql, Route, Shard and Mask refuse before any data moves."""

import time

import pytest

from headrace.sdk import ConfigErrors
from headrace_plugins.predicates import Condition
from headrace_plugins.transforms.masks import Mask
from headrace_plugins.transforms.routers import Route, Shard
from headrace_plugins.transforms.sql import Filter, Sql, _clauses


def problems(kind, **config: str) -> list[str]:
    props = {key.replace("_", "."): value for key, value in config.items()}
    try:
        kind.config_def().parse(props)
    except ConfigErrors as several:
        return [f"{error.field}: {error.problem}" for error in several.errors]
    return []


@pytest.mark.parametrize(
    ("query", "clauses"),
    [
        ("SELECT a", ("a", None)),
        ("select a, 'where' AS b from record where a > 1;", ("a, 'where' AS b", "a > 1")),
        ("SELECT * EXCEPT (a), extract(year FROM b) AS y", None),
        ("SELECT `order`, -- no limit here\n a /* group by */ FROM record", None),
        ("SELECT (order + least(limit, group)) AS m", None),
    ],
)
def test_a_query_is_cut_at_its_own_words_only(query, clauses) -> None:
    assert problems(Sql, query=query) == []
    assert clauses is None or _clauses(query) == clauses


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("a + 1", "Expected SELECT"),
        ("SELECT", "an expression after SELECT"),
        ("SELECT a FROM other", "is record, not other"),
        ("SELECT a FROM record JOIN b", "JOIN is not supported"),
        ("SELECT count(*) GROUP BY a", "GROUP is not supported"),
        ("SELECT DISTINCT a", "DISTINCT is not supported"),
        ("SELECT a WHERE b WHERE c", "WHERE occurs twice"),
        ("SELECT a WHERE b FROM record", "Expected SELECT"),
        ("SELECT (a", "bracket"),
        ("SELECT reflect('java.lang.System', 'getenv') AS a", "Java"),
        ("SELECT `java_method`/**/ ('a', 'b') AS a", "Java"),
        ("SELECT (SELECT max(value) FROM text.`/etc/passwd`) AS a", "more than the record"),
        ("SELECT (SELECT max(value) FROM text./**/`/etc/passwd`) AS a", "more than the record"),
        ("SELECT a IN ( /* x */ (\u017felect 1)) AS a", "more than the record"),
        ("SELECT exists(FROM text.`/etc/passwd`) AS a", "more than the record"),
        ("SELECT (TABLE text.`/etc/passwd`) AS a", "more than the record"),
        ("SELECT (WITH t AS (VALUES 1) FROM t) AS a", "more than the record"),
        ("SELECT (VALUES -1 UNION TABLE text.`/x`) AS a", "more than the record"),
        ("SELECT (VALUES -1 |> UNION ALL (TABLE text.`/x`)) AS a", "more than the record"),
        ("SELECT (MAP 1 USING 'id') AS a", "more than the record"),
        ("SELECT (MAP (1) USING 'id') AS a", "more than the record"),
        ("SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'getenv') AS a", "Java"),
        ("SELECT reflect/* x */('java.lang.System', 'getenv') AS a", "Java"),
        ("SELECT builtin.`Reflect`('java.lang.System', 'getenv') AS a", "Java"),
        ("SELECT reflect/* /* */ */('java.lang.System', 'getenv') AS a", "nested"),
        ("SELECT /* /* */ ' */ reflect('a', 'b') /* ' */ AS a", "nested"),
        ("SELECT r'\\', reflect('a', 'b'), '' AS a", "Java"),
        ("SELECT 1 -- x\r + reflect('a', 'b') AS a", "Java"),
        ("SELECT 1 -- x\\\n ' \n + reflect('a', 'b') AS a -- '", "Java"),
        ("SELECT from_avro(a, '{}', map('avroSchemaUrl', '/x')) AS a", "open files"),
        ("SELECT schema_of_avro('{}', map('avroSchemaUrl', '/x')) AS a", "open files"),
        (
            "SELECT `From_XML` (a, 'a INT', map('rowValidationXSDPath', '/x')) AS a",
            "open files",
        ),
        ("SELECT xpath_string(a, 'b') AS a", "open files"),
        ("SELECT 1 /*+ x */ AS a", "not closed"),
        ("SELECT 'a AS a", "not closed"),
    ],
)
def test_what_would_not_give_one_record_for_each_is_refused(query, said) -> None:
    (problem,) = problems(Sql, query=query)
    assert said in problem


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * EXCEPT (a), size(values), (table IS NULL) AS t, (values NOT IN (1)) AS v",
        "SELECT (map('a', 1)['a'] + reduce(xs, 0, (x, y) -> x + y)) AS a, (minus - 1) AS b",
        "SELECT extract(YEAR FROM at), trim(BOTH ' ' FROM a), substring(values FROM 2)",
        "SELECT 'it''s (SELECT \\' 1)' AS a, \"reflect('a')\" AS b, r'(SELECT \\' AS c",
        "SELECT reflect AS a, identifier + 1 AS b, `using` AS c, record.using AS d",
        "SELECT a /* reflect('b') */ -- (SELECT 1)\n AS b",
    ],
)
def test_ordinary_sql_is_not_refused(query) -> None:
    assert problems(Sql, query=query) == []


@pytest.mark.parametrize("part", ["/*", "'\\", "(", "--", "`", '"', "r'", "/* ", "(values "])
def test_hostile_sql_takes_no_longer_than_other(part) -> None:
    begun = time.process_time()
    problems(Sql, query=f"SELECT {part * (100_000 // len(part))}")
    assert time.process_time() - begun < 5


def test_rules_of_routes_are_checked() -> None:
    assert problems(Route, routes="a -> b\n c(\\d) -> $1") == []
    assert "incomplete" in problems(Route, routes="a")[0]
    assert "Invalid regex" in problems(Route, routes="a( -> b")[0]
    assert "no rule" in problems(Route, routes=" ; ")[0]
    assert "No group 1" in problems(Route, routes="a -> $1")[0]
    assert "No group with name" in problems(Route, routes="(?<x>a) -> ${y}")[0]


@pytest.mark.parametrize(
    ("kind", "key"), [(Sql, "query"), (Filter, "condition"), (Condition, "condition")]
)
def test_sql_looks_at_no_other_records(kind, key: str) -> None:
    window = "SELECT n - lag(n) OVER (ORDER BY n) AS step".removeprefix(
        "" if kind is Sql else "SELECT "
    )
    (problem,) = problems(kind, **{key: window})
    assert "Window functions" in problem
    quoted = "SELECT 'f() OVER (x)' AS over -- f() OVER (x)"
    assert problems(kind, **{key: quoted}) == []


def test_each_way_to_shard_needs_its_key() -> None:
    assert problems(Shard, field="a", shards="3") == []
    assert problems(Shard, field="a") == ["shards: The strategy hash requires shards."]
    assert problems(Shard, field="a", strategy="range") == [
        "bounds: The strategy range requires bounds."
    ]
    assert problems(Shard, field="a", strategy="date") == [
        "pattern: The strategy date requires pattern."
    ]
    assert "shards" in problems(Shard, field="a", shards="0")[0]
    assert "zone" in problems(Shard, field="a", shards="1", time_zone="Mars")[0]
    assert "same topic name" in problems(Shard, field="a", shards="1", topic_format="x")[0]


@pytest.mark.parametrize("pattern", ["yyyyMM", "yyyy-'week'-QQ", "dd''HH[mm]"])
def test_a_pattern_of_spark_names_shards(pattern: str) -> None:
    assert problems(Shard, field="a", strategy="date", pattern=pattern) == []


@pytest.mark.parametrize("pattern", ["YYYYww", "nope", "yyyy'x", "yyyy#"])
def test_a_pattern_that_spark_would_refuse_later_is_refused_at_once(pattern: str) -> None:
    (problem,) = problems(Shard, field="a", strategy="date", pattern=pattern)
    assert problem.startswith("pattern: ")


def test_a_hash_needs_a_salt() -> None:
    assert "salt" in problems(Mask, fields="a")[0]
    assert problems(Mask, fields="a", method="format") == []
