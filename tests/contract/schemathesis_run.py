"""Runs schemathesis on a server, as a user would."""

import os
import subprocess
import sys
from pathlib import Path

_HERE = str(Path(__file__).parent)
_CONFIGURATION = Path(__file__).with_name("schemathesis.toml")


def schemathesis(url: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Send requests of all kinds, those that the description does not allow too."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli"),
        *("--config-file", str(_CONFIGURATION), "run", f"{url}/openapi.json"),
        # All checks are on by default; naming them here would overrule the file.
        *("--continue-on-failure", "--suppress-health-check", "all"),
        *options,
    ]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": _HERE},
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
    )
