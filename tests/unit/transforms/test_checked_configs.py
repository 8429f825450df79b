"""What a check finds in a step before a run: it starts no Spark and imports no code."""

from pathlib import Path

import pytest

from headrace.control.validation import check_steps
from headrace.model import StepSpec
from headrace.plugins import Access, Registry
from headrace_plugins.transforms.sql import unfinished


def problems(kind: str, registry: Registry | None = None, /, **config: str) -> list[str]:
    props = {key.replace("_", "."): value for key, value in config.items()}
    step = StepSpec("it", kind, props, place="transforms[0]")
    found = check_steps([step], registry or Registry()).errors
    return [f"{getattr(error, 'field', '')}: {error.problem}" for error in found]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("amount >", "a value after >"),
        ("amount = 1 AND", "a value after and"),
        ("(a OR ) = 1", "a value after or"),
        ("= 5", "a value before ="),
        ("coalesce(, a)", None),
        ("coalesce(a +, b)", "a value after +"),
        ("a IN", "a value after in"),
        ("(a", "bracket"),
        ("a) = (b", "bracket"),
        ("-- nothing", "got none"),
    ],
)
def test_an_expression_that_lacks_a_value_is_found_without_spark(sql, said) -> None:
    found = problems("Filter", condition=sql)
    if said is None:
        assert found == []
    else:
        assert [said in text for text in found] == [True]


VALID = [
    "a > -1 AND NOT b",
    "!a OR ~b = +c",
    "*",
    "count(*) > 1",
    "cast(a AS ARRAY<INT>)",
    "a::map<string, array<int>>",
    "exists(a, x -> x > 1)",
    "a <=> NULL",
    "like(a, 'x%')",
    "like",
    "a.like",
    "`in` = 1",
    "a IN (1, 2) -- done",
    "a[0] = '('",
    "date_add(day => d, num => 1)",
    "$1",
]


@pytest.mark.parametrize("sql", VALID)
def test_what_may_be_sql_is_left_to_spark(sql: str) -> None:
    assert unfinished(sql) is None


@pytest.mark.spark
def test_what_is_refused_is_refused_by_spark_too(spark) -> None:
    parse = spark._jsparkSession.sessionState().sqlParser().parseExpression
    for sql in VALID[:-1]:
        parse(sql if sql == "*" else f"({sql}\n)")
    for sql in ("amount >", "a AND", "(a OR ) = 1", "= 5", "coalesce(a +, b)", "a IN", "(a"):
        with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
            parse(f"({sql})")


@pytest.mark.parametrize(
    ("bounds", "good"),
    [
        ("10,1,9", False),
        ("5,3,1", False),
        ("1,1", False),
        ("2,10", True),
        ("10,9", True),  # as texts
        ("2026-01-31,2026-02-01", True),
        ("a,b", True),
        ("b,a", False),
    ],
)
def test_bounds_that_ascend_as_no_type_are_refused(bounds: str, good: bool) -> None:
    found = problems("Shard", field="f", strategy="range", bounds=bounds)
    shown = bounds.replace(",", ", ")
    wrong = f"transforms[0].bounds: The bounds {shown} are not in ascending order."
    assert found == ([] if good else [wrong])


def test_python_that_cannot_be_loaded_is_refused_and_none_is_run(tmp_path: Path) -> None:
    wrong = "def transform(record) return record"
    assert "line 1" in problems("Python", code=wrong)[0]
    assert "no function transform" in problems("Python", code="def other(r): return r")[0]
    ran = tmp_path / "ran"
    good = f"open({str(ran)!r}, 'w')\ndef transform(r):\n    return r"
    assert problems("Python", code=good) == []
    file = tmp_path / "steps.py"
    file.write_text(good)
    assert problems("Python", function=f"{file}:transform") == []
    assert "no function f" in problems("Python", function=f"{file}:f")[0]
    assert "cannot be read" in problems("Python", function=f"{file}x.py:f")[0]
    assert not ran.exists()


def test_a_module_that_is_not_there_is_refused(tmp_path: Path, monkeypatch) -> None:
    package = tmp_path / "some_steps"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "one.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert problems("Python", function="some_steps.one:f") == []
    assert problems("Python", function="json:loads") == []
    assert problems("Python", function="os.path:join") == []
    assert problems("Python", function="math:floor") == []
    for name in ("no_such_steps", "some_steps.two", "some_steps.one.two"):
        assert f"module {name} does not exist" in problems("Python", function=f"{name}:f")[0]


def test_a_lookup_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    keys = {"on": "a:id", "fields": "x string"}
    table = tmp_path / "t.csv"
    assert "does not exist" in problems("Lookup", table=str(table), format="csv", **keys)[0]
    table.write_text("id,x\n")
    assert problems("Lookup", table=str(table), format="csv", **keys) == []
    assert problems("Lookup", table=f"file://{table}", format="csv", **keys) == []
    assert "not a Delta table" in problems("Lookup", table=str(tmp_path), **keys)[0]
    assert problems("Lookup", table="s3a://bucket/t", **keys) == []
    assert problems("Lookup", table=f"{tmp_path}/*.csv", format="csv", **keys) == []


def test_a_path_that_is_not_allowed_is_not_looked_at(tmp_path: Path) -> None:
    registry = Registry(access=Access(paths=(tmp_path,)))
    keys = {"on": "a:id", "fields": "x string", "format": "csv"}
    there, missing = (
        problems("Lookup", registry, table=path, **keys) for path in ("/etc/passwd", "/etc/no")
    )
    assert [text.replace("/etc/passwd", "/etc/no") for text in there] == missing
    assert "does not exist" not in missing[0]
