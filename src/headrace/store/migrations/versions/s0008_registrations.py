"""External schedulers of jobs, and the registrations with them."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the column and the table; existing jobs keep our own scheduler."""
    op.add_column(
        "jobs",
        sa.Column("engine", sa.String, comment="the outside scheduler that wakes it"),
    )
    op.create_index("ix_jobs_engine", "jobs", ["engine"])
    op.create_table(
        "registrations",
        sa.Column("engine", sa.String, primary_key=True, comment="an outside scheduler"),
        sa.Column("job", _NAME, primary_key=True),
        sa.Column("uid", sa.String, nullable=False, comment="of the job that was registered"),
        sa.Column("version", sa.Integer, nullable=False, comment="of its document"),
        sa.Column("active", sa.Boolean, nullable=False, comment="whether the engine wakes it"),
        sa.Column(
            "registered", sa.Boolean, nullable=False, comment="whether the engine has it so"
        ),
        sa.Column("error", sa.Text),
        sa.Column("changed_us", sa.BigInteger, nullable=False),
    )
