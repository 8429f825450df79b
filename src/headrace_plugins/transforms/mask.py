"""Hides values: by a keyed hash, or by a format that keeps their look."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    Password,
    Range,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.sqltext import FieldPath, literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr
    from headrace.sdk.struct_exprs import Column

_BITS = {"sha256": 256, "sha512": 512}
_NESTED = {Type.STRUCT, Type.ARRAY, Type.MAP}


def _check(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if props.get("method") in {None, "hash"} and not props.get("salt"):
        yield ConfigError(
            problem="Without a salt, hashing all possible values undoes a hash.",
            field="salt",
            fix="Set a long random text, best as ${env:NAME} or ${file:PATH}.",
        )


class MaskSettings(Settings):
    """The settings of ``Mask``."""

    fields: tuple[str, ...] = setting(
        "The fields to mask; dots lead into structs, back-ticks quote names.",
        importance=Importance.HIGH,
    )
    method: str = setting(
        "hash: a keyed hash of the value's text, in hexadecimal; format: the "
        "value's text with its letters and digits covered.",
        default="hash",
        validator=ValidString("hash", "format"),
        importance=Importance.HIGH,
    )
    salt: Password | None = setting(
        "For hash: the secret without which nobody can find a value by hashing "
        "all that are possible.",
        default=None,
        importance=Importance.HIGH,
    )
    hash_algorithm: str = setting(
        "For hash: the hash function.", default="sha256", validator=ValidString(*_BITS)
    )
    keep_first: int = setting(
        "For format: how many characters stay at the beginning.",
        default=0,
        validator=Range(at_least=0),
    )
    keep_last: int = setting(
        "For format: how many characters stay at the end. A text that is not "
        "longer than what would stay is covered whole.",
        default=0,
        validator=Range(at_least=0),
    )
    keep_separators: bool = setting(
        "For format: whether all but letters and digits stays.", default=True
    )
    character: str = setting("For format: what covers.", default="*")

    rules = (_check,)


class Mask(Transform):
    """Replaces fields by texts that do not tell what they were; null stays null.

    ``hash`` gives the same text for the same value and the same salt, so that masked data
    can still be joined and counted. ``format`` covers letters and digits, and keeps what is
    between them, and the first or the last characters.
    """

    settings: MaskSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        part = self.struct(shape, "masking")
        paths = [FieldPath.parse(text, "V2") for text in self.settings.fields]
        for path in paths:
            if part.find(path) is None:
                raise UnfitRecordError(message=f"Field does not exist: {path.text}")
        return self.with_part(shape, part.changed(dict.fromkeys(paths, self._masked)))

    def _masked(self, sql: str, schema: Schema) -> Column:
        if schema.type in _NESTED:
            raise UnfitRecordError(message="Only values without parts can be masked.")
        text = f"hex({sql})" if schema.type is Type.BYTES else f"CAST({sql} AS STRING)"
        masked = self._hashed(text) if self.settings.method == "hash" else (self._covered(text))
        return masked, Schema.string(optional=schema.optional)

    def _hashed(self, text: str) -> str:
        # Only digests of the salt go into Spark's plans, which logs may show. Two rounds, as
        # in HMAC (RFC 2104), so that a hash cannot be continued with a longer value.
        name = self.settings.hash_algorithm
        salt = self.config.get_password("salt").value.encode()
        inner, outer = (
            hashlib.new(name, side + salt).hexdigest() for side in (b"inner:", b"outer:")
        )
        bits = _BITS[name]
        first = f"sha2(concat('{inner}', {text}), {bits})"
        return f"sha2(concat('{outer}', {first}), {bits})"

    def _covered(self, text: str) -> str:
        first, last = self.settings.keep_first, self.settings.keep_last
        covered = literal(r"[\p{L}\p{N}]" if self.settings.keep_separators else "(?s).")
        sign = literal(self.settings.character.replace("\\", "\\\\").replace("$", "\\$"))
        length = f"length({text})"
        middle = f"substring({text}, {first + 1}, {length} - {first + last})"
        kept = (
            f"concat(left({text}, {first}), regexp_replace({middle}, {covered}, {sign}), "
            f"right({text}, {last}))"
        )
        whole = f"regexp_replace({text}, {covered}, {sign})"
        return f"IF({length} > {first + last}, {kept}, {whole})"
