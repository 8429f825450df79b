"""A server may have as many files open as its user may."""

import resource

from headrace.cli.server import open_more_files


def test_the_limit_is_raised_and_never_lowered() -> None:
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, kept[1]), kept[1]))
        open_more_files()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == kept[1]
        assert soft == min(65_536, hard) or hard == resource.RLIM_INFINITY
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        open_more_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, kept)
