"""The registry's errors, with the codes and words of Confluent's REST API.

docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_plugins.confluent.schema_registry import (
    IncompatibleSchemaError,
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_registry.model import SubjectVersion


def no_subject(subject: str) -> SchemaNotFoundError:
    """Return the error for a subject that has no version."""
    problem = f"Subject '{subject}' not found."
    return SchemaNotFoundError(problem, error_code=40401, field=subject)


def no_version(subject: str, version: int | str) -> SchemaNotFoundError:
    """Return the error for a version that the subject does not have."""
    problem = f"Version {version} not found."
    return SchemaNotFoundError(problem, error_code=40402, field=subject)


def no_schema(name: int | str | None = None) -> SchemaNotFoundError:
    """Return the error for a schema that nobody registered."""
    shown = "" if name is None else f" {name}"
    return SchemaNotFoundError(f"Schema{shown} not found", error_code=40403)


def subject_deleted(subject: str) -> SchemaNotFoundError:
    """Return the error for deleting a subject that is deleted already."""
    problem = f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently"
    return SchemaNotFoundError(problem, error_code=40404, field=subject)


def subject_not_deleted(subject: str) -> SchemaNotFoundError:
    """Return the error for deleting for good what was not deleted before."""
    problem = f"Subject '{subject}' was not deleted first before being permanently deleted"
    return SchemaNotFoundError(problem, error_code=40405, field=subject)


def version_deleted(version: SubjectVersion) -> SchemaNotFoundError:
    """Return the error for deleting a version that is deleted already."""
    problem = (
        f"Subject '{version.subject}' Version {version.version} was soft deleted. "
        "Set permanent=true to delete permanently"
    )
    return SchemaNotFoundError(problem, error_code=40406, field=version.subject)


def version_not_deleted(version: SubjectVersion) -> SchemaNotFoundError:
    """Return the error for deleting a version for good that was not deleted before."""
    problem = (
        f"Subject '{version.subject}' Version {version.version} was not deleted "
        "first before being permanently deleted"
    )
    return SchemaNotFoundError(problem, error_code=40407, field=version.subject)


def not_configured(subject: str) -> SchemaNotFoundError:
    """Return the error for a level that a subject does not have of its own."""
    problem = f"Subject '{subject}' does not have subject-level compatibility configured"
    return SchemaNotFoundError(problem, error_code=40408, field=subject)


def bad_version(text: str) -> InvalidSchemaError:
    """Return the error for a version that is no number and not latest."""
    problem = (
        f"The specified version '{text}' is not a valid version id. Allowed values are between "
        '[1, 2^31-1] and the string "latest"'
    )
    return InvalidSchemaError(problem, error_code=42202)


def bad_subject(subject: str) -> RegistryRefusedError:
    """Return the error for a subject that cannot be one."""
    problem = f"The specified subject '{subject}' is not a valid subject."
    return RegistryRefusedError(problem, error_code=42208, field=subject)


def bad_level(text: str) -> RegistryRefusedError:
    """Return the error for a compatibility level that does not exist."""
    problem = (
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        f"backward_transitive, forward_transitive, and full_transitive; not {text!r}."
    )
    return RegistryRefusedError(problem, error_code=42203)


def not_permitted(problem: str, fix: str = "") -> RegistryRefusedError:
    """Return the error for what this registry does not permit."""
    return RegistryRefusedError(problem, error_code=42205, fix=fix)


def in_use(version: SubjectVersion) -> RegistryRefusedError:
    """Return the error for deleting what other schemas refer to."""
    problem = (
        "One or more references exist to the schema "
        f"{{subject={version.subject},version={version.version}}}."
    )
    return RegistryRefusedError(problem, error_code=42206, field=version.subject)


def incompatible(subject: str, reasons: Sequence[str]) -> IncompatibleSchemaError:
    """Return the error for a schema that does not fit the earlier ones."""
    problem = (
        "Schema being registered is incompatible with an earlier schema for subject "
        f'"{subject}", details: [{", ".join(reasons)}]'
    )
    return IncompatibleSchemaError(problem, reasons=reasons, field=subject)
