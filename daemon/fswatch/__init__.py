"""Filesystem telemetry: what the agent changes in its workspace, seen from the host."""
