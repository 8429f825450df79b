"""Copies a table of PostgreSQL or MariaDB into Parquet files with dlt, as often as asked to.

Run by the Python of an environment of dlt's own, see bench_databases.py. A line of the input
asks for a copy in JSON: `url`, `table`, `target` (a folder), and what `connectorx` is given
beside them. The answer is a line as well.
"""

import json
import sys
from tempfile import TemporaryDirectory

import dlt
from dlt.sources.sql_database import sql_table


def copy(url: str, table: str, target: str, connectorx: dict[str, object]) -> None:
    """Run a pipeline that has never run before."""
    with TemporaryDirectory(prefix="dlt-") as folder:
        pipeline = dlt.pipeline(
            pipeline_name=table,
            pipelines_dir=folder,
            destination=dlt.destinations.filesystem(bucket_url=target),
            dataset_name="copied",
        )
        # dlt asks SQLAlchemy for the columns, and ConnectorX for the rows.
        scheme, _, place = url.partition(":")
        driver = {"postgresql": "psycopg2", "mysql": "pymysql"}[scheme]
        rows = sql_table(
            credentials=f"{scheme}+{driver}:{place}",
            table=table,
            backend="connectorx",
            backend_kwargs={"conn": url, **connectorx},
        )
        pipeline.run(rows, loader_file_format="parquet", write_disposition="replace")


for line in sys.stdin:
    copy(**json.loads(line))
    print("done", flush=True)
