"""The profile in use: what it allows, refuses and kills, and that it is what the tables give."""

import json
from typing import Any

import pytest

from seccomp import deviations, generate
from seccomp.deviations import Addition


@pytest.fixture
def profile() -> dict[str, Any]:
    return json.loads(generate.PROFILE.read_text(encoding="utf-8"))


@pytest.fixture
def required() -> dict[str, Any]:
    return json.loads(generate.REQUIRED.read_text(encoding="utf-8"))


def rules(profile: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for group in profile["syscalls"]:
        for name in group["names"]:
            assert name not in found, f"{name} has two rules"
            found[name] = (group["action"], group.get("args"))
    return found


def test_committed_profile_is_what_the_tables_give() -> None:
    assert generate.PROFILE.read_text(encoding="utf-8") == generate.render()
    assert generate.main(["--check"]) == 0


def test_drift_is_noticed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    edited = tmp_path / "profile.json"
    edited.write_text(generate.render().replace("umask", "unshare"), encoding="utf-8")
    monkeypatch.setattr(generate, "PROFILE", edited)
    assert generate.main(["--check"]) == 1
    assert "run python -m seccomp.generate" in capsys.readouterr().err


def test_everything_not_named_is_refused(profile: dict[str, Any]) -> None:
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"


def test_the_required_list_is_kept_name_by_name(profile: dict[str, Any], required: dict[str, Any]) -> None:
    expected = set(generate.required_allowed(required)) - {"clone3"}
    assert len(generate.required_allowed(required)) == 156
    assert {name for name in expected if rules(profile)[name][0] == "SCMP_ACT_ALLOW"} == expected


def test_every_allowed_call_beyond_the_list_has_a_reason(profile: dict[str, Any], required: dict[str, Any]) -> None:
    explained = {n for a in (*deviations.ADDITIONS, *deviations.SENTRY_DENIES) for n in a.names}
    beyond = {n for n, (action, _) in rules(profile).items() if action == "SCMP_ACT_ALLOW"}
    assert beyond - set(generate.required_allowed(required)) == explained
    for addition in (*deviations.ADDITIONS, *deviations.SENTRY_DENIES):
        assert addition.needed_by and addition.harmless_because


def test_clone_is_refused_with_any_namespace_flag(profile: dict[str, Any]) -> None:
    action, arguments = rules(profile)["clone"]
    assert action == "SCMP_ACT_ALLOW"
    assert arguments == [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert arguments[0]["value"] & flag, hex(flag)


def test_clone3_falls_back_and_ptrace_kills(profile: dict[str, Any]) -> None:
    assert rules(profile)["clone3"] == ("SCMP_ACT_TRACE", None)
    assert rules(profile)["ptrace"] == ("SCMP_ACT_KILL", None)


@pytest.mark.parametrize("name", deviations.NEVER)
def test_dangerous_calls_have_no_rule(profile: dict[str, Any], name: str) -> None:
    assert name not in rules(profile)


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("read",), "read is listed twice"),
        (("ptrace",), "ptrace is listed twice"),
        (("unshare",), "unshare must stay out"),
    ],
)
def test_a_bad_addition_is_refused_by_name(
    required: dict[str, Any], monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], complaint: str
) -> None:
    bad = Addition(names, "a test", "it never runs")
    monkeypatch.setattr(generate, "ADDITIONS", (*deviations.ADDITIONS, bad))
    with pytest.raises(generate.ProfileError, match=complaint):
        generate.build(required)
