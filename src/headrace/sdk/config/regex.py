"""Java's regular expressions, which Spark runs, as far as Python can tell about them."""

import re
import warnings

__all__ = ["java_regex"]

# Where Java's form differs from Python's, and what stands for it. Classes of characters that
# Python lacks become the nearest it has, so the result is good for a check of the form and
# for patterns of names, and for nothing that has to be exact.
_JAVA_ONLY: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\\[pP](\{\w+(=\w+)?\}|\w)"), r"\\w"),
    (re.compile(r"\\[hHRXeG]"), r"\\s"),
    (re.compile(r"\\z"), r"\\Z"),
    (re.compile(r"\\k<(\w+)>"), r"(?P=\1)"),
    (re.compile(r"\(\?<(?![=!])"), "(?P<"),
    (re.compile(r"\(\?[a-zA-Z]*-?[a-zA-Z]*\)"), ""),
)
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_PYTHON_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE}


def java_regex(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression of Java, nearly.

    Raises:
        re.error: It is none.
    """
    flags = re.NOFLAG
    if leading := _FLAGS.match(pattern):
        for letter in leading[1]:
            flags |= _PYTHON_FLAGS.get(letter, re.NOFLAG)
    python = _QUOTED.sub(lambda quoted: re.escape(quoted[1]), pattern)
    for java, form in _JAVA_ONLY:
        python = java.sub(form, python)
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        # Python warns of && in a class, which is an intersection in Java.
        return re.compile(python, flags)
