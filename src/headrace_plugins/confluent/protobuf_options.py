"""How Protobuf and Kafka Connect's schemas become each other: Confluent's keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sdk.config import ConfigDef, ConfigType, Importance
from headrace_plugins.converters.keys import unused_cache_def

if TYPE_CHECKING:
    from headrace.sdk.config import Config

_FLAGS = {
    "enhanced.protobuf.schema.support": (
        False,
        "Whether schemas have the full names of messages, with their packages.",
    ),
    "optional.for.nullables": (
        False,
        (
            "Whether fields that may be null are written with the word optional, and only "
            "fields that have it are read as such. Without it or wrappers a null number is "
            "read as 0, and a null text as an empty one."
        ),
    ),
    "wrapper.for.nullables": (
        False,
        (
            "Whether fields that may be null are written as messages of one value, such as "
            "google.protobuf.Int64Value, and these are read as the value."
        ),
    ),
    "wrapper.for.raw.primitives": (
        True,
        "Whether a record that is such a message is read as its value.",
    ),
    "optional.for.proto2": (
        True,
        (
            "Whether an optional field of Protobuf 2 that is not there is null, instead of its "
            "default."
        ),
    ),
    "int.for.enums": (False, "Whether enums are read as numbers, instead of as their names."),
    "generate.struct.for.nulls": (
        False,
        "Whether a message that is not there is read as one of defaults, instead of as null.",
    ),
    "generate.index.for.unions": (
        True,
        "Whether the field for a oneof is called by its name and its place: choice_0.",
    ),
    "flatten.unions": (
        False,
        "Whether the fields of a oneof are fields of their message, instead of in a struct.",
    ),
    "scrub.invalid.names": (
        False,
        (
            "Whether names that Protobuf does not allow are written in another way, instead of "
            "being an error."
        ),
    ),
}
_IMPORTANT = {"optional.for.nullables", "wrapper.for.nullables"}


@dataclass(frozen=True)
class ProtoOptions:
    """What the keys say; each is described there."""

    enhanced: bool = False
    words: bool = False
    wrappers: bool = False
    raw_wrappers: bool = True
    proto2_words: bool = True
    enum_numbers: bool = False
    structs_for_nulls: bool = False
    union_places: bool = True
    flat_unions: bool = False
    scrubs: bool = False

    @classmethod
    def of(cls, config: Config) -> ProtoOptions:
        """Return what a configuration says."""
        return cls(
            enhanced=config.get_bool("enhanced.protobuf.schema.support"),
            words=config.get_bool("optional.for.nullables"),
            wrappers=config.get_bool("wrapper.for.nullables"),
            raw_wrappers=config.get_bool("wrapper.for.raw.primitives"),
            proto2_words=config.get_bool("optional.for.proto2"),
            enum_numbers=config.get_bool("int.for.enums"),
            structs_for_nulls=config.get_bool("generate.struct.for.nulls"),
            union_places=config.get_bool("generate.index.for.unions"),
            flat_unions=config.get_bool("flatten.unions"),
            scrubs=config.get_bool("scrub.invalid.names"),
        )

    def union_field(self, name: str, place: int) -> str:
        """Return what the field for a `oneof` is called."""
        return f"{name}_{place}" if self.union_places else name


def protobuf_def() -> ConfigDef:
    """Return the keys."""
    definition = ConfigDef()
    for name, (default, doc) in _FLAGS.items():
        definition = definition.define(
            name,
            ConfigType.BOOLEAN,
            default,
            importance=Importance.MEDIUM if name in _IMPORTANT else Importance.LOW,
            doc=doc,
            group="Schemas",
        )
    return definition.merged(unused_cache_def("schemas.cache.config", sake="Confluent"))
