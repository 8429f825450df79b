"""Alerts about jobs, runs that were late, and backfills that are paused."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table, and the columns of runs."""
    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("alert", sa.String, nullable=False, comment="the same in all channels"),
        sa.Column("channel", _NAME, nullable=False),
        sa.Column("job", _NAME, nullable=False, index=True),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("content", sa.Text, nullable=False, comment="JSON"),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_us", sa.BigInteger, nullable=False, comment="of the next attempt"),
        sa.Column("owner", _NAME),
        sa.Column(
            "expires_us", sa.BigInteger, comment="lease end, microseconds since 1970 UTC"
        ),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.UniqueConstraint("alert", "channel", name="alerts_once"),
        sa.Index("alerts_due", "state", "channel", "due_us"),
        sqlite_autoincrement=True,
    )
    for name, comment in (("paused", "its backfill"), ("late", "an alert said so")):
        column = sa.Column(
            name, sa.Boolean, nullable=False, server_default=sa.false(), comment=comment
        )
        op.add_column("runs", column)
