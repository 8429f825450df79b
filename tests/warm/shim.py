"""Stand first on PATH as ``headrace``: have the parent of warm commands run this one.

Its ends, arguments, folder and environment go there over a socket, and the exit code comes
back. It imports little, as it is what each command still pays for.
"""

import json
import os
import socket
import sys

ENDS = (0, 1, 2)


def main(place: str, arguments: list[str]) -> int:
    """Return the exit code of the command, which runs elsewhere."""
    folder = os.getcwd()  # noqa: PTH109 - pathlib takes long to import
    asked = {"arguments": arguments, "cwd": folder, "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as parent:
        parent.connect(place)
        text = json.dumps(asked).encode()
        socket.send_fds(parent, [len(text).to_bytes(4, "big")], ENDS)
        parent.sendall(text)
        code = parent.recv(1)
    return code[0] if code else 255


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
