"""Field paths: Kafka Connect's two syntaxes."""

import pytest

from headrace.sdk import ConfigError
from headrace.sdk.sqltext import FieldPath, FieldSyntax


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a", "b", "c"]),
        ("`a.b`.c", ["a.b", "c"]),
        ("a.`b.c`", ["a", "b.c"]),
        ("`a`", ["a"]),
        ("a`b", ["a`b"]),
        ("`a`b`.c", ["a`b", "c"]),
        (r"`a\`.b`.c", ["a`.b", "c"]),
        ("a..b", ["a", "", "b"]),
        ("a.", ["a", ""]),
        (".", ["", ""]),
        ("", [""]),
    ],
)
def test_the_second_syntax_splits_at_dots_outside_back_ticks(
    text: str, steps: list[str]
) -> None:
    assert list(FieldPath.parse(text, "v2").steps) == steps


def test_the_first_syntax_takes_the_whole_text_as_one_name() -> None:
    assert FieldPath.parse("`a.b`.c").steps == ("`a.b`.c",)


@pytest.mark.parametrize("text", ["`a", "a.`b", r"`a\`", "`a.b"])
def test_a_back_tick_that_is_not_closed_is_a_wrong_configuration(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        FieldPath.parse(text, "V2")
    assert caught.value.problem.startswith(f"Incomplete backtick pair in path: [{text}]")
    assert f"position {text.index('`')} " in caught.value.problem


def test_the_key_chooses_the_syntax_in_any_case_and_is_the_first_by_default() -> None:
    definition = FieldSyntax.config_def()
    first = FieldSyntax.from_config(definition.parse({}))
    assert first.field_path("a.b").steps == ("a.b",)
    second = FieldSyntax.from_config(definition.parse({"field.syntax.version": "v2"}))
    assert second.field_paths(["a.b"])[0].steps == ("a", "b")
    with pytest.raises(ConfigError):
        definition.parse({"field.syntax.version": "V3"})
