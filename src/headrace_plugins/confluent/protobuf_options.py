"""The options of the conversion between Protobuf and Kafka Connect schemas, as Confluent's."""

from __future__ import annotations

from headrace.sdk.config import Importance, Settings, setting
from headrace_plugins.converters.scalars import unused_cache


class ProtoOptions(Settings, group="Schemas"):
    """The options of the conversion between Protobuf and Kafka Connect schemas."""

    enhanced: bool = setting(
        "Whether schema names are the full names of messages, including the package.",
        key="enhanced.protobuf.schema.support",
        default=False,
        importance=Importance.LOW,
    )
    words: bool = setting(
        "Whether nullable fields are written with the keyword optional, and only fields with "
        "it are read as nullable. Without this setting and wrapper.for.nullables, a null "
        "number is read as 0, and a null string as an empty string.",
        key="optional.for.nullables",
        default=False,
    )
    wrappers: bool = setting(
        "Whether nullable fields are written as wrapper messages, such as "
        "google.protobuf.Int64Value, and wrapper messages are read as their value.",
        key="wrapper.for.nullables",
        default=False,
    )
    raw_wrappers: bool = setting(
        "Whether a record that is a wrapper message is read as its value.",
        key="wrapper.for.raw.primitives",
        default=True,
        importance=Importance.LOW,
    )
    proto2_words: bool = setting(
        "Whether a missing optional field of Protobuf 2 is read as null, instead of its "
        "default.",
        key="optional.for.proto2",
        default=True,
        importance=Importance.LOW,
    )
    enum_numbers: bool = setting(
        "Whether enums are read as numbers, instead of names.",
        key="int.for.enums",
        default=False,
        importance=Importance.LOW,
    )
    structs_for_nulls: bool = setting(
        "Whether a missing message is read as a struct of defaults, instead of null.",
        key="generate.struct.for.nulls",
        default=False,
        importance=Importance.LOW,
    )
    union_places: bool = setting(
        "Whether the field for a oneof is named by the name and the index of the oneof, such "
        "as choice_0.",
        key="generate.index.for.unions",
        default=True,
        importance=Importance.LOW,
    )
    flat_unions: bool = setting(
        "Whether the fields of a oneof become fields of their message, instead of a nested "
        "struct.",
        key="flatten.unions",
        default=False,
        importance=Importance.LOW,
    )
    scrubs: bool = setting(
        "Whether names that Protobuf does not allow are replaced by valid names. If false, "
        "they are an error.",
        key="scrub.invalid.names",
        default=False,
        importance=Importance.LOW,
    )
    schemas_cache_config: int = unused_cache("Confluent")

    def union_field(self, name: str, place: int) -> str:
        """Return the name of the field for a `oneof`."""
        return f"{name}_{place}" if self.union_places else name
