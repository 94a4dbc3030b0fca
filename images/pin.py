"""Writes a stack's lock file from what the package archive holds now."""

import os
import tempfile
from pathlib import Path
from typing import Any

from images import lock, registry, rootfs
from images.build import default_cache, private
from images.stacks import find_stack


def write_lock(stack_name: str, client: Any) -> Path:
    """Install the stack without a lock in a scratch directory and lock what that gave; return the lock file.

    With `GAUNTLET_BASE_IMAGE` the lock is that of the stack on that base, and `client` builds it.
    """
    stack = find_stack(stack_name)
    base = os.environ.get(registry.ENVIRONMENT_VARIABLE)
    target = registry.lock_file(stack, base) if base else stack.lock_file
    with tempfile.TemporaryDirectory(prefix=".pin-", dir=private(default_cache())) as scratch:
        root = Path(scratch) / "root"
        root.mkdir(mode=0o755)
        pins = registry.pin(stack, base, root, client) if base else rootfs.pin(stack, root)
    target.write_text(lock.render(pins), encoding="utf-8")
    return target
