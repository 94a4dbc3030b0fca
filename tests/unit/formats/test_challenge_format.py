"""What challenge.yaml and a challenge's directory may hold, and how mistakes are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.challenge import check_directory, parse_description
from formats.network_files import NetworkText, network_texts, report_problems
from formats.objective import parse_objective
from formats.problems import FormatError
from formats.sizes import parse_size, show_size

GOOD = b"""
id: fix-median
title: Fix the median
stack: python311
time_limit_seconds: 120
resources: {memory: 512m, cpus: 1, disk: 256m, pids: 128, tmp: 64m}
environment: {MODE: test}
"""


def problems(text: bytes) -> list[str]:
    with pytest.raises(FormatError) as caught:
        parse_description(text, "c.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_a_good_description_is_read_with_sizes_in_bytes():
    spec = parse_description(GOOD)
    assert (spec.id, spec.stack, spec.time_limit_seconds) == ("fix-median", "python311", 120)
    assert (spec.resources.memory, spec.resources.tmp) == (512 * 1024**2, 64 * 1024**2)


def test_an_unknown_key_names_file_key_and_the_nearest_known_key():
    (problem,) = problems(GOOD + b"time_limit_secs: 5\n")
    assert problem == "c.yaml: time_limit_secs: unknown key; did you mean 'time_limit_seconds'?"


def test_an_unknown_nested_key_is_named_by_its_path():
    (problem,) = problems(GOOD.replace(b"memory:", b"memry:"))
    assert problem == "c.yaml: resources.memry: unknown key; did you mean 'memory'?"


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("{memory: 1}", "resources.memory: 1: is less than any sandbox needs; write at least 64MB"),
        ("{memory: 32m}", "resources.memory: '32m': is less than any sandbox needs; write at least 64MB"),
        ("{disk: 1k}", "resources.disk: '1k': is less than any sandbox needs; write at least 16MB"),
    ],
)
def test_what_no_sandbox_could_live_with_is_refused_by_key(wanted: str, words: str) -> None:
    text = f"id: a\ntitle: A\nstack: python311\ntime_limit_seconds: 1\nresources: {wanted}\n"
    with pytest.raises(FormatError) as refused:
        parse_description(text.encode(), "c.yaml")
    assert words in str(refused.value)


def test_every_problem_is_reported_at_once():
    found = problems(b"id: Bad Id\nstack: python311\ntime_limit_seconds: 0\n")
    assert [text.split(": ")[1] for text in found] == ["id", "title", "time_limit_seconds"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"id: a\nid: b\n", "duplicate key 'id'"),
        (b"a: &x 1\nb: *x\n", "aliases are not supported"),
        (b"- a\n", "is not a mapping"),
        (b"", "is not a mapping"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"a: [", "is not valid YAML at line"),
        (b"a: " + b"[" * 5000, "is not valid YAML"),
        (b"1: a\n", "is not a string"),
    ],
)
def test_broken_yaml_is_one_clear_message(text, words):
    (problem,) = problems(text)
    assert words in problem


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "GAUNTLET_RANDOM_SEED", "A-B", "1A"])
def test_the_platforms_environment_cannot_be_changed(name):
    (problem,) = problems(GOOD.replace(b"MODE", name.encode()))
    assert name in problem


@pytest.mark.parametrize("value", [b".nan", b".inf", b"true", b"'5'", b"1.5", b"-1"])
def test_a_time_limit_is_a_positive_whole_number(value):
    assert "time_limit_seconds" in problems(GOOD.replace(b"120", value))[0]


def test_a_directory_reports_what_does_not_belong_there(tmp_path):
    (tmp_path / "challenge.yaml").write_bytes(GOOD)
    (tmp_path / "workspace" / "secrets").mkdir(parents=True)
    (tmp_path / "hidden" / "tests").mkdir(parents=True)
    with pytest.raises(FormatError) as caught:
        check_directory(tmp_path)
    text = str(caught.value)
    for name in ("workspace/challenge: is missing", "workspace/secrets: is not part", "hidden/tests: is not part"):
        assert name in text
    (tmp_path / "workspace" / "challenge").mkdir()
    (tmp_path / "workspace" / "secrets").rmdir()
    (tmp_path / "hidden" / "tests").rmdir()
    assert check_directory(tmp_path).id == "fix-median"


def network_challenge(tmp_path, keys, **files):
    (tmp_path / "workspace" / "challenge").mkdir(parents=True)
    (tmp_path / "challenge.yaml").write_bytes(GOOD + keys)
    for name, text in files.items():
        (tmp_path / "network").mkdir(exist_ok=True)
        (tmp_path / "network" / f"{name}.yaml").write_text(text)
    return tmp_path


def test_a_network_file_and_isolation_settings_are_named_or_written_out(tmp_path):
    files = {"compose": "services: {a: {}}\n", "strict": "isolation: strict\n"}
    directory = network_challenge(tmp_path, b"network: compose.yaml\nisolation: strict.yaml\n", **files)
    texts = network_texts(directory, check_directory(directory))
    assert texts.network == NetworkText(b"services: {a: {}}\n", "network/compose.yaml")
    assert texts.isolation == NetworkText(b"isolation: strict\n", "network/strict.yaml")
    for inline in (b"isolation: strict\n", b"isolation: {level: strict}\n"):
        (directory / "challenge.yaml").write_bytes(GOOD + b"network: compose.yaml\n" + inline)
        own = network_texts(directory, check_directory(directory)).isolation
        assert own is not None and (own.file, own.only) == ("challenge.yaml", "isolation")


def test_a_challenge_that_says_nothing_about_the_network_has_no_texts(tmp_path):
    directory = network_challenge(tmp_path, b"")
    assert not network_texts(directory, check_directory(directory)).given


@pytest.mark.parametrize(
    ("keys", "files", "words"),
    [
        (b"network: compose.yml\n", {"compose": ""}, "'compose.yml' is no file in network/; files there: compose.yaml"),
        (b"network: compose.yaml\n", {}, "is no file in network/; files there: none"),
        (b"isolation: strcit\n", {}, "'strcit' is neither a level nor a file in network/; levels: standard, strict"),
        (b"", {"compose": ""}, "challenge.yaml names none of them; write `network: compose.yaml`"),
        (b"network: ../../etc/passwd\n", {}, "write the plain name of a file in network/"),
        (b"network: network/compose.yaml\n", {"compose": ""}, "write the plain name of a file in network/"),
        (b"network: .\n", {}, "write the plain name"),
        (b"network: {a: 1}\n", {}, "network: {'a': 1}: Input should be a valid string"),
        (b"isolation: [strict]\n", {}, "write a level, a mapping, or the plain name"),
    ],
)
def test_network_files_that_are_not_there_are_told_with_those_that_are(tmp_path, keys, files, words):
    with pytest.raises(FormatError) as caught:
        check_directory(network_challenge(tmp_path, keys, **files))
    (problem,) = caught.value.problems
    assert words in str(problem)


def test_a_network_report_becomes_problems_with_file_line_path_and_fix():
    entry = {
        "code": "R27", "name": "BACKEND_GAP", "message": "no", "service": "a", "path": "services.a", "line": 3,
        "fix": "drop it", "file": "network/compose.yaml",
    }  # fmt: skip
    first, second = report_problems([entry, {**entry, "line": None, "path": ""}])
    assert str(first) == "network/compose.yaml:3: services.a: R27 BACKEND_GAP (service a): no; drop it"
    assert str(second) == "network/compose.yaml: R27 BACKEND_GAP (service a): no; drop it"
    (third,) = report_problems([{**entry, "service": None}])
    assert str(third) == "network/compose.yaml:3: services.a: R27 BACKEND_GAP: no; drop it"


@pytest.mark.parametrize("missing", ["no/such/dir", "."])
def test_a_missing_directory_or_description_is_named(tmp_path, missing):
    with pytest.raises(FormatError, match=r"is no directory|challenge.yaml: is missing"):
        check_directory(tmp_path / missing)


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(text):
    try:
        parse_description(text)
    except FormatError as error:
        assert error.problems


@pytest.mark.parametrize(("text", "size"), [("512m", 512 << 20), ("1G", 1 << 30), ("64kb", 64 << 10), (7, 7), ("9", 9)])
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "1t", "-1", "0", 0, True, 1.5, None, "1.5g"])
def test_bad_sizes_are_refused(text):
    with pytest.raises(ValueError, match="512m"):
        parse_size(text)


def test_sizes_are_shown_shortest():
    assert [show_size(n) for n in (4 << 30, 512 << 20, 1 << 10, 1000)] == ["4GB", "512MB", "1KB", "1000B"]


def test_default_weights_leave_absent_suites_out():
    config = parse_objective(None)
    assert config.weights_of(["visible", "edge_cases", "security"]) == {"visible": 30, "edge_cases": 35, "security": 35}
    assert config.weights_of(["visible"]) == {"visible": 100}
    assert config.weights_of([]) == {}


def test_given_weights_are_scaled_to_what_is_present():
    config = parse_objective(b"weights: {visible: 1, edge_cases: 3, security: 4}")
    assert config.weights_of(["visible", "edge_cases"]) == {"visible": 25, "edge_cases": 75}


@pytest.mark.parametrize(
    "text", [b"timeout_seconds: 301", b"weights: {visble: 1}", b"command: {visible: []}", b"report: tap"]
)
def test_bad_objective_settings_are_refused(text):
    with pytest.raises(FormatError):
        parse_objective(text)
