"""Which finds count as left by the tests: new ones, but for those of a user's own environment `local`."""

from __future__ import annotations

from tests.support.leftovers import Leftovers


def found(*names: str) -> Leftovers:
    nothing: frozenset[str] = frozenset()
    return Leftovers(frozenset(names), frozenset(names), frozenset(names), nothing, frozenset(names))


def test_what_is_new_is_told_by_kind() -> None:
    left = found("t1-0 t1-0-sbx_1", "/var/lib/gauntlet/e20/x").beyond(found("/var/lib/gauntlet/e20/x"))
    assert left == {kind: ["t1-0 t1-0-sbx_1"] for kind in ("containers", "mounts", "loop_devices", "sockets")}


def test_a_users_environment_beside_the_tests_is_not_judged() -> None:
    users = found(
        "local-0 gauntlet-x-att_1", "/var/lib/gauntlet/local/node-0/slots/a/quota.img", "/run/gauntlet/local/a"
    )
    assert users.beyond(found()) == {}
    assert found("localish-0 x", "/var/lib/gauntlet/local2/x").beyond(found()) != {}
