"""Workspaces of attempts: challenge templates, quota file systems, overlays, diffs and judges' views."""
