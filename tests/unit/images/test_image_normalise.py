"""What is taken out of a root file system: traces of the build, secrets, set-id bits; and nothing else."""

from pathlib import Path

import pytest

from images.normalise import normalise


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "etc/shadow": "root:*:20421:0:99999:7:::\nagent:!:20421:0:99999:7:::\n",
        "etc/passwd": "root:x:0:0::/root:/bin/bash\n",
        "etc/passwd-": "old",
        "etc/hostname": "buildhost\n",
        "etc/resolv.conf": "nameserver 10.0.0.1\n",
        "etc/machine-id": "0123",
        "etc/ssl/private/ssl-cert-snakeoil.key": "secret",
        "etc/ssl/certs/ssl-cert-snakeoil.pem": "cert",
        "etc/ssl/certs/real.pem": "cert",
        "usr/bin/su": "program",
        "usr/lib/python3/x.py": "x = 1\n",
        "usr/lib/python3/__pycache__/x.cpython-311.pyc": "bytes",
        "usr/share/doc/git/README": "text",
        "usr/share/doc/git/copyright": "licence",
        "var/log/apt/history.log": "today",
        "var/lib/dpkg/status": "packages",
        "var/lib/apt/lists/x": "list",
        "tmp/left": "over",
        "usr/sbin/policy-rc.d": "exit 101",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "usr/bin/su").chmod(0o4755)
    (tmp_path / "etc/ssl/certs/abcd.0").symlink_to("ssl-cert-snakeoil.pem")
    (tmp_path / "etc/ssl/certs/ef01.0").symlink_to("real.pem")
    return tmp_path


def listing(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}


def test_only_what_belongs_into_an_image_is_left(root: Path) -> None:
    normalise(root)
    assert listing(root) == {
        "etc/shadow",
        "etc/passwd",
        "etc/hostname",
        "etc/hosts",
        "etc/ssl/certs/real.pem",
        "etc/ssl/certs/ef01.0",
        "usr/bin/su",
        "usr/lib/python3/x.py",
        "usr/share/doc/git/copyright",
        "var/lib/dpkg/status",
    }


def test_set_id_bits_go(root: Path) -> None:
    normalise(root)
    assert (root / "usr/bin/su").stat().st_mode & 0o7777 == 0o755


def test_the_day_of_the_build_is_not_in_the_password_file(root: Path) -> None:
    normalise(root)
    assert (root / "etc/shadow").read_text() == "root:*:19700:0:99999:7:::\nagent:!:19700:0:99999:7:::\n"


def test_the_host_has_no_say_in_the_name(root: Path) -> None:
    normalise(root)
    assert (root / "etc/hostname").read_text() == "sandbox\n"


def test_again_changes_nothing(root: Path) -> None:
    normalise(root)
    before = {name: (root / name).read_bytes() for name in listing(root)}
    normalise(root)
    assert {name: (root / name).read_bytes() for name in listing(root)} == before
