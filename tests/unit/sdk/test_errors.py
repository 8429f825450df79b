"""Errors say what is wrong, where, and how to put it right."""

import pickle
from datetime import timedelta

import pytest

from headrace.model import PluginNotFoundError, ToleranceExceededError
from headrace.sdk import errors
from headrace.sdk.errors import (
    Category,
    ConfigError,
    ConfigErrors,
    HeadraceError,
    RetriableError,
)

NOT_TOLERATED = ToleranceExceededError(
    stage="transform", plugin="cast", exception="ValueError", message="bad", record="t:0:7"
)


def test_the_text_has_code_field_problem_and_fix() -> None:
    error = ConfigError(problem="does not exist.", fix="Create it.", field="path")
    assert str(error) == "[config.invalid] path: does not exist. Fix: Create it."


def test_the_text_leaves_out_what_there_is_not() -> None:
    assert str(ConfigError(problem="Wrong.")) == "[config.invalid] Wrong."


def test_an_error_without_a_problem_says_what_its_class_says() -> None:
    assert errors.DataLostError().problem.startswith("The source no longer has the data")


def test_several_errors_are_all_shown() -> None:
    several = ConfigErrors([ConfigError(problem="One."), ConfigError(problem="Two.")])
    assert "One." in str(several)
    assert "Two." in str(several)
    assert [e["problem"] for e in several.to_json()["errors"]] == ["One.", "Two."]


def test_several_errors_can_be_caught_as_one() -> None:
    with pytest.raises(ConfigError):
        raise ConfigErrors([ConfigError(problem="One.")])


def test_a_missing_plugin_offers_names_that_are_close() -> None:
    error = PluginNotFoundError("jbdc", known=["jdbc", "kafka"], kind="connector")
    assert error.close_matches == ("jdbc",)
    assert "jdbc" in error.fix


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(problem="p", fix="f", field="x"),
        ConfigErrors([ConfigError(problem="p", field="x")]),
        PluginNotFoundError("a", known=["b"]),
        RetriableError("busy", after=timedelta(seconds=5)),
        NOT_TOLERATED,
    ],
)
def test_an_error_survives_pickling(error: HeadraceError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.to_json() == error.to_json()


def test_codes_are_unique_and_dotted() -> None:
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    tree = [k for k in classes if issubclass(k, HeadraceError) and k is not HeadraceError]
    codes = [kind.code for kind in tree]
    assert len(set(codes)) == len(codes)
    assert all(code.count(".") == 1 and code == code.lower() for code in codes)


def test_the_category_says_who_has_to_act() -> None:
    assert ConfigError.category is Category.CONFIG
    assert PluginNotFoundError.category is Category.CONFIG
    assert errors.SetupError.category is Category.ENVIRONMENT
    assert NOT_TOLERATED.category is Category.RUN


def test_a_retriable_error_tells_the_wait_in_json() -> None:
    assert RetriableError("busy", after=timedelta(seconds=5)).to_json()["after_seconds"] == 5
