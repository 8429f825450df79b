"""Epochs of deleted tasks, so that they are not reused."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "retired_epochs",
        sa.Column("connector", _NAME, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column(
            "epoch", sa.Integer, nullable=False, comment="the last of a task that was removed"
        ),
    )
