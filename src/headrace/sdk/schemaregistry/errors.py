"""What a schema registry answers when it does not do what it was asked."""

from collections.abc import Sequence
from typing import Any, ClassVar

from typing_extensions import override

from headrace.sdk.errors import Category, HeadraceError

__all__ = [
    "IncompatibleSchemaError",
    "InvalidSchemaError",
    "RegistryRefusedError",
    "SchemaNotFoundError",
    "SchemaRegistryError",
]


class SchemaRegistryError(HeadraceError):
    """A schema registry did not do what it was asked.

    Args:
        problem: What is wrong. It never holds a password or a token.
        error_code: The code of Confluent's REST API, such as 40401.
        fix: What to do about it.
        field: The subject or key concerned.
    """

    code = "registry.failed"
    usual_error_code: ClassVar[int] = 50001

    def __init__(
        self,
        problem: str = "",
        *,
        error_code: int | None = None,
        fix: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, fix=fix, field=field)
        self.error_code = self.usual_error_code if error_code is None else error_code

    @property
    def status(self) -> int:
        """The HTTP status that goes with the code: 40401 goes with 404."""
        return int(str(self.error_code)[:3])

    @override
    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "error_code": self.error_code}


class SchemaNotFoundError(SchemaRegistryError):
    """The schema registry has no such subject, version or schema."""

    code = "registry.not_found"
    usual_error_code = 40403


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema does not fit the earlier ones of its subject.

    Args:
        problem: What is wrong.
        reasons: Each incompatibility, as far as the registry told.
        fix: What to do about it.
        field: The subject.
    """

    code = "registry.incompatible"
    usual_error_code = 409

    def __init__(
        self,
        problem: str = "",
        *,
        reasons: Sequence[str] = (),
        fix: str = "",
        field: str | None = None,
    ) -> None:
        super().__init__(problem, fix=fix, field=field)
        self.reasons: tuple[str, ...] = tuple(reasons)


class InvalidSchemaError(SchemaRegistryError):
    """The text is no schema of its type, or one of its references cannot be found."""

    code = "registry.invalid_schema"
    category = Category.CONFIG
    usual_error_code = 42201


class RegistryRefusedError(SchemaRegistryError):
    """The schema registry refused the request, or does not let this user make it."""

    code = "registry.refused"
    usual_error_code = 42205
