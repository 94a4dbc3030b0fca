"""Reading the kernel's mount table."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.workspace import mountinfo
from daemon.workspace.layout import Layout, checked_id
from daemon.workspace.model import WorkspaceError

TABLE = b"""\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:51 / /state/slots/a/merged rw,nosuid,nodev,relatime shared:7 master:3 - overlay overlay rw,lowerdir=/l
41 27 7:0 / /state/with\\040space\\134x ro - ext4 /dev/loop0 rw
42 27 7:0 / /state/\xff rw - ext4 /dev/loop0 rw
"""


def test_fields_of_a_line() -> None:
    root, overlay, odd, raw = mountinfo.parse(TABLE)
    assert (root.target, root.kind, root.shared) == (Path("/"), "ext4", False)
    assert (overlay.target, overlay.kind, overlay.shared) == (Path("/state/slots/a/merged"), "overlay", True)
    assert {"rw", "nosuid", "nodev"} <= overlay.options and overlay.mount_id == 40
    assert odd.target == Path("/state/with space\\x") and odd.options == {"ro"}
    assert bytes(raw.target) == b"/state/\xff"


def test_below_is_by_whole_names() -> None:
    assert any(mount.target == Path("/proc") for mount in mountinfo.below(Path("/proc")))
    assert not mountinfo.below(Path("/pro"))
    assert mountinfo.is_mounted(Path("/proc")) and not mountinfo.is_mounted(Path("/proc/self"))


def test_unmounting_what_is_no_mount_point_is_no_error(tmp_path: Path) -> None:
    assert not mountinfo.unmount(tmp_path / "missing")
    assert not mountinfo.unmount(tmp_path)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "-x", "_x", "a b", "a\n", "x" * 97, "ä"])
def test_ids_that_are_no_directory_names(value: str) -> None:
    with pytest.raises(WorkspaceError, match="entry"):
        checked_id("entry", value)
    with pytest.raises(WorkspaceError):
        Layout.of(Path("/state")).slot(value)


@pytest.mark.parametrize("path", ["/a,b", "/a:b", "/a\\b", "/a b"])
def test_state_directories_that_overlay_options_cannot_name(path: str) -> None:
    with pytest.raises(WorkspaceError, match="remedy"):
        Layout.of(Path(path))
