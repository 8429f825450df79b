"""The JDBC drivers that tests load. A process uses one version of each."""

from pathlib import Path

import pyspark

from headrace.sdk.jdbc import JdbcDriver

H2 = JdbcDriver(
    coordinates=("com.h2database:h2:2.3.232",),
    sha256=("8dae62d22db8982c3dcb3826edb9c727c5d302063a67eef7d63d82de401f07d3",),
)
OTHER_H2 = JdbcDriver(
    coordinates=("com.h2database:h2:2.2.224",),
    sha256=("b9d8f19358ada82a4f6eb5b174c6cfe320a375b5a9cb5a4fe456d623e6e55497",),
)
SQLITE = JdbcDriver(
    coordinates=("org.xerial:sqlite-jdbc:3.50.3.0",),
    sha256=("a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",),
)
DERBY = JdbcDriver(
    path=str(next((Path(pyspark.__file__).parent / "jars").glob("derby-10*.jar")))
)
"""Of Spark's own jars, which hold what it needs beside it."""
