"""The first tables; a database without them gets all of the newest ones at once."""

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Change nothing: no database is older."""
