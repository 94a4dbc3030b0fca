"""Warm pools: never-used sandboxes, ready before anyone asks."""
