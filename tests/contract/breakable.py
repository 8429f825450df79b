"""A target that is a folder, and that a driver of the acceptance kit can break."""

from pathlib import Path

from typing_extensions import override

from headrace.sdk.testing import SinkDriver


class FolderTarget(SinkDriver):
    """Puts a file in the place of the folder, and the folder back."""

    _folder: Path

    @override
    def break_target(self) -> None:
        self._folder.rename(self._folder.with_name("away"))
        self._folder.touch()

    @override
    def repair_target(self) -> None:
        self._folder.unlink()
        self._folder.with_name("away").rename(self._folder)
