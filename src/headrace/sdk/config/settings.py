"""Settings classes, whose fields declare the type, default, checks and text of each key."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from dataclasses import MISSING, dataclass, field, replace
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin

from typing_extensions import Unpack, dataclass_transform, override

from headrace.sdk.config.definition import ConfigDef, KeyTerms, Rule
from headrace.sdk.config.validators import ValidString
from headrace.sdk.config.values import Config, ConfigType, Password

if TYPE_CHECKING:
    from collections.abc import Mapping


_TYPES: Mapping[type, ConfigType] = {
    bool: ConfigType.BOOLEAN,
    str: ConfigType.STRING,
    int: ConfigType.INT,
    float: ConfigType.DOUBLE,
    tuple: ConfigType.LIST,
    Password: ConfigType.PASSWORD,
}


def setting(
    doc: str,
    *,
    default: Any = MISSING,
    key: str | None = None,
    type: ConfigType | None = None,  # noqa: A002 - Kafka calls it so
    **terms: Unpack[KeyTerms],
) -> Any:
    """Declare a field of a ``Settings`` class.

    Args:
        doc: The description, in sentences.
        default: The value if the key is not set; without a default the key is required.
        key: The key in configurations; by default the field name with dots for underscores.
        type: Kafka Connect's type; by default derived from the annotation, INT for ``int``.
        terms: See ``KeyTerms``. For an ``Enum``, its values are valid by default. The default
            order in a group is the order of declaration.
    """
    metadata = {"key": key, "type": type, "terms": {"doc": doc, **terms}}
    return field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """The settings of a plugin, as a class with a ``setting`` for each key.

        class TableSettings(Settings):
            database: str = setting("The file of the database.")
            batch_rows: int = setting("The most rows of a batch.", default=10_000)
            password: Password | None = setting("What to log in with.", default=None)
            mode: Mode = setting("How rows are written.", default=Mode.APPEND)

    A plugin that declares ``settings: TableSettings`` has the keys ``database``,
    ``batch.rows`` and so on, and reads their values from attributes of ``self.settings``. The
    type of a field is ``bool``, ``str``, ``int``, ``float``, ``tuple[str, ...]``, ``Password``,
    an ``Enum`` with string values, or one of these or None.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Checks across several keys."""
    default_group: ClassVar[str | None] = None
    """The group of settings that do not set one."""

    @override
    def __init_subclass__(cls, group: str | None = None, **options: Any) -> None:
        """Turn each subclass into a frozen dataclass."""
        super().__init_subclass__(**options)
        dataclass(frozen=True, kw_only=True)(cls)
        cls.default_group = group

    @classmethod
    @cache
    def config_def(cls) -> ConfigDef:
        """Return the definitions in field order, numbered within their groups."""
        definition, places = ConfigDef(), Counter[str]()
        for each in _declared(cls):
            terms, kind = dict(each.metadata["terms"]), _kind(cls, each.name)
            if _is_enum(kind):
                valid = ValidString(*(member.value for member in kind))
                terms.setdefault("validator", valid)
                kind = str
            group = terms.setdefault("group", _declaring(cls, each.name).default_group)
            if group is not None:
                places[group] = terms.setdefault("order", places[group] + 1)
            if each.default is not MISSING:
                default = each.default
                terms["default"] = default.value if isinstance(default, Enum) else default
            type_ = each.metadata["type"] or _TYPES.get(kind)
            if type_ is None:
                message = f"{cls.__name__}.{each.name}: unsupported type {kind}."
                raise TypeError(message)
            definition = definition.define(_key(each), type_, **terms)
        return replace(definition, rules=cls.rules)

    @classmethod
    def parsed(cls, props: Mapping[str, Any]) -> Self:
        """Parse settings from strings by key. Raises ConfigErrors with all errors."""
        return cls.from_config(cls.config_def().parse(props))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the settings from a configuration that ``config_def`` has parsed."""
        values = {}
        for each in _declared(cls):
            value, kind = config[_key(each)], _kind(cls, each.name)
            made = _is_enum(kind) and value is not None
            values[each.name] = kind(value) if made else value
        return cls(**values)


class Configured:
    """A plugin whose class declares ``settings``, a class derived from ``Settings``."""

    settings: Settings

    @classmethod
    def settings_class(cls) -> type[Settings]:
        """Return the settings class that the plugin class declares."""
        found: type[Settings] = _annotation(cls, "settings")
        return found

    @classmethod
    def config_def(cls) -> ConfigDef:
        """Return the definition of the plugin's keys."""
        return cls.settings_class().config_def()


def _declared(cls: type[Settings]) -> list[Any]:
    """Return the settings of a class: its own first, then those of its bases."""
    known: Any = getattr(cls, "__dataclass_fields__", {})  # Settings itself is not a dataclass
    names = dict.fromkeys(
        name for each in cls.__mro__ for name in inspect.get_annotations(each)
    )
    every = [known[name] for name in names if name in known]
    return [each for each in every if "terms" in each.metadata]


def _key(declared: Any) -> str:
    return str(declared.metadata["key"] or declared.name.replace("_", "."))


def _declaring(cls: type, name: str) -> Any:
    """Return the class or the nearest base class that declares an attribute."""
    return next(each for each in cls.__mro__ if name in inspect.get_annotations(each))


def _annotation(cls: type, name: str) -> Any:
    declaring = _declaring(cls, name)
    found = inspect.get_annotations(declaring)[name]
    names = vars(sys.modules[declaring.__module__])
    return eval(found, names) if isinstance(found, str) else found  # noqa: S307 - the source of a plugin


def _kind(cls: type[Settings], name: str) -> Any:
    """Return the type of a field's values: without None, and tuple for any tuple."""
    found = _annotation(cls, name)
    if isinstance(found, UnionType):
        found = next(part for part in get_args(found) if part is not NoneType)
    return get_origin(found) or found


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)
