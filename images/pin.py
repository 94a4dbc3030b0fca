"""Writes a stack's lock file from what the package archive holds now."""

import tempfile
from pathlib import Path

from images import lock, rootfs
from images.build import default_cache, private
from images.stacks import find_stack


def write_lock(stack_name: str) -> Path:
    """Install the stack without a lock in a scratch directory and lock what that gave; return the lock file."""
    stack = find_stack(stack_name)
    with tempfile.TemporaryDirectory(prefix=".pin-", dir=private(default_cache())) as scratch:
        root = Path(scratch) / "root"
        root.mkdir(mode=0o755)
        pins = rootfs.pin(stack, root)
    stack.lock_file.write_text(lock.render(pins), encoding="utf-8")
    return stack.lock_file
