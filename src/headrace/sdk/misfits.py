"""What Kafka Connect says of values that do not fit a schema."""

from headrace.sdk.scalars import Type

__all__ = ["misfit", "null_misfit"]


def null_misfit(type_: Type, path: str) -> str:
    """Say that a null stands where a value is required."""
    return f'Invalid value: null used for required field: "{path}", schema type: {type_.value}'


def misfit(type_: Type, name: str | None, value: object, path: str, fault: str) -> str:
    """Say in Kafka Connect's words, but for the language, that a value does not fit, and why.

    Args:
        type_: The schema's type.
        name: The schema's name, if it has one.
        value: The value.
        path: Where it stands; empty for the whole.
        fault: What is wrong with it, as in "must be a text".
    """
    named = f' "{name}"' if name else ""
    where = f' for field: "{path}"' if path else ""
    return (
        f"Invalid Python object for schema{named} with type {type_.value}: "
        f"class {type(value).__name__}{where}: it {fault}."
    )
