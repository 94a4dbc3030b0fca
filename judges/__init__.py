"""Judges: what an attempt left is scored here, against tests that no agent ever could see."""
