"""Transforms that hide values: Mask and MaskField."""

from __future__ import annotations

import hashlib
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from headrace.sdk import ConfigError, Schema, Transform, Type, UnfitRecordError
from headrace.sdk.config import (
    Importance,
    NonEmptyList,
    NonEmptyString,
    NullOr,
    Password,
    Range,
    Settings,
    ValidString,
    setting,
)
from headrace.sdk.schema import DATE, DECIMAL, FLOATS, MAX_PRECISION, TIME, TIMESTAMP, scale_of
from headrace.sdk.sqltext import FieldPath, FieldSyntax, literal, sql_null, sql_type, sql_value
from headrace.sdk.struct_exprs import java_class
from headrace_plugins.transforms.fields import NullDefaults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.sdk import RecordExpr, ValueExpr
    from headrace.sdk.struct_exprs import Column


_HASH_BITS = {"sha256": 256, "sha512": 512}
_NESTED = {Type.STRUCT, Type.ARRAY, Type.MAP}


def _check_salt(props: Mapping[str, Any]) -> Iterable[ConfigError]:
    if props.get("method") in {None, "hash"} and not props.get("salt"):
        yield ConfigError(
            problem="Without a salt, the original values can be found by hashing all possible "
            "values.",
            field="salt",
            fix="Set a long random string, preferably as ${env:NAME} or ${file:PATH}.",
        )


class MaskSettings(Settings):
    """The settings of ``Mask``."""

    fields: tuple[str, ...] = setting(
        "The fields to mask. A dot separates the names of nested fields; backticks quote a "
        "name.",
        importance=Importance.HIGH,
    )
    method: str = setting(
        "hash: a keyed hash of the value's text, in hexadecimal. format: the value's text "
        "with its letters and digits masked.",
        default="hash",
        validator=ValidString("hash", "format"),
        importance=Importance.HIGH,
    )
    salt: Password | None = setting(
        "For hash: a secret that is hashed with the value, so that the original values cannot "
        "be found by hashing all possible values.",
        default=None,
        importance=Importance.HIGH,
    )
    hash_algorithm: str = setting(
        "For hash: the hash function.", default="sha256", validator=ValidString(*_HASH_BITS)
    )
    keep_first: int = setting(
        "For format: how many characters at the beginning are not masked.",
        default=0,
        validator=Range(at_least=0),
    )
    keep_last: int = setting(
        "For format: how many characters at the end are not masked. A text that is not "
        "longer than keep.first plus keep.last is masked completely.",
        default=0,
        validator=Range(at_least=0),
    )
    keep_separators: bool = setting(
        "For format: whether characters other than letters and digits are kept.", default=True
    )
    character: str = setting(
        "For format: the replacement of each masked character.", default="*"
    )

    rules = (_check_salt,)


class Mask(Transform):
    """Replaces fields by texts that hide the original values; null stays null.

    ``hash`` returns the same text for the same value and salt, so masked data can still be
    joined and counted. ``format`` masks letters and digits, and can keep separators and the
    first or the last characters.
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
            raise UnfitRecordError(message="Structs, arrays and maps cannot be masked.")
        text = f"hex({sql})" if schema.type is Type.BYTES else f"CAST({sql} AS STRING)"
        masked = self._hashed(text) if self.settings.method == "hash" else (self._covered(text))
        return masked, Schema.string(optional=schema.optional)

    def _hashed(self, text: str) -> str:
        # Spark's plans, which may be logged, contain only digests of the salt. Two rounds, as
        # in HMAC (RFC 2104), prevent length extension attacks.
        name = self.settings.hash_algorithm
        salt = self.settings.salt.value.encode() if self.settings.salt else b""
        inner, outer = (
            hashlib.new(name, side + salt).hexdigest() for side in (b"inner:", b"outer:")
        )
        bits = _HASH_BITS[name]
        first = f"sha2(concat('{inner}', {text}), {bits})"
        return f"sha2(concat('{outer}', {first}), {bits})"

    def _covered(self, text: str) -> str:
        first, last = self.settings.keep_first, self.settings.keep_last
        covered = literal(r"[\p{L}\p{N}]" if self.settings.keep_separators else "(?s).")
        sign = literal(self.settings.character.replace("\\", "\\\\").replace("$", "\\$"))
        length = f"length({text})"
        middle = f"substring({text}, {first + 1}, {length} - {first + last})"
        partly = (
            f"concat(left({text}, {first}), regexp_replace({middle}, {covered}, {sign}), "
            f"right({text}, {last}))"
        )
        whole = f"regexp_replace({text}, {covered}, {sign})"
        return f"IF({length} > {first + last}, {partly}, {whole})"


_BITS: Mapping[Type, int] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_DIGITS = Context(prec=MAX_PRECISION)
_NOTHING: Mapping[Type, str] = {
    **dict.fromkeys((*_BITS, *FLOATS), "0"),
    Type.BOOLEAN: "false",
    Type.STRING: "''",
    Type.ARRAY: "array()",
    Type.MAP: "map()",
}
_LOGICAL_NOTHING: Mapping[str, str] = {
    DECIMAL: "0",
    TIME: "0",
    DATE: "DATE'1970-01-01'",
    TIMESTAMP: "timestamp_micros(0)",
}


class MaskFieldSettings(NullDefaults, FieldSyntax):
    """The settings of ``MaskField``."""

    fields: tuple[str, ...] = setting(
        "The fields to mask.", validator=NonEmptyList(), importance=Importance.HIGH
    )
    replacement: str | None = setting(
        "The replacement for numbers and strings.",
        default=None,
        validator=NullOr(NonEmptyString()),
        importance=Importance.LOW,
    )


class MaskField(Transform):
    """Replaces the values of fields by an empty value of their type, or by a configured text.

    Empty values are 0, false, the empty string, array or map, and the first instant of 1970.
    Null stays null. A record is rejected if a field has another type, if the replacement does
    not fit the type, or if the key or value is null as a whole.
    """

    aliases = ("org.apache.kafka.connect.transforms.MaskField",)

    settings: MaskFieldSettings

    @override
    def apply(self, shape: RecordExpr) -> RecordExpr:
        shape, part = self.whole_struct(shape, "mask fields")
        if part is None:
            return shape
        if self.settings.replace_null_with_default:
            part = part.defaulted()
        # In the record's order, as a record gets its first error only.
        places = {name: number for number, name in enumerate(part.columns())}
        paths = self.settings.field_paths(self.settings.fields)
        for path in sorted(paths, key=lambda path: places.get(path.steps[0], len(places))):
            shape, part = self._mask(shape, part, path)
        return self.with_part(shape, part)

    def _mask(
        self, shape: RecordExpr, part: ValueExpr, path: FieldPath
    ) -> tuple[RecordExpr, ValueExpr]:
        try:
            found = part.find(path)
        except UnfitRecordError:
            found = None
        if found is None and part.schemaless and len(path.steps) == 1 and not part.is_map:
            null = sql_null(Schema.string()), Schema.string(optional=True)
            return shape, part.inserted(path, *null)
        if found is None:
            return shape, part
        try:
            masked = self._masked(found[1], schemaless=part.schemaless)
        except UnfitRecordError as error:
            where = f"(NOT {part.is_null()} AND {found[0]} IS NOT NULL)"
            return self.rejecting(shape, where, literal(error.message)), part

        def change(sql: str, schema: Schema) -> Column:
            new_sql, new = masked
            if new.type is schema.type:
                new = schema
            return f"IF({sql} IS NULL, NULL, {new_sql})", new.replaced(optional=schema.optional)

        return shape, part.changed({path: change})

    def _masked(self, schema: Schema, *, schemaless: bool) -> Column:
        replacement = self.settings.replacement
        if schemaless and schema.type is Type.STRUCT:
            # Kafka Connect returns an empty map, which a struct cannot represent.
            schema = Schema.map(Schema.string(), Schema.string(optional=True))
        if replacement is not None:
            return _replaced(schema, replacement), schema
        nothing = _NOTHING.get(schema.type)
        if schema.is_logical:
            nothing = _LOGICAL_NOTHING[str(schema.name)]
        if nothing is None:
            kind = java_class(schema, schemaless=schemaless)
            raise UnfitRecordError(message=f"Cannot mask value of type: class {kind}")
        return f"CAST({nothing} AS {sql_type(schema)})", schema


def _replaced(schema: Schema, text: str) -> str:
    bare = schema.bare()
    if schema.is_logical and schema.name == DECIMAL:
        return sql_value(bare, _decimal(text, scale_of(schema.parameters) or 0))
    if not schema.is_logical and schema.type is Type.STRING:
        return literal(text)
    if schema.is_logical or schema.type not in (*_BITS, *FLOATS):
        message = (
            f"Cannot mask value of type class {java_class(schema)} with custom replacement."
        )
        raise UnfitRecordError(message=message)
    number = _number(text, "a number")
    if schema.type in FLOATS:
        return sql_value(bare, float(number))
    half = 1 << (_BITS[schema.type] - 1)
    return sql_value(bare, (int(number) + half) % (2 * half) - half)


def _decimal(text: str, scale: int) -> Decimal:
    number = _number(text, "number")
    own = -int(number.as_tuple().exponent)
    try:
        fitting = number.quantize(Decimal(1).scaleb(-scale), context=_DIGITS)
    except InvalidOperation:  # more digits than MAX_PRECISION
        fitting = None
    if fitting is None or fitting != number:
        raise UnfitRecordError(
            message="Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {own}."
        )
    return fitting


def _number(text: str, target: str) -> Decimal:
    """Parse a number as Java's BigDecimal does: no spaces, underscores, NaN or Infinity."""
    try:
        plain = text.isascii() and "_" not in text and text.strip() == text
        number = Decimal(text) if plain else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        message = f"Unable to convert {text} (class java.lang.String) to {target}"
        raise UnfitRecordError(message=message)
    return number
