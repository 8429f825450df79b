"""What tasks of a server may read that data name."""

from pathlib import Path

from headrace.runtime.app import Runtime
from headrace.settings import Settings


def test_tasks_read_what_configurations_may_use(tmp_path: Path) -> None:
    allowed = (tmp_path / "data",)
    settings = Settings(home=tmp_path, allowed_paths=allowed)
    for serving, paths in ((True, allowed), (False, None)):
        with Runtime(settings, serving=serving) as runtime:
            assert runtime.receipts.assembler.access.paths == paths
