"""The connectors of the how-to pass the acceptance kit, in a project of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.quick_java import QUICK_JAVA

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-connector.md"
_FILE = re.compile(r"^```python title=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(600)
def test_the_connectors_of_the_page_pass_the_acceptance_kit(tmp_path: Path) -> None:
    for name, text in _FILE.findall(PAGE.read_text()):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:randomly",
            "test_acme.py",
            "test_captures.py",
        ],
        cwd=tmp_path,
        env=os.environ | QUICK_JAVA | {"HEADRACE_HOME": str(tmp_path / ".home")},
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = done.stdout.splitlines()[-1]
    passed = re.search(r"(\d+) passed", summary)
    assert passed is not None, summary
    assert int(passed[1]) > 65, summary
