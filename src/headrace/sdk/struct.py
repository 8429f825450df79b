"""Values of type STRUCT: values by field, checked against a schema."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, final

from typing_extensions import override

from headrace.sdk.config.values import shown
from headrace.sdk.errors import RecordError
from headrace.sdk.frozen import freeze, identity, thaw
from headrace.sdk.schema import Field, Schema, StructValue, Type, validate_value


@final
class Struct(StructValue):
    """Values for the fields of a STRUCT schema.

    `put` checks each value; `validate` checks that no required value is missing. Two structs
    are equal if they have the same schema and the same values.
    A struct is mutable until it is `frozen`; only a frozen struct is hashable.

    Raises RecordError: the schema is not a STRUCT, or a value does not fit its field.
    """

    __slots__ = ("_frozen", "_schema", "_values")

    def __init__(self, schema: Schema, values: Mapping[str, Any] | None = None) -> None:
        if schema.type is not Type.STRUCT:
            raise RecordError(problem=f"Not a struct schema: {schema.type.value}")
        self._schema = schema
        self._values: list[Any] = [None] * len(schema.fields)
        self._frozen = False
        for name, value in (values or {}).items():
            self.put(name, value)

    @classmethod
    def of(cls, schema: Schema, values: Mapping[str, Any]) -> "Struct":
        """Create a struct from plain values: mappings become structs where the schema has them.

        Raises RecordError: a value does not fit, or a required field has no value.
        """
        known = {field.name: field.schema for field in schema.fields}
        made = {n: _shaped(known[n], v) if n in known else v for n, v in values.items()}
        struct = cls(schema, made)
        struct.validate()
        return struct

    @property
    @override
    def schema(self) -> Schema:
        """The schema of this struct."""
        return self._schema

    def put(self, field: str | Field, value: Any) -> "Struct":
        """Set a field's value, and return this struct, so that calls can be chained.

        Raises RecordError: the field does not exist, the value does not fit, or the struct is
        frozen.
        """
        if self._frozen:
            raise RecordError(problem="A frozen struct cannot be changed.")
        found = self._find(field)
        validate_value(found.schema, value, path=found.name)
        self._values[found.index] = value
        return self

    def get(self, field: str | Field) -> Any:
        """Return a field's value, or its default if it has no value.

        Raises RecordError: the field does not exist.
        """
        found = self._find(field)
        value = self._values[found.index]
        return thaw(found.schema.default if value is None else value)

    def get_without_default(self, field: str | Field) -> Any:
        """Return a field's value, or None if it has no value, regardless of its default.

        Raises RecordError: the field does not exist.
        """
        return thaw(self._values[self._find(field).index])

    def __getitem__(self, field: str) -> Any:
        return self.get(field)

    def keys(self) -> list[str]:
        """Return the names of the fields, so that `dict(struct)` and `**struct` work."""
        return [field.name for field in self._schema.fields]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    @override
    def validate(self) -> None:
        """Check that every required field without a default has a value.

        Raises RecordError: such a field has no value.
        """
        for field, value in zip(self._schema.fields, self._values, strict=True):
            if value is None and field.schema.default is not None:
                continue
            validate_value(field.schema, value, path=field.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the values by field name, with defaults; nested structs as dictionaries."""
        return {field.name: _plain(self.get(field)) for field in self._schema.fields}

    @override
    def frozen(self) -> "Struct":
        return (
            self
            if self._frozen
            else self._copied([freeze(v) for v in self._values], frozen=True)
        )

    @override
    def thawed(self) -> "Struct":
        return self._copied([thaw(value) for value in self._values], frozen=False)

    @override
    def identity(self) -> Hashable:
        return self._schema.bare(), identity(self._values)

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        return self.identity() == other.identity()

    @override
    def __hash__(self) -> int:
        if not self._frozen:
            message = "A struct can only be hashed once it is frozen."
            raise TypeError(message)
        return hash(self.identity())

    @override
    def __repr__(self) -> str:
        pairs = zip(self._schema.fields, self._values, strict=True)
        texts = (f"{field.name}={shown(value)}" for field, value in pairs if value is not None)
        return f"Struct{{{','.join(texts)}}}"

    def _copied(self, values: list[Any], *, frozen: bool) -> "Struct":
        struct = Struct(self._schema)
        struct._values = values
        struct._frozen = frozen
        return struct

    def _find(self, field: str | Field) -> Field:
        name = field if isinstance(field, str) else field.name
        found = self._schema.field(name)
        if found is None:
            names = ", ".join(known.name for known in self._schema.fields)
            raise RecordError(
                problem=f"{name} is not a valid field name.",
                fix=f"The fields are: {names or 'none'}.",
                field=name,
            )
        return found


def _shaped(schema: Schema, value: Any) -> Any:
    match schema.type, value:
        case Type.STRUCT, Mapping():
            return Struct.of(schema, value)
        case Type.ARRAY, list() | tuple() if schema.value_schema is not None:
            return [_shaped(schema.value_schema, item) for item in value]
        case Type.MAP, Mapping() if schema.value_schema is not None:
            return {key: _shaped(schema.value_schema, item) for key, item in value.items()}
        case _:
            return value


def _plain(value: Any) -> Any:
    match value:
        case Struct():
            return value.to_dict()
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return value
