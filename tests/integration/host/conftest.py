"""The bench of these tests."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.host.host_bench import VARIABLES, Bench

from headrace.store import SqlStore
from headrace.worker.hosts import HostSupervisor
from headrace.worker.retry import Backoff


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = SqlStore(tmp_path / "store.db")
    backoff = Backoff(longest=timedelta(milliseconds=50))
    hosts = HostSupervisor(variables=VARIABLES, backoff=backoff)
    yield Bench(tmp_path, store, hosts)
    hosts.close()
    store.close()
