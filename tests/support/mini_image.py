"""A sandbox image of one static program, for tests of the runtime: busybox from Debian, imported in a second.

Such an image fits every engine, a private one included, whose store starts out empty.
"""

from __future__ import annotations

import io
import subprocess
import tarfile

import docker

from scripts.provision.debian import unpack_beside
from scripts.provision.places import cached

TAG = "gauntlet-test-runtime:2"
DIRECTORIES = ("bin", "dev", "etc", "proc", "scoring", "sys", "tmp", "usr", "usr/local", "usr/local/bin", "workspace")
PASSWD = b"root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/workspace:/bin/sh\n"


def mini_image(client: docker.APIClient) -> str:
    """The image's id on that engine, imported if it is not there. Blocking."""
    found = client.images(name=TAG)
    if not found:
        client.import_image_from_data(_archive(), repository=TAG.partition(":")[0], tag=TAG.partition(":")[2])
        found = client.images(name=TAG)
    return str(found[0]["Id"])


def _archive() -> bytes:
    program = unpack_beside(["busybox-static"], cached("busybox-static", "debian")) / "bin" / "busybox"
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True, timeout=60).stdout
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in DIRECTORIES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for name, data, mode in (("bin/busybox", program.read_bytes(), 0o755), ("etc/passwd", PASSWD, 0o644)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
        for applet in applets.split():
            if applet != "busybox":
                entry = tarfile.TarInfo(f"bin/{applet}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
    return buffer.getvalue()
