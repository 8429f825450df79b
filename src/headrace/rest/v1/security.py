"""How clients say who they are, as OpenAPI has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.rest.v1.roles import needed_role

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SCHEMES", "add_security"]

SCHEMES: Mapping[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token, as `headrace token create` makes it.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "The token as the password of any user.",
    },
}


def add_security(paths: Mapping[str, Mapping[str, dict[str, Any]]]) -> None:
    """Say of each operation that it needs a token, and of which role."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            role = needed_role(method.upper(), path).value
            operation["security"] = [{scheme: [role]} for scheme in SCHEMES]
