"""Records of CSV end where quotes say, wherever a file is cut into chunks."""

import csv
import io
import re
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace_plugins.connectors.file.record_ends import CsvQuoting

QUOTING = CsvQuoting(ord(","), ord('"'))
_LINE_END = re.compile(rb"\r\n|\r|\n")
texts = st.text(alphabet='a,"\n\r', max_size=60).map(str.encode)


def read_slowly(block: bytes, delimiter: bytes = b",") -> tuple[list[bytes], bool]:
    """Return the records of a block as RFC 4180 says, and whether a quote is left open."""
    records, start, inside, at = [], 0, False, 0
    while at < len(block):
        sign = block[at : at + 1]
        if inside and block[at : at + 2] == b'""':
            at += 1
        elif inside and sign == b'"':
            inside = False
        elif (
            not inside and sign == b'"' and block[at - 1 : at] in {delimiter, b"\n", b"\r", b""}
        ):
            inside = True
        elif not inside and (
            sign == b"\n" or (sign == b"\r" and block[at + 1 : at + 2] not in {b"\n", b""})
        ):
            records.append(block[start : at + 1])
            start = at + 1
        at += 1
    return [*records, block[start:]] if start < len(block) else records, inside


@given(texts.map(lambda text: text + b"\n"))
def test_records_end_at_line_ends_outside_of_quotes(block: bytes) -> None:
    records, is_open = read_slowly(block)
    assert QUOTING.records(block) == records
    assert QUOTING.is_open(block) == is_open
    whole = QUOTING.whole(block)
    assert block[:whole] == b"".join(records[:-1] if is_open else records)
    assert QUOTING.first_end(block) == len(records[0])


@given(texts.map(lambda text: text + b"\n"))
def test_text_behind_a_closing_quote_is_found(block: bytes) -> None:
    records, is_open = read_slowly(block)
    whole = [record.decode() for record in (records[:-1] if is_open else records)]
    found = False
    for record in whole:
        try:
            list(csv.reader(io.StringIO(record, newline=""), strict=True))
        except csv.Error:
            found = True
    assert bool(len(QUOTING.text_after_quotes("".join(whole).encode()))) == found


@given(texts.map(lambda text: text + b"\n"), st.lists(st.integers(1, 20), max_size=8))
def test_each_chunk_finds_its_first_record_by_itself(block: bytes, sizes: list[int]) -> None:
    cuts = [cut for cut in accumulate(sizes) if cut < len(block) and block[cut] != ord('"')]
    inside, starts, lines = False, {0}, 0
    for start, end in pairwise([0, *cuts, len(block)]):
        chunk = block[start:end]
        ends = QUOTING.ends(chunk, block[start - 1] if start else None)
        if (first := ends.first[inside]) is not None and b"\n" in chunk:
            starts.add(start + first[0])
            assert lines + first[1] == len(_LINE_END.findall(block[: start + first[0]]))
        lines += ends.lines
        inside = ends.inside[inside]
    records, is_open = read_slowly(block)
    assert inside == is_open
    assert starts <= {0, *accumulate(map(len, records))}


def test_a_record_ends_with_a_carriage_return_where_a_file_has_nothing_else() -> None:
    assert QUOTING.first_end(b'id,"na\rme"\r1,a\r') == len(b'id,"na\rme"\r')
