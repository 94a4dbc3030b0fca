"""The scheduler: accepts attempts, queues them durably, places them on nodes, decides how they ended, keeps the record.

Layers: `services/` (gRPC to domain, nothing else) → domain modules → ports (`store.port`, `daemon_port`, `ledger_port`)
→ adapters. Everything it promised is in the control database; it may be killed at any instruction.
"""
