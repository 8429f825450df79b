"""The bench of these tests."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.capture.host_bench import VARIABLES, Bench

from headrace.capture import HostSupervisor
from headrace.model import Backoff
from headrace.store import Store


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = Store(tmp_path / "store.db")
    backoff = Backoff(longest=timedelta(milliseconds=50))
    hosts = HostSupervisor(variables=VARIABLES, backoff=backoff)
    yield Bench(tmp_path, store, hosts)
    hosts.close()
    store.close()
