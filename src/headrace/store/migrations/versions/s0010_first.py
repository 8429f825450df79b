"""How often the workers of runs have died."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    deaths = sa.Column(
        "deaths", sa.Integer, nullable=False, server_default="0", comment="of its workers"
    )
    op.add_column("runs", deaths)
