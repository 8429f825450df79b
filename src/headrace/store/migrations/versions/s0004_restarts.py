"""Restart counts, the times of the next restarts, and the lease of the server."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns and the table."""
    op.add_column(
        "tasks", sa.Column("restarts", sa.Integer, nullable=False, server_default="0")
    )
    for table in ("tasks", "managed_connectors"):
        op.add_column(
            table,
            sa.Column("next_us", sa.BigInteger, comment="when it is started anew by itself"),
        )
    op.create_table(
        "servers",
        sa.Column(
            "place", sa.String, primary_key=True, comment="what one server does at a time"
        ),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("since_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
    )
