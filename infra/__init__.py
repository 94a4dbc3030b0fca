"""Environments as Pulumi programs."""
