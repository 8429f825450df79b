"""Connectors managed by the control plane, and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "managed_connectors",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("uid", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column(
            "version", sa.Integer, nullable=False, comment="of its configuration, from 1"
        ),
        sa.Column("target", sa.String, nullable=False),
        sa.Column("restarts", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("worker", sa.String, nullable=False),
        sa.Column("trace", sa.Text),
        sa.Column("updated_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "connector_configs",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("config", sa.Text, nullable=False, comment="JSON, secrets as references"),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("by", sa.String, nullable=False),
    )
    op.create_table(
        "task_configs",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("config", sa.Text, nullable=False, comment="JSON"),
        sa.Column("restarts", sa.Integer, nullable=False),
    )
    op.create_table(
        "topics_in_use",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("topic", _NAME, primary_key=True),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("connector", _NAME, nullable=False, index=True),
        sa.Column("task", sa.Integer),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("detail", sa.Text, nullable=False, comment="JSON"),
        sqlite_autoincrement=True,
    )
