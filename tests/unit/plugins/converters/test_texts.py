"""Bytes in encodings other than UTF-8, as Java reads them."""

import pyarrow as pa
import pytest
from tests.contract.converting import converter

from headrace.sdk.converter import ArrowDecoder


@pytest.mark.parametrize(
    ("encoding", "raw", "text"),
    [
        ("UTF-16", b"\x00a\x00b", "ab"),
        ("UTF-16", b"\xff\xfea\x00", "a"),
        ("UTF-16", b"\xfe\xff\x00a", "a"),
        ("UTF-16LE", b"a\x00b", "a\ufffd"),
        ("UTF-16BE", b"\xdc\x00\x00a", "\ufffda"),
        ("UTF-16BE", b"\xd8\x00\x00a\x00b", "\ufffdb"),
        ("UTF-16BE", b"\xd8\x00", "\ufffd"),
        ("UTF-16BE", b"\xff\xfe", "\ufffd"),
        ("US-ASCII", b"a\xe9", "a\ufffd"),
        ("ISO-8859-1", b"a\xe9", "aé"),
    ],
)
def test_what_is_no_text_becomes_as_many_replacements_as_in_java(
    encoding: str, raw: bytes, text: str
) -> None:
    each = converter("StringConverter", {"converter.encoding": encoding})
    decoder = each.converter.decoder()
    assert isinstance(decoder, ArrowDecoder)
    (group,) = decoder.decode(pa.array([raw, None], pa.binary())).groups
    assert group.values.to_pylist() == [text, None]
