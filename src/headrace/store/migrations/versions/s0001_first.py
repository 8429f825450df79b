"""The tables of connectors, tasks, batches, schemas and the schema registry."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the first tables."""
    _make_tasks()
    _make_registry()


def _make_tasks() -> None:
    op.create_table(
        "connectors",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("uid", sa.String, nullable=False),
    )
    op.create_table(
        "tasks",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("owner", _NAME),
        sa.Column(
            "expires_us", sa.BigInteger, comment="lease end, microseconds since 1970 UTC"
        ),
        sa.Column("position", sa.Text, nullable=False),
        sa.Column("last_batch", sa.BigInteger, nullable=False),
        sa.Column("totals", sa.Text, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("trace", sa.Text),
        sa.Column("updated_us", sa.BigInteger),
    )
    op.create_table(
        "batches",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("start", sa.Text, nullable=False),
        sa.Column("end", sa.Text, nullable=False),
        sa.Column("begun_us", sa.BigInteger, nullable=False),
        sa.Column("finished_us", sa.BigInteger, comment="null while only the intent is stored"),
        sa.Column("counts", sa.Text),
    )
    op.create_table(
        "schemas",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("stream", _NAME, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("schema", sa.Text, nullable=False),
    )
    op.create_table(
        "ledger",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("item", sa.Text, nullable=False),
    )


def _make_registry() -> None:
    op.create_table(
        "registry_schemas",
        sa.Column("context", _NAME, primary_key=True),
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("guid", _NAME, nullable=False, index=True),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column(
            "references", sa.Text, nullable=False, comment="JSON: name, subject, version"
        ),
        sa.Column(
            "extras", sa.Text, nullable=False, comment="JSON: metadata and rules; or empty"
        ),
    )
    op.create_table(
        "registry_versions",
        sa.Column("context", _NAME, primary_key=True),
        sa.Column("subject", _NAME, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("schema_id", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.Boolean, nullable=False),
    )
    op.create_index("registry_versions_of", "registry_versions", ["context", "schema_id"])
    op.create_table(
        "registry_references",
        sa.Column("context", _NAME, primary_key=True),
        sa.Column("schema_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("used_subject", _NAME, nullable=False),
        sa.Column("used_version", sa.Integer, nullable=False),
    )
    op.create_index(
        "registry_references_to", "registry_references", ["used_subject", "used_version"]
    )
    op.create_table(
        "registry_settings",
        sa.Column("kind", _NAME, primary_key=True),
        sa.Column("scope", _NAME, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "registry_ids",
        sa.Column("context", _NAME, primary_key=True),
        sa.Column("last", sa.BigInteger, nullable=False, comment="an id is never used twice"),
    )
