"""The control database's first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = ("attempts", "requests", "nodes", "challenges", "documents", "clock")


def upgrade() -> None:
    """Make the tables."""
    counter = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "attempts",
        sa.Column("seq", counter, primary_key=True, autoincrement=True),
        sa.Column("attempt_id", sa.String(80), nullable=False, unique=True),
        sa.Column("challenge_id", sa.String(64), nullable=False),
        sa.Column("challenge_digest", sa.String(80), nullable=False),
        sa.Column("agent_id", sa.String(128), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("supersedes", sa.String(80)),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("outcome", sa.String(16)),
        sa.Column("fault", sa.String(16)),
        sa.Column("flags", sa.Text, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("exit_reason", sa.String(32)),
        sa.Column("agent_feedback", sa.Text),
        sa.Column("cancel_reason", sa.Text),
        sa.Column("node_id", sa.String(128)),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("claim_tries", sa.Integer, nullable=False),
        sa.Column("report", sa.LargeBinary),
        sa.Column("started_ns", sa.BigInteger),
        sa.Column("deadline_ns", sa.BigInteger),
        sa.Column("ended_ns", sa.BigInteger),
        sa.Column("queued_mark", sa.Float, nullable=False),
        sa.Column("started_mark", sa.Float),
        sa.Column("ended_mark", sa.Float),
        sa.Column("judging_tries", sa.Integer, nullable=False),
        sa.Column("judging_lease_id", sa.String(80)),
        sa.Column("judging_worker", sa.String(128)),
        sa.Column("judging_until", sa.Float),
        sa.Column("judging_ready_mark", sa.Float),
        sa.Column("results", sa.LargeBinary),
        sa.Column("recorded", sa.Boolean, nullable=False),
        sa.Column("released", sa.Boolean, nullable=False),
    )
    op.create_table(
        "requests",
        sa.Column("principal", sa.String(128), nullable=False),
        sa.Column("request_id", sa.String(36), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("resource", sa.String(128), nullable=False),
        sa.PrimaryKeyConstraint("principal", "request_id"),
    )
    op.create_table(
        "nodes",
        sa.Column("node_id", sa.String(128), primary_key=True),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("agent_endpoint", sa.Text, nullable=False),
        sa.Column("capacity", sa.Integer, nullable=False),
        sa.Column("boot_id", sa.String(128), nullable=False),
        sa.Column("draining", sa.Boolean, nullable=False),
    )
    op.create_table(
        "challenges",
        sa.Column("digest", sa.String(80), primary_key=True),
        sa.Column("challenge_id", sa.String(64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("spec_json", sa.Text, nullable=False),
        sa.Column("created_ns", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "documents",
        sa.Column("attempt_id", sa.String(80), nullable=False),
        sa.Column("judge", sa.String(32), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", "judge", "name"),
    )
    op.create_table("clock", sa.Column("boot_id", sa.String(64), primary_key=True))
    op.create_index("ix_attempts_queue", "attempts", ["state", "priority", "seq"])
    op.create_index("ix_attempts_open", "attempts", ["recorded", "released", "state"])
    op.create_index("ix_attempts_lease", "attempts", ["judging_lease_id"])


def downgrade() -> None:
    """Drop them."""
    for table in reversed(TABLES):
        op.drop_table(table)
