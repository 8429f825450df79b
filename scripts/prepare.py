"""What `make setup` does in Python; the rest is in setup.sh.

`prepare.py java` only asks whether there is a Java; `prepare.py` does everything.
Exit code 3 says that the machine lacks something.
"""

import sys

from headrace.sdk.errors import HeadraceError
from headrace.settings import load_settings
from headrace.spark.class_archive import prepare
from headrace.spark.jvm import find_java


def main() -> None:
    """Prepare this machine, and say each step."""
    try:
        settings = load_settings()
        if sys.argv[1:] == ["java"]:
            find_java(settings.java_home)
        else:
            prepare(settings, lambda step: print(f"setup: {step}", flush=True))
    except HeadraceError as error:
        sys.stderr.write(f"setup: {error}\n")
        sys.exit(3)


if __name__ == "__main__":
    main()
