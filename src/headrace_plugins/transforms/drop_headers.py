"""Removes headers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import Transform
from headrace.sdk.config import (
    Importance,
    Settings,
    ValidList,
    setting,
)
from headrace_plugins.kafka.headers import without_headers

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


class DropHeadersSettings(Settings):
    """The settings of ``DropHeaders``."""

    headers: tuple[str, ...] = setting(
        "The name of the headers to be removed.",
        validator=ValidList(unique=True, allow_empty=False),
        importance=Importance.HIGH,
    )


class DropHeaders(Transform):
    """Removes all headers of some names from each record."""

    aliases = ("org.apache.kafka.connect.transforms.DropHeaders",)
    parts = False

    settings: DropHeadersSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        names = self.settings.headers
        return replace(shape, headers=without_headers(shape.headers, names))
