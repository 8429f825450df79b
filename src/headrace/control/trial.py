"""Tries a chain of transforms on records: the use-case behind the command and the route."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.control.converters import resolved
from headrace.control.definition_forms import flat, kafka_steps, section_steps
from headrace.control.planning import StepPlan, plan_steps
from headrace.control.validation import check_steps
from headrace.model import Definition
from headrace.sdk import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from headrace.model import StepSpec
    from headrace.plugins import Registry


Engine = Callable[[Sequence[StepPlan], Sequence[object]], list[dict[str, Any]]]
"""Runs a chain over records, and gives for each what each step made of it."""


def try_transforms(
    request: Mapping[str, Any], registry: Registry, engine: Engine
) -> dict[str, Any]:
    """Run a chain over sample records, without a connector.

    Args:
        request: ``{"config": {...}, "records": [...]}``. The config holds ``transforms`` as
            a connector's does, in Kafka Connect's form or as a list of sections; its other
            keys do not matter, so that a connector's whole config will do.
        registry: Where the plugins are.
        engine: What runs it.

    Returns:
        ``{"results": [...]}``, one for each record, see `headrace.dataplane.trial`.

    Raises:
        ConfigErrors: The request or the chain is not valid; all that is wrong at once.
    """
    config, records = _request(request)
    chain = resolved(Definition("chain", steps=_steps(config)), registry.references)
    steps = chain.steps
    if errors := check_steps(steps, registry).errors:
        raise ConfigErrors(
            error
            if isinstance(error, ConfigError)
            else ConfigError(error.problem, fix=error.fix, field=error.field)
            for error in errors
        )
    return {"results": engine(plan_steps(steps, registry), records)}


def _request(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[object]]:
    config, records = request.get("config"), request.get("records")
    errors = []
    if not isinstance(config, dict):
        fix = "Pass the keys of the chain, starting with transforms."
        errors.append(ConfigError("Expected an object.", field="config", fix=fix))
    if not isinstance(records, list):
        fix = 'Pass objects such as {"value": ...}.'
        errors.append(ConfigError("Expected a list.", field="records", fix=fix))
    if errors:
        raise ConfigErrors(errors)
    assert isinstance(config, dict)
    assert isinstance(records, list)
    return config, records


def _steps(config: Mapping[str, Any]) -> tuple[StepSpec, ...]:
    inner = config.get("config")
    keys = inner if isinstance(inner, dict) and "transforms" not in config else config
    if not keys.get("transforms"):
        raise ConfigErrors(
            [
                ConfigError(
                    "Has no steps.",
                    field="transforms",
                    fix="Name them, as in transforms=a and transforms.a.type=Cast.",
                )
            ]
        )
    if isinstance(keys["transforms"], list) and not all(
        isinstance(name, str) and f"transforms.{name}.type" in flat(keys)
        for name in keys["transforms"]
    ):
        return section_steps(keys["transforms"])
    return kafka_steps(flat(keys))
