"""Files that are compressed now and then, as their names say."""

import bz2
import gzip
import random
from pathlib import Path


def written_file(folder: Path, name: str, data: bytes, chance: random.Random) -> Path:
    """Write a file, one in five of which is compressed."""
    suffix = chance.choice([""] * 8 + [".gz", ".bz2"])
    packed = {"": data, ".gz": gzip.compress(data), ".bz2": bz2.compress(data)}
    file = folder / f"{name}{suffix}"
    file.write_bytes(packed[suffix])
    return file
