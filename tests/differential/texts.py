"""Texts that are hard to read: literals, regular expressions, formats of dates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential import shapes

if TYPE_CHECKING:
    from random import Random

PATTERNS = (
    ".*",
    "orders.*",
    "orders",
    "(a|x).*",
    "[a-z.]+",
    "ord",
    "\\w+",
    ".*-\\d{8}",
    "^x$",
)


ROUTES = (
    ("(.*)-(\\d{8})", "$1"),
    (".*", "prefix-$0"),
    ("orders", "sales"),
    ("(\\w+)\\.(\\w+)\\.(\\w+)", "$3_$2_$1"),
    ("(?<db>[a-z0-9]+)\\..*", "${db}"),
    ("x", "a\\$b"),
    ("(.)(.*)", "$2$1"),
    ("orders.*", ""),
    ("(a)|(x)", "[$1|$2]"),
    ("[A-Z_]+[a-z]+", "low"),
    (".*", "$1"),
    ("(", "x"),
    ("(orders)-(.*)", "$12"),
)


DATE_FORMATS = (
    *("yyyyMMdd", "yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yyyy/MM/dd HH:mm:ss"),
    *("EEE, d MMM yyyy HH:mm:ss Z", "hh:mm a", "yy", "yyyy-'W'ww", "DDD", "yyyy.MM.dd G"),
    *("HH", "MMMM", "u", "S", "SSS", "yyyy-MM-dd HH:mm:ss.SSSSSS", "k:m:s", "X", "XXX", "z"),
    *("'quoted'yyyy", "''yyyy", "YYYY", "F", "E", "MMM d", "nope-bad-Q", "yyyy'unclosed"),
)


def literal(random: Random) -> str:
    """Return a text that Kafka Connect's value parser makes something of."""
    chance = random.random()
    if chance < 0.4:
        return shapes.text(random)
    if chance < 0.6:
        return random.choice(LITERALS)
    if chance < 0.8:
        return str(shapes.whole(random.choice((8, 16, 32, 64)))(random))
    return repr(shapes.floating(random))


def value(random: Random) -> str:
    """Return a text of one value, or of a list or a map of some."""
    if random.random() < 0.6:
        return literal(random)
    parts = (literal(random).strip("[]{}") for _ in range(random.randint(1, 3)))
    if random.random() < 0.5:
        return f"[{','.join(parts)}]"
    return "{" + ",".join(f'"{number}":{part}' for number, part in enumerate(parts)) + "}"


LITERALS = (
    *("[1, 2.5, 300]", "[]", "{}", '{"k":null}', '{"a":1,"b":2}', "[1,2", "{a:1}", "{1:2}"),
    *('[1,"a"]', '"quoted"', '"a\\"b"', "[true,false]", "[[1],[2]]", '{"a":[1,2]}', "[null]"),
    *("2019-08-23", "2019-08-23T14:34:54.346Z", "14:34:54.346Z", "2019-13-01", "[2019-08-23]"),
    *(
        "1.1234567890123456789",
        "9223372036854775808",
        "99999999999999999999.5",
        "-",
        "+",
        "1e10",
    ),
    *("foo,bar", "foo:bar", "[foo]", "a]", "{", "}", "[,]", "[1,]", '{"a"}', '{"a":}', "\\"),
    *("1e40", "1e400", "-0", "00", "1d", "1f", "0.1", "3.4e38", "3.5e38", "1e-50", "NULL"),
)
