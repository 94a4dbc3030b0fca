"""The trace sink: hears every sandbox's sentry and turns what it says into process and escape events.

A process of its own (`python -m daemon.trace`), so that a daemon's death loses no event; the daemon talks to it
through `daemon.trace.client`.
"""
