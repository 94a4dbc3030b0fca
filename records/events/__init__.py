"""The event store: its port and its adapters."""
