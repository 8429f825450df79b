"""Renames, keeps and removes fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from headrace.sdk import (
    ConfigError,
    FieldPath,
    Transform,
    field_path,
    field_paths,
    with_field_syntax,
)
from headrace.sdk.config import ConfigDef, ConfigType, Importance, Lambda
from headrace_plugins.transforms.null_defaults import NULL_DEFAULTS, with_null_defaults

if TYPE_CHECKING:
    from headrace.sdk import Shape


class ReplaceField(Transform):
    """Keeps only some fields, removes some, and renames some.

    A path in ``renames`` is that of the old field; the new name is a name alone, at the same
    place.
    """

    aliases = ("org.apache.kafka.connect.transforms.ReplaceField",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        definition = (
            ConfigDef()
            .define(
                "exclude",
                ConfigType.LIST,
                "",
                doc="Fields to remove. This goes before include.",
            )
            .define(
                "include",
                ConfigType.LIST,
                "",
                doc="Fields to keep; all that are not excluded when empty.",
            )
            .define(
                "renames",
                ConfigType.LIST,
                "",
                validator=Lambda(
                    _check_renames, "list of colon-delimited pairs, e.g. foo:bar,abc:xyz"
                ),
                importance=Importance.MEDIUM,
                doc="Fields to rename, as old:new pairs.",
            )
        )
        return with_field_syntax(with_null_defaults(definition))

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.struct(shape, "field replacement")
        if self.config.get_bool(NULL_DEFAULTS):
            part = part.defaulted()
        include = field_paths(self.config, self.config.get_list("include"))
        if include:
            part = part.kept(include)
        exclude = field_paths(self.config, self.config.get_list("exclude"))
        return self.with_part(shape, part.removed(exclude).renamed(self._renames()))

    def _renames(self) -> dict[FieldPath, str]:
        pairs = (pair.split(":") for pair in self.config.get_list("renames"))
        return {
            field_path(self.config, old): field_path(self.config, new).name
            for old, new in pairs
        }


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
