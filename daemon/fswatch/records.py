"""The wire format of fanotify's reports: one record each. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

# One report that names where a thing was and where it is (5.17 on), in place of MOVED_FROM and MOVED_TO.
RENAME = 0x10000000
Q_OVERFLOW = 0x4000
_HEAD = struct.Struct("<IBBHQii")  # event_len, vers, reserved, metadata_len, mask, fd, pid
_INFO = struct.Struct("<BBH8sIi")  # info_type, pad, len, fsid, handle_bytes, handle_type; then the handle, then a name
_HANDLE_AT = 12  # a struct file_handle begins behind info_type, pad, len and fsid
_FID, _DFID_NAME, _OLD_DFID_NAME, _NEW_DFID_NAME = 1, 2, 10, 12

# A name in a directory: the directory's handle, the name. A handle is a whole `struct file_handle`.
Place = tuple[bytes, bytes]
_NOWHERE: Place = (b"", b"")


class Record(NamedTuple):
    """One report: what happened at `place`, to the object `child` if the kernel says. A rename's `target` is set."""

    mask: int
    place: Place
    child: bytes | None
    target: Place = _NOWHERE


def records(data: bytes) -> Iterator[Record]:
    """Each report of a buffer."""
    at, end = 0, len(data)
    while at < end:
        length, _, _, head, mask, _, _ = _HEAD.unpack_from(data, at)
        place, target, child = _NOWHERE, _NOWHERE, None
        info, stop = at + head, at + length
        while info < stop:
            kind, _, size, _, handle_bytes, _ = _INFO.unpack_from(data, info)
            handle = data[info + _HANDLE_AT : info + _INFO.size + handle_bytes]
            if kind in (_DFID_NAME, _OLD_DFID_NAME, _NEW_DFID_NAME):
                named = handle, data[info + _INFO.size + handle_bytes : info + size].split(b"\0", 1)[0]
                place, target = (place, named) if kind == _NEW_DFID_NAME else (named, target)
            elif kind == _FID and handle_bytes:
                child = handle
            info += size
        yield Record(mask, place, child, target)
        at += length
