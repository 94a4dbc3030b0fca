"""What the validation's network probe promises: what the docker backend says of a sandbox that is granted nothing."""

from __future__ import annotations

from pathlib import Path

from images import probing


def test_everything_is_closed_but_the_control() -> None:
    checks = {check.id: check for check in probing.promised(("192.0.2.7",))}
    assert checks.pop("control").expect == "reachable"
    assert {check.expect for check in checks.values()} == {"closed"}
    assert checks["node-0"].address == checks["kubelet-0"].address == "192.0.2.7"
    assert {"interfaces", "metadata-v4", "metadata-v6", "outside-v4", "outside-dns", "gateway-2375"} <= set(checks)


def test_what_a_result_is_kept_by_does_not_depend_on_this_hosts_address() -> None:
    assert repr(probing.promised()) == repr(probing.promised())
    assert not any(check.id.startswith(("node", "kubelet")) for check in probing.promised())


def test_the_program_is_compiled_once_into_a_cache(tmp_path: Path) -> None:
    first = probing.program(tmp_path)
    written = first.stat().st_mtime_ns
    assert probing.program(tmp_path) == first and first.stat().st_mtime_ns == written
    probing.place(tmp_path, tmp_path)
    assert (tmp_path / "netprobe").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
