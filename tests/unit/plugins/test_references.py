"""Values stand in place of references, and are told nowhere."""

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from typing_extensions import override

from headrace.control import check_definition, config_infos, plan_tasks
from headrace.model import Definition, PluginSpec, StepSpec
from headrace.plugins import ProviderSettings, Registry, Secrets
from headrace.plugins.references import References
from headrace.sdk import (
    ConfigError,
    ConfigErrors,
    ConfigProvider,
    HeadraceError,
    ProviderContext,
    SinkError,
)
from headrace.sdk.config import Config, ConfigDef

SECRET = "s3cr3t-of-the-tests"  # noqa: S105 - no secret


class Known(ConfigProvider):
    """Knows some values, and remembers what it was asked."""

    asked: ClassVar[list[tuple[str, tuple[str, ...]]]] = []

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    @override
    def __init__(self, config: Config, context: ProviderContext) -> None:
        pass

    @override
    def values(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        self.asked.append((path, tuple(keys)))
        if path == "broken":
            problem = "It is broken."
            raise ConfigError(problem, fix="Mend it.")
        held = {"secret": SECRET, "number": "two", "nested": "${known:secret}", "a:b": "colon"}
        return {key: held[key] for key in keys if key in held}


@pytest.fixture
def references() -> References:
    Known.asked.clear()
    return References(lambda _name, **_: Known, frozenset({"known"}), ProviderSettings())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${known:secret}", SECRET),
        ("${known:any/path:secret}", SECRET),
        ("a-${known:secret}-${known:p:secret}", f"a-{SECRET}-{SECRET}"),
        ("${known:nested}", "${known:secret}"),
        ("${known:p:a:b}", "colon"),
        ("${unknown:secret}", "${unknown:secret}"),
        ("${known}", "${known}"),
        ("$known:secret", "$known:secret"),
        ("${x${known:secret}}", f"${{x{SECRET}}}"),
        ("${field}-$1-{{7*7}}", "${field}-$1-{{7*7}}"),
    ],
)
def test_what_a_text_stands_for(references: References, text: str, value: str) -> None:
    assert references.resolved({"key": text}) == {"key": value}


@pytest.mark.parametrize("part", ["${", "${a:", "${a:b:", "${known", "$", "${a:${b}"])
def test_hostile_texts_take_no_longer_than_others(references: References, part: str) -> None:
    text = part * (300_000 // len(part))
    begun = time.process_time()
    assert references.resolved({"key": text}) == {"key": text}
    assert time.process_time() - begun < 5


def test_a_provider_is_asked_once_for_each_path(references: References) -> None:
    config = {
        "a": "${known:p:secret}",
        "b": "${known:p:number}${known:p:secret}",
        "c": "${known:q:secret}",
    }
    references.resolved(config)
    assert Known.asked == [("p", ("number", "secret")), ("q", ("secret",))]


def test_every_reference_without_a_value_is_told_with_its_field(references: References) -> None:
    config = {"a": "${known:x:none}", "b": "${known:broken:secret}", "c": "${known:secret}"}
    with pytest.raises(ConfigErrors) as refused:
        references.resolved(config)
    told = {error.field: (error.problem, error.fix) for error in refused.value.errors}
    assert told["b"] == ("It is broken.", "Mend it.")
    assert told["a"][0] == "The reference ${known:x:none} has no value."
    assert set(told) == {"a", "b"}


def definition(path: Path) -> Definition:
    fields = {"fields": "${env:SEC_TESTS_NUMBER}"}
    step = StepSpec("mask", "MaskField", fields, place="transforms.mask")
    return Definition(
        "c",
        sinks=(PluginSpec("file", {"file": str(path), "connector.class": "file"}),),
        topics=("${env:SEC_TESTS_TOPICS}", "third"),
        steps=(step,),
        common={"tasks.max": "${env:SEC_TESTS_NUMBER}"},
        strict=False,
    )


def test_the_plugins_of_tasks_get_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEC_TESTS_TOPICS", "first, second")
    monkeypatch.setenv("SEC_TESTS_NUMBER", "2")
    given = definition(tmp_path / "${env:SEC_TESTS_NUMBER}")
    assert not check_definition(given, Registry()).errors
    plans = plan_tasks(given, Registry(), None, lambda _: ())  # type: ignore[arg-type]  # a sink asks nothing
    assert [plan.from_topic for plan in plans] == ["first", "second", "third"]
    assert plans[0].common.tasks_max == 2
    assert plans[0].sinks[0].config["file"] == str(tmp_path / "2")


def test_a_check_tells_what_leads_nowhere_and_shows_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEC_TESTS_TOPICS", "first")
    monkeypatch.delenv("SEC_TESTS_NUMBER", raising=False)
    errors = check_definition(definition(tmp_path / "x"), Registry()).errors
    assert {error.field for error in errors} == {"tasks.max", "transforms.mask.fields"}
    assert all("${env:SEC_TESTS_NUMBER}" in error.problem for error in errors)
    monkeypatch.setenv("SEC_TESTS_NUMBER", SECRET)
    errors = check_definition(definition(tmp_path / "x"), Registry()).errors
    assert [error.field for error in errors] == ["tasks.max"]
    assert SECRET not in str(errors[0])
    assert "[hidden]" in errors[0].problem


def test_the_answer_to_a_validation_shows_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEC_TESTS_NUMBER", SECRET)
    config = {
        "name": "c",
        "connector.class": "FileStreamSinkConnector",
        "topics": "t",
        "file": "/tmp/${env:SEC_TESTS_NUMBER}",  # noqa: S108 - nothing is written
        "tasks.max": "${env:SEC_TESTS_NUMBER}",
        "errors.tolerance": "${env:SEC_TESTS_NONE}",
    }
    answer = config_infos(config, Registry()).to_kafka_json()
    shown = {each["value"]["name"]: each["value"] for each in answer["configs"]}
    assert shown["file"]["value"] == config["file"]
    assert shown["tasks.max"]["value"] == "${env:SEC_TESTS_NUMBER}"
    wrong, _ = shown["tasks.max"]["errors"]
    assert wrong.startswith("Invalid value [hidden] for configuration tasks.max")
    [missing] = shown["errors.tolerance"]["errors"]
    assert missing == "The reference ${env:SEC_TESTS_NONE} has no value."
    assert SECRET not in str(answer)


def test_errors_show_no_secret_that_was_met() -> None:
    secrets = Secrets()
    secrets.remember([SECRET, f"{SECRET}-longer", "abc", "true", ""])
    assert secrets.redacted(f"a {SECRET}-longer, {SECRET}") == "a [hidden], [hidden]"
    assert secrets.redacted("abc is true") == "abc is true"
    ours = secrets.redacted_error(SinkError(f"no {SECRET}", fix=f"not {SECRET}", field="f"))
    assert isinstance(ours, SinkError)
    assert str(ours) == "[sink.failed] f: no [hidden] Fix: not [hidden]"
    others = secrets.redacted_error(ValueError(f"no {SECRET}"))
    assert isinstance(others, HeadraceError)
    assert others.problem == "ValueError: no [hidden]"
    several = secrets.redacted_error(ConfigErrors([ConfigError(SECRET, field="f")]))
    assert isinstance(several, ConfigErrors)
    assert [error.problem for error in several.errors] == ["[hidden]"]
    fine = ValueError("fine")
    assert secrets.redacted_error(fine) is fine
