"""Schemas that were remembered under the numbers of sinks, before these went by names."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.task_doubles import Schemas

from headrace.evolution import Evolution, Target
from headrace.model import SchemaChangeError
from headrace.sdk import Schema
from headrace.sdk.schema_evolution import EvolutionPolicy, Handling

BEFORE = Schema.struct({"id": Schema.int64()})
AFTER = Schema.struct({"id": Schema.int64(), "more": Schema.int64(optional=True)})
SINK: Any = SimpleNamespace(known_schema=lambda _: None)
TARGET = Target(SINK, 0, "name", "t")


def shape(schema: Schema) -> Any:
    return SimpleNamespace(value=SimpleNamespace(schema=schema))


def evolution(memory: Schemas, sinks: int) -> Evolution:
    return Evolution(policies=[EvolutionPolicy(Handling.REJECT)] * sinks, memory=memory)


def test_the_number_of_the_only_sink_stands_for_its_name() -> None:
    memory = Schemas({"sink 0: t": BEFORE})
    with pytest.raises(SchemaChangeError):
        evolution(memory, 1).fitted(shape(AFTER), TARGET)
    evolution(memory, 1).accept(TARGET, BEFORE)
    assert memory.stored["sink name: t"] == BEFORE


def test_among_several_sinks_a_number_may_have_been_anothers() -> None:
    brought = shape(AFTER)
    assert evolution(Schemas({"sink 0: t": BEFORE}), 2).fitted(brought, TARGET) is brought
