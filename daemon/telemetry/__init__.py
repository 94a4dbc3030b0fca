"""Telemetry of one node: what is recorded, where it is spooled, how it reaches the collector."""
