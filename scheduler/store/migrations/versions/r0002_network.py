"""Network policies: a challenge's explanation and identity, copied into its attempts so that a record needs one row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("challenges", "attempts")


def upgrade() -> None:
    """Add the columns; what was there before had no network file and no network."""
    for table in TABLES:
        op.add_column(table, sa.Column("network_json", sa.Text))
        op.add_column(table, sa.Column("network_digest", sa.String(80), nullable=False, server_default=""))


def downgrade() -> None:
    """Take them away."""
    for table in TABLES:
        with op.batch_alter_table(table) as batch:
            batch.drop_column("network_digest")
            batch.drop_column("network_json")
