"""Renames, keeps and removes fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import (
    Importance,
    Lambda,
    setting,
)
from headrace.sdk.sqltext import FieldPath, FieldSyntax
from headrace_plugins.transforms.null_defaults import NullDefaults

if TYPE_CHECKING:
    from headrace.sdk import RecordExpr


def _check_renames(name: str, value: object) -> None:
    pairs = [str(pair) for pair in value] if isinstance(value, list | tuple) else []
    for pair in pairs:
        # As Java splits: nothing at the end counts as nothing.
        if len(pair.rstrip(":").split(":")) != 2:  # noqa: PLR2004 - old and new
            raise ConfigError(
                problem=f"Invalid value [{', '.join(pairs)}] for configuration {name}: "
                f"Invalid rename mapping: {pair}",
                field=name,
                fix="Write it as old:new.",
            )


class ReplaceFieldSettings(NullDefaults, FieldSyntax):
    """The settings of ``ReplaceField``."""

    exclude: tuple[str, ...] = setting(
        "Fields to remove. This goes before include.", default=()
    )
    include: tuple[str, ...] = setting(
        "Fields to keep; all that are not excluded when empty.", default=()
    )
    renames: tuple[str, ...] = setting(
        "Fields to rename, as old:new pairs.",
        default=(),
        validator=Lambda(_check_renames, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz"),
        importance=Importance.MEDIUM,
    )


class ReplaceField(Transform):
    """Keeps only some fields, removes some, and renames some.

    A path in ``renames`` is that of the old field; the new name is a name alone, at the same
    place.
    """

    aliases = ("org.apache.kafka.connect.transforms.ReplaceField",)

    settings: ReplaceFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, "field replacement")
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        include = self.settings.field_paths(self.settings.include)
        if include:
            part = part.kept(include)
        exclude = self.settings.field_paths(self.settings.exclude)
        return self.with_part(shape, part.removed(exclude).renamed(self._renames()))

    def _renames(self) -> dict[FieldPath, str]:
        pairs = (pair.split(":") for pair in self.settings.renames)
        return {
            self.settings.field_path(old): self.settings.field_path(new).name
            for old, new in pairs
        }
