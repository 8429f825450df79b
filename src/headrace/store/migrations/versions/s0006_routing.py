"""The routing digest of each batch, stored with its intent."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; it is null for existing batches."""
    op.add_column(
        "batches",
        sa.Column("routing", sa.Text, comment="null where it is not known"),
    )
