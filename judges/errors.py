"""Whose fault a failed judging is."""

from __future__ import annotations


class JudgingFault(Exception):
    """The judging failed before any agent code ran: the platform's or the challenge's fault, never a zero."""
