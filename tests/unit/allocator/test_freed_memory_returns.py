"""The allocator's settings, in a process of their own: a large block is mapped apart, whatever was freed before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.environment import REPOSITORY

PROGRAM = """
import ctypes, sys
from daemon import allocator
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
libc.mallinfo2.restype = Info
if sys.argv[1] == "steady":
    assert allocator.steady()
libc.free(libc.malloc(16 << 20))
before = libc.mallinfo2().hblks
block = libc.malloc(4 << 20)
print(libc.mallinfo2().hblks - before)
"""


@pytest.mark.parametrize(("how", "mapped"), [("steady", "1"), ("as it comes", "0")])
def test_a_large_block_is_mapped_apart(how, mapped):
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == mapped
