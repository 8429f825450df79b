"""Texts as Kafka Connect's `Values` reads them, and with it its simple header converter."""

from random import Random

import pytest
from tests.differential.accepted_conversions import is_accepted_conversion
from tests.differential.comparing import Difference
from tests.differential.converting import differing_headers
from tests.differential.oracle import Oracle
from tests.differential.test_transforms import told
from tests.differential.texts import value

from headrace_plugins.kafka_compat.value_parsing import parse_string

pytestmark = [pytest.mark.differential, pytest.mark.long, pytest.mark.timeout(900)]

COUNT = 20_000
STEP = {"class": "Values", "config": {}, "part": "header"}


def test_a_text_is_read_as_kafka_reads_it(oracle: Oracle) -> None:
    random = Random("values")
    texts = sorted({value(random) for _ in range(COUNT)})
    assert len(texts) > COUNT // 4
    answers = oracle.ask({"op": "parse", "texts": texts})["results"]
    found = []
    for text, answer in zip(texts, answers, strict=True):
        parsed = parse_string(text)
        # Of the text null there is no value, and no schema to ask for its type.
        theirs = {"type": None, **answer, "key": "h", "value": answer.get("text")}
        ours = {"key": "h", "value": parsed.text, "type": parsed.kind}
        if what := differing_headers(theirs, ours):
            sides = {"header": theirs}, {"header": ours}
            found.append(Difference(what, STEP, {"bytes": text}, *sides))
    differing = [difference for difference in found if not is_accepted_conversion(difference)]
    assert not differing, f"{len(differing)} of {len(texts)}: {told(differing)}"
