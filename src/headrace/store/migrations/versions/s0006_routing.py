"""What decides which topic each record of a batch goes to, beside the batch's intent."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of batches that are there already it is not known."""
    op.add_column(
        "batches",
        sa.Column("routing", sa.Text, comment="null where it is not known"),
    )
