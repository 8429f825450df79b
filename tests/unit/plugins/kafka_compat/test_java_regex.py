"""Names are matched as Java would, in linear time, or it is left to Java."""

import pytest

from headrace_plugins.kafka_compat.java_regex import JavaRegex


def test_a_pattern_that_backtracks_for_ever_is_matched_at_once():
    assert JavaRegex.of("(a+)+b").matches("a" * 200) is False


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b\E.*", "axbc", False),
        ("(?i)ORDERS", "orders", True),
        ("(?i).*k", "\u8ba2\u5355K", True),
        (r"\w+", "\u8ba2\u5355", False),
        ("(?<shop>[a-z]+)-.*", "a-b", True),
    ],
)
def test_what_both_engines_see_alike_is_matched_here(pattern, text, matches):
    assert JavaRegex.of(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(a)\1", "aa"),
        ("(?=a)a", "a"),
        ("(?<!a)a", "a"),
        ("a++", "a"),
        (r"(?<n>a)\k<n>", "aa"),
        (r"\p{L}", "a"),
        ("[a&&b]", "a"),
        ("a.b", "a\rb"),
        (r"a\b.*", "a\u8ba2"),
        ("(?i)k", "\u212a"),
        ("(?i)\u00e9", "\u00c9"),
    ],
)
def test_what_the_engines_may_see_otherwise_is_left_to_java(pattern, text):
    assert JavaRegex.of(pattern).matches(text) is None


def test_a_replacement_refers_to_groups_as_in_java():
    regex = JavaRegex.of("(?<shop>[a-z]+)-([0-9]+)")
    expand = regex.replacement(r"$2.${shop}\$", key="replacement")
    assert regex.re2_for("a-1").sub(expand, "a-1") == "1.a$"
