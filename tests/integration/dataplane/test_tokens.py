"""Decoders are told which schemas a batch names before they decode it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from tests.contract.converting import Given, decode, raw_frame, values_of

from headrace.dataplane.conversion import ConvertingReader, PartConverter
from headrace.dataplane.sources import SourceFrame
from headrace.sdk import Converter, ConverterContext, Position, Schema
from headrace.sdk.config import Config, ConfigDef
from headrace.sdk.converter import (
    ArrowDecoder,
    Converted,
    Decoded,
    ExpressionDecoder,
    Fault,
    Group,
    RecordPart,
)
from headrace.sdk.sqltext import literal
from headrace_plugins.confluent.remote_schemas import (
    NO_HEAD,
    framed_sql,
    head_of,
    head_sql,
    heads,
    id_of,
    payload_sql,
    payloads,
    unframed_sql,
)

pytestmark = pytest.mark.spark

RAWS = [head_of(7) + b"a", head_of(2**31 - 1), None, b"", b"\x00\x00", b"{}     ", head_of(8)]
HEADS = [head_of(n) for n in (7, 8, 2**31 - 1)]


@dataclass
class Told(ArrowDecoder):
    """Gives the id and the payload of values whose ids it was told."""

    ids: list[int] = field(default_factory=list)

    def tokens(self, raw: str) -> str:
        return head_sql(raw)

    def prepare(self, tokens: Sequence[bytes]) -> None:
        self.ids = [id_of(token) for token in tokens]

    def decode(self, raw: pa.Array) -> Decoded:
        found, bad = heads(raw)
        rows = [n for n, head in enumerate(found.to_pylist()) if head is not None]
        texts = [str(self.ids.index(id_of(found[n].as_py()))) for n in rows]
        rests = payloads(raw).take(pa.array(rows, pa.int64())).to_pylist()
        values = [text + rest.decode() for text, rest in zip(texts, rests, strict=True)]
        group = Group(Schema.string(), pa.array(values, pa.string()), rows)
        return Decoded([group], dict.fromkeys(bad, ("bad", NO_HEAD)))


class Expressed(ExpressionDecoder):
    """The same as SQL."""

    def tokens(self, raw: str) -> str:
        return head_sql(raw)

    def decode(self, raw: str, made: str, tokens: Sequence[bytes]) -> Converted:
        assert [bytes(token) for token in tokens] == HEADS
        cases = " ".join(
            f"WHEN {head_sql(raw)} = X'{bytes(token).hex()}' THEN '{place}'"
            for place, token in enumerate(tokens)
            if bytes(token) != head_of(8)
        )
        faults = (
            Fault(unframed_sql(raw), literal(NO_HEAD)),
            Fault(f"{head_sql(raw)} = X'{head_of(8).hex()}'", literal("8?")),
        )
        text = f"CASE {cases} END || CAST({payload_sql(raw)} AS STRING)"
        return Converted(text, Schema.string(optional=True), faults=faults)


class Made(Converter):
    given: ArrowDecoder | ExpressionDecoder

    @classmethod
    def config_def(cls) -> ConfigDef:
        return ConfigDef()

    def encode(self, column: str, made: str, schema: Schema) -> Converted:
        return Converted(framed_sql(7, column), Schema.bytes(optional=True))

    def decoder(self) -> ArrowDecoder | ExpressionDecoder:
        return self.given


class Batches(Given):
    """One batch after another."""

    def read(self, spark, start, end) -> SourceFrame:
        return SourceFrame(self.frame.pop(0))


def converter(decoder: ArrowDecoder | ExpressionDecoder) -> PartConverter:
    made = Made(Config({}), ConverterContext())
    made.given = decoder
    return PartConverter(RecordPart.VALUE, "made", made)


@pytest.mark.parametrize("decoder", [Told(), Expressed()], ids=["arrow", "sql"])
def test_a_decoder_knows_the_schemas_of_its_batch(
    spark, tmp_path: Path, decoder: ArrowDecoder | ExpressionDecoder
) -> None:
    frame = decode(spark, converter(decoder), raw_frame(spark, RAWS), tmp_path)
    values = sorted(value for value in values_of(frame) if value is not None)
    errors = sorted(error["message"] for error in values_of(frame, "error") if error)
    by_sql = isinstance(decoder, Expressed)
    assert values == (["0a", "2"] if by_sql else ["0a", "1", "2"])
    assert errors == (["8?", *[NO_HEAD] * 3] if by_sql else [NO_HEAD] * 3)


def test_a_decoder_of_one_batch_after_another_knows_the_schemas_of_each(
    spark, tmp_path: Path
) -> None:
    batches = [[7, 7, 8], [7], [7], [7, 9], [9, 9], [], [7]]
    frames = [raw_frame(spark, [head_of(n) + b"a" for n in own]) for own in batches]
    decoder = Told()
    reader = ConvertingReader(Batches(frames), [converter(decoder)], tmp_path / "decoded")
    for own in batches:
        found = reader.read(spark, Position(), Position()).frame
        # It may be told of one that was usual before.
        assert set(own) <= set(decoder.ids) <= {*own, 7, 9}
        assert values_of(found) == [f"{decoder.ids.index(n)}a" for n in own]
