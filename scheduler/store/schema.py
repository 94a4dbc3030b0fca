"""The control database's tables, one schema for SQLite and PostgreSQL. Changes go through `migrations/`."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

metadata = MetaData()
# SQLite counts up by itself only for a column that is declared INTEGER.
Counter = BigInteger().with_variant(Integer, "sqlite")

attempts = Table(
    "attempts",
    metadata,
    Column("seq", Counter, primary_key=True, autoincrement=True),
    Column("attempt_id", String(80), nullable=False, unique=True),
    Column("challenge_id", String(64), nullable=False),
    Column("challenge_digest", String(80), nullable=False),
    Column("agent_id", String(128), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("supersedes", String(80)),
    Column("created_ns", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("outcome", String(16)),
    Column("fault", String(16)),
    Column("flags", Text, nullable=False),
    Column("reason", Text),
    Column("exit_reason", String(32)),
    Column("agent_feedback", Text),
    Column("cancel_reason", Text),
    Column("node_id", String(128)),
    Column("fence", BigInteger, nullable=False),
    Column("claim_tries", Integer, nullable=False),
    Column("report", LargeBinary),
    Column("started_ns", BigInteger),
    Column("deadline_ns", BigInteger),
    Column("ended_ns", BigInteger),
    Column("queued_mark", Float, nullable=False),
    Column("started_mark", Float),
    Column("ended_mark", Float),
    Column("judging_tries", Integer, nullable=False),
    Column("judging_lease_id", String(80)),
    Column("judging_worker", String(128)),
    Column("judging_until", Float),
    Column("judging_ready_mark", Float),
    Column("results", LargeBinary),
    Column("recorded", Boolean, nullable=False),
    Column("released", Boolean, nullable=False),
    Column("network_json", Text),
    Column("network_digest", String(80), nullable=False, server_default=""),
    Index("ix_attempts_queue", "state", "priority", "seq"),
    Index("ix_attempts_open", "recorded", "released", "state"),
    Index("ix_attempts_lease", "judging_lease_id"),
)

requests = Table(
    "requests",
    metadata,
    Column("principal", String(128), nullable=False),
    Column("request_id", String(36), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("resource", String(128), nullable=False),
    PrimaryKeyConstraint("principal", "request_id"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node_id", String(128), primary_key=True),
    Column("endpoint", Text, nullable=False),
    Column("agent_endpoint", Text, nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("boot_id", String(128), nullable=False),
    Column("draining", Boolean, nullable=False),
)

challenges = Table(
    "challenges",
    metadata,
    Column("digest", String(80), primary_key=True),
    Column("challenge_id", String(64), nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("spec_json", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("network_json", Text),
    Column("network_digest", String(80), nullable=False, server_default=""),
)

documents = Table(
    "documents",
    metadata,
    Column("attempt_id", String(80), nullable=False),
    Column("judge", String(32), nullable=False),
    Column("name", String(128), nullable=False),
    Column("content", LargeBinary, nullable=False),
    PrimaryKeyConstraint("attempt_id", "judge", "name"),
)

# One row: which boot the steady clock's readings in this database belong to.
clock = Table("clock", metadata, Column("boot_id", String(64), primary_key=True))
