"""How Protobuf and Kafka Connect's schemas become each other: Confluent's keys."""

from __future__ import annotations

from headrace.sdk.config import Importance, Settings, setting
from headrace_plugins.converters.scalars import unused_cache


class ProtoOptions(Settings, group="Schemas"):
    """What the keys say; each is described there."""

    enhanced: bool = setting(
        "Whether schemas have the full names of messages, with their packages.",
        key="enhanced.protobuf.schema.support",
        default=False,
        importance=Importance.LOW,
    )
    words: bool = setting(
        "Whether fields that may be null are written with the word optional, and only "
        "fields that have it are read as such. Without it or wrappers a null number is read "
        "as 0, and a null text as an empty one.",
        key="optional.for.nullables",
        default=False,
    )
    wrappers: bool = setting(
        "Whether fields that may be null are written as messages of one value, such as "
        "google.protobuf.Int64Value, and these are read as the value.",
        key="wrapper.for.nullables",
        default=False,
    )
    raw_wrappers: bool = setting(
        "Whether a record that is such a message is read as its value.",
        key="wrapper.for.raw.primitives",
        default=True,
        importance=Importance.LOW,
    )
    proto2_words: bool = setting(
        "Whether an optional field of Protobuf 2 that is not there is null, instead of its "
        "default.",
        key="optional.for.proto2",
        default=True,
        importance=Importance.LOW,
    )
    enum_numbers: bool = setting(
        "Whether enums are read as numbers, instead of as their names.",
        key="int.for.enums",
        default=False,
        importance=Importance.LOW,
    )
    structs_for_nulls: bool = setting(
        "Whether a message that is not there is read as one of defaults, instead of as null.",
        key="generate.struct.for.nulls",
        default=False,
        importance=Importance.LOW,
    )
    union_places: bool = setting(
        "Whether the field for a oneof is called by its name and its place: choice_0.",
        key="generate.index.for.unions",
        default=True,
        importance=Importance.LOW,
    )
    flat_unions: bool = setting(
        "Whether the fields of a oneof are fields of their message, instead of in a struct.",
        key="flatten.unions",
        default=False,
        importance=Importance.LOW,
    )
    scrubs: bool = setting(
        "Whether names that Protobuf does not allow are written in another way, instead of "
        "being an error.",
        key="scrub.invalid.names",
        default=False,
        importance=Importance.LOW,
    )
    schemas_cache_config: int = unused_cache("Confluent")

    def union_field(self, name: str, place: int) -> str:
        """Return what the field for a `oneof` is called."""
        return f"{name}_{place}" if self.union_places else name
