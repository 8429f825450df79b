"""Renames, keeps and removes fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Transform
from headrace.sdk.config import ConfigDef, ConfigType, Importance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import Shape


class ReplaceField(Transform):
    """Keeps only some fields, removes some, and renames some."""

    aliases = ("org.apache.kafka.connect.transforms.ReplaceField",)

    @override
    @classmethod
    def config_def(cls) -> ConfigDef:
        return (
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
                importance=Importance.MEDIUM,
                doc="Fields to rename, as old:new pairs.",
            )
            .rule(_check_renames)
        )

    @override
    def apply(self, shape: Shape) -> Shape:
        part = self.struct(shape, "field replacement")
        exclude = set(self.config.get_list("exclude"))
        include = set(self.config.get_list("include"))
        renames = dict(pair.split(":", 1) for pair in self.config.get_list("renames"))
        columns = {
            renames.get(name, name): column
            for name, column in part.columns().items()
            if name not in exclude and (not include or name in include)
        }
        return self.with_part(shape, part.with_fields(columns))


def _check_renames(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    text = props.get("renames") or ""
    for pair in (pair.strip() for pair in str(text).split(",")):
        if pair and len([name for name in pair.split(":") if name]) != 2:  # noqa: PLR2004 - old and new
            yield ConfigError(
                problem=f"{pair!r} is not a pair of names.",
                field="renames",
                fix="Write it as old:new.",
            )
