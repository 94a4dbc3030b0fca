"""The audit ledger: its port and its adapters."""
