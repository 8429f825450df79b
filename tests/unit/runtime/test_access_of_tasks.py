"""What configurations of a server may use, as its settings say."""

from pathlib import Path

from headrace.runtime.app import Runtime
from headrace.settings import Settings


def test_tasks_read_what_configurations_may_use(tmp_path: Path) -> None:
    allowed = (tmp_path / "data",)
    settings = Settings(home=tmp_path, allowed_paths=allowed)
    for serving, paths in ((True, allowed), (False, None)):
        with Runtime(settings, serving=serving) as runtime:
            assert runtime.receipts.assembler.access.paths == paths


def test_a_server_for_others_lets_no_driver_through_that_is_not_named(tmp_path: Path) -> None:
    named = ("com.h2database:h2:*",)
    for shared, setting, expected in (
        (False, None, None),
        (True, None, ()),
        (True, named, named),
        (False, named, named),
    ):
        settings = Settings(home=tmp_path, allowed_drivers=setting)
        with Runtime(settings, serving=True, shared=shared) as runtime:
            assert runtime.registry.access.drivers == expected
    with Runtime(Settings(home=tmp_path, allowed_drivers=())) as runtime:
        assert runtime.registry.access.drivers is None
