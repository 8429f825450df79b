"""Offline jobs and their runs."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "jobs",
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("uid", sa.String, nullable=False),
        sa.Column("document", sa.Text, nullable=False, comment="JSON, secrets as references"),
        sa.Column("version", sa.Integer, nullable=False, comment="of its document, from 1"),
        sa.Column("state", sa.String, nullable=False, index=True),
        sa.Column("after", _NAME, index=True, comment="the job whose runs make its own"),
        sa.Column("cursor_us", sa.BigInteger, comment="where its next window begins"),
        sa.Column("due_us", sa.BigInteger, index=True, comment="when that window is due"),
        sa.Column("why", sa.Text),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
        sa.Column("by", sa.String, nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("job", _NAME, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column(
            "lower", sa.Text, nullable=False, comment="empty for none, so that two are equal"
        ),
        sa.Column("upper", sa.Text, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("trigger", sa.String, nullable=False),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("due_us", sa.BigInteger, nullable=False),
        sa.Column("backfill", sa.String),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("owner", _NAME),
        sa.Column(
            "expires_us", sa.BigInteger, comment="lease end, microseconds since 1970 UTC"
        ),
        sa.Column("stop_asked", sa.Boolean, nullable=False),
        sa.Column("began_us", sa.BigInteger),
        sa.Column("ended_us", sa.BigInteger),
        sa.Column("counts", sa.Text),
        sa.Column("application", sa.String),
        sa.Column("error", sa.Text),
        sa.UniqueConstraint("job", "kind", "lower", "upper", name="runs_window"),
        sa.Index("runs_due", "state", "due_us"),
        sa.Index("runs_of_job", "job", "state"),
        sqlite_autoincrement=True,
    )
