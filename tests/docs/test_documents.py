"""Tutorials and how-tos do what they say: their files are written, their commands run.

A block ``title=NAME`` is a file. In a ``console`` block, lines after ``$`` are commands and
the others their output, where ``...`` stands for anything and space does not count.
``exit=N`` is the exit code of the block's commands, ``background`` leaves its command running
until the page's end, and ``retry`` repeats one until its output is as shown.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.postgresql_server import PostgresqlServer
from tests.quick_java import QUICK_JAVA

from headrace.spark.jvm_reuse import end

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    ROOT / "README.md",
]
COLD = {"README"}
"""The page that runs as a reader's does. Commands of others are forked, see `tests.warm`, and
their servers have a quick Java."""
PATIENCE = 120.0
BASH = "/bin/bash"

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RULE = re.compile(r"[─\s]*")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its options and its text."""

    language: str
    options: dict[str, str]
    text: str

    def commands(self) -> list[tuple[str, str]]:
        """Return each command with the output that is shown."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        return [(part.partition("\n")[0], part.partition("\n")[2]) for part in parts]


def blocks(page: Path) -> list[Block]:
    found = []
    for language, info, text in _BLOCK.findall(page.read_text()):
        pairs = (word.partition("=") for word in info.split())
        found.append(Block(language, {key: value for key, _, value in pairs}, text))
    return found


def plain(output: str) -> str:
    lines = (" ".join(line.split()) for line in output.splitlines())
    return "".join(f"{line}\n" for line in lines if not _RULE.fullmatch(line))


def matches(shown: str, output: str) -> bool:
    pattern = "".join(
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in plain(shown).splitlines()
    )
    return re.fullmatch(pattern, plain(output)) is not None


@dataclass
class Reader:
    """Someone who follows a page in a folder."""

    folder: Path
    programs: Path | None = None
    variables: dict[str, str] = field(default_factory=dict)
    running: ExitStack = field(default_factory=ExitStack)

    def environment(self, programs: Path | None = None) -> dict[str, str]:
        folders = [programs, Path(sys.executable).parent, os.environ["PATH"]]
        path = os.pathsep.join(str(each) for each in folders if each is not None)
        home = str(self.folder / ".home")
        return os.environ | self.variables | {"PATH": path, "HEADRACE_HOME": home}

    def type(self) -> None:
        """Have a command leave its Java to the next one, as at a terminal."""
        waiting = self.folder / ".tmp"
        waiting.mkdir()
        self.variables |= {"HEADRACE_JAVA_IDLE": "60", "TMPDIR": str(waiting)}
        self.running.callback(self._end_what_waits, waiting)

    @staticmethod
    def _end_what_waits(folder: Path) -> None:
        for each in folder.glob("*/java-*.socket"):
            end(each)

    def follow(self, block: Block) -> None:
        if (name := block.options.get("title")) is not None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "console":
            for command, shown in block.commands():
                self.obey(command, shown, block)

    def obey(self, command: str, shown: str, block: Block) -> None:
        if "background" in block.options:
            self.running.enter_context(self.background(command))
            return
        deadline = time.monotonic() + ("retry" in block.options) * PATIENCE
        while True:
            done = subprocess.run(
                [BASH, "-c", command],
                cwd=self.folder,
                env=self.environment(self.programs),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            expected = int(block.options.get("exit", 0))
            output = done.stdout + (done.stderr if expected else "")
            if done.returncode == expected and matches(shown, output):
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        problem = f"$ {command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        pytest.fail(f"{problem}\nthe page shows:\n{shown}")

    @contextmanager
    def background(self, command: str) -> Iterator[None]:
        log = self.folder / ".background.log"
        # Who runs tests behind a shell's `&` has interrupts ignored, and so have these then.
        interruptible = f"exec env --default-signal=INT {command}"
        with log.open("a") as output:
            process = subprocess.Popen(
                [BASH, "-c", interruptible],
                cwd=self.folder,
                env=self.environment(),
                stdout=output,
                stderr=output,
            )
            try:
                yield
            finally:
                process.send_signal(signal.SIGINT)
                code = process.wait(timeout=60)
        assert code == 0, log.read_text()


def drop_databases(server: PostgresqlServer, names: list[str]) -> None:
    """Leave nothing of a page, as others use the same names."""
    for name in names:
        server.drop_slots(name)
        server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: tables fold what is long, such as pytest's own folders."""
    with TemporaryDirectory(prefix="page-") as made:
        yield Path(made)


@pytest.mark.timeout(900)
@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(
    page: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    text = page.read_text()
    cold = page.stem in COLD
    reader = Reader(folder)
    if cold:
        reader.type()
    else:
        reader = Reader(folder, request.getfixturevalue("warm_programs"), dict(QUICK_JAVA))
    if "createdb" in text:
        server = request.getfixturevalue("postgresql")
        reader.variables |= {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
        }
        reader.type()  # with such variables no other Java is shared
        # What has begun last ends first: the page's programs, then its databases.
        reader.running.callback(drop_databases, server, re.findall("createdb (.+)", text))
    with reader.running:
        for block in blocks(page):
            reader.follow(block)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "README.md"], ids=str)
def test_every_page_has_something_to_run(page: Path) -> None:
    assert any(block.commands() for block in blocks(page) if block.language == "console")


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        ("a  b\n", "a b\n", True),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("3 rows in ... s\n", "3 rows in 1.5 s\n", True),
        ("a\n", "a\nb\n", False),
        ("2 rows\n", "3 rows\n", False),
    ],
)
def test_shown_output_is_compared_line_by_line(shown: str, output: str, same: bool) -> None:
    assert matches(shown, output) is same


def test_every_link_between_pages_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
