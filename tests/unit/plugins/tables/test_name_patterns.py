"""What names a pattern matches, beside models that know nothing of regular expressions."""

import calendar
import fnmatch
import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.sdk import ConfigError
from headrace_plugins.table_mapping import NamePattern, NameTemplate

FIELD = "table.mapping[2].from"


def pattern(text: str) -> NamePattern:
    return NamePattern.of(text, field=FIELD)


numbers = st.integers(0, 20_000)


@given(numbers, numbers, st.integers(0, 6), st.integers(0, 25_000), st.integers(1, 6))
@example(0, 31, 4, 31, 4)
@example(9, 10, 0, 10, 1)
@example(0, 0, 0, 0, 1)
def test_a_range_matches_its_numbers_as_they_are_written_in_it(
    one: int, other: int, width: int, number: int, digits: int
) -> None:
    low, high = sorted((one, other))
    width = width if width >= len(str(high)) else 0
    written = [str(each).zfill(width) for each in (low, high)]
    name = f"offer{number:0{digits}}"
    # Padded are those that begin with a zero which is not the whole number.
    padded = any(len(each) > 1 and each[0] == "0" for each in written)
    same_form = len(f"{number:0{digits}}") == (width if padded else len(str(number)))
    expected = low <= number <= high and same_form
    assert (pattern(f"offer[{'-'.join(written)}]").match(name) is not None) == expected


@given(
    st.integers(1, 9999),
    st.integers(0, 14),
    st.integers(0, 33),
    st.tuples(*[st.sampled_from(["", "-", "/", ".", "_"])] * 2),
    st.sampled_from(["yyyy", "yyyyMM", "yyyyMMdd"]),
)
@example(2023, 2, 29, ("", ""), "yyyyMMdd")
@example(2024, 1, 2, ("-", "/"), "yyyyMMdd")
def test_a_date_matches_days_that_there_are_in_some_year(
    year: int, month: int, day: int, signs: tuple[str, str], form: str
) -> None:
    one, other = signs
    parts = {"yyyy": f"{year:04}", "yyyyMM": f"{year:04}{one}{month:02}"}
    parts["yyyyMMdd"] = f"{parts['yyyyMM']}{other}{day:02}"
    is_month = 1 <= month <= 12 and one != "_"
    is_day = is_month and one == other and 1 <= day <= calendar.monthrange(2024, month)[1]
    expected = {"yyyy": True, "yyyyMM": is_month, "yyyyMMdd": is_day}[form]
    found = pattern(f"t_${{{form}}}").match(f"t_{parts[form]}")
    assert found == ((parts[form],) if expected else None)


letters = st.text(string.ascii_letters + "._-$()+|é\n", max_size=6)


@given(st.lists(st.one_of(letters, st.sampled_from(["*", "?"])), max_size=5), letters)
def test_wildcards_match_what_a_shell_s_do(parts: list[str], name: str) -> None:
    text = "".join(parts)
    if not text or "${" in text:
        return
    found = pattern(text).match(name)
    assert (found is not None) == fnmatch.fnmatchcase(name, text)
    if found is not None:
        assert "".join(_filled(text, found)) == name


def _filled(text: str, captured: tuple[str, ...]) -> list[str]:
    left = iter(captured)
    return [next(left) if each in "*?" else each for each in text]


@given(st.text(min_size=1, max_size=20))
def test_a_name_in_a_regular_expression_matches_itself_only(name: str) -> None:
    found = pattern(f"/{re.escape(name)}/") if "\0" not in name else None
    if found is not None:
        assert found.match(name) == ()
        assert found.match(f"{name}x") is None


def test_what_a_regular_expression_captures_is_given_also_where_a_group_took_no_part() -> None:
    assert pattern(r"/shop_(\d+)(?:\.(\w+))?/").match("shop_12") == ("12", "")


def test_parts_of_all_kinds_go_together() -> None:
    found = pattern("db[1-3]_*.t_${yyyyMM}")
    assert found.groups == 3
    assert found.match("db2_x.t_2026-01") == ("2", "x", "2026-01")
    assert found.match("db4_x.t_2026-01") is None


def test_a_regular_expression_that_takes_other_engines_for_ever_is_quick() -> None:
    assert pattern("/(a+)+b/").match("a" * 100_000) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "got nothing"),
        ("t[31-0]", r"\[31-0\] in 't\[31-0\]' is descending"),
        ("t[a-z]", "Invalid range"),
        ("t[0-31", "not closed"),
        ("t_${yyyyMM", "not closed"),
        ("t[01-123]", "different lengths"),
        ("t[0-99999999999999999999]", "too many digits"),
        ("t_${yyMM}", "Invalid date"),
        ("${topic}", "Invalid date"),
        ("/(/", "Invalid regular expression"),
        ("/a(?=b)/", "Invalid regular expression"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_an_error_of_its_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as told:
        pattern(text)
    assert told.value.field == FIELD
    assert told.value.fix


def test_a_template_is_filled_with_the_parts_of_the_name_and_what_was_captured() -> None:
    of = [pattern("/([a-z]+)_(.*)/")]
    template = NameTemplate.of("${schema}.${table}/${topic}/${2}/${1}", of, field="f")
    assert template.filled("a.b.c", ("x", "y"), field="f") == "b.c/a.b.c/y/x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${2}", r"captures one part, \$\{1\}, so there is no \$\{2\}"),
        ("${0}", "Unknown placeholder"),
        ("${tpoic}", "Unknown placeholder"),
        ("${topic", "Unknown placeholder"),
        (" ", "got nothing"),
    ],
)
def test_a_template_with_what_does_not_exist_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        NameTemplate.of(text, [pattern("t_*")], field="f")


def test_a_name_of_one_part_has_no_schema() -> None:
    template = NameTemplate.of("${schema}_x", field="f")
    with pytest.raises(ConfigError, match="has no schema"):
        template.filled("orders", field="f")
