"""The steps of docs/network.md work as printed, with the example files of the same page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.network import app
from tests.support.network_files import compose

PAGE = (Path(__file__).parents[3] / "docs" / "network.md").read_text()
IMAGE = "registry.example/netprobe@sha256:" + "0" * 64
TASK = "services:\n  default: {image: a, runtime: gvisor}\n  db: {image: b, runtime: gvisor}\n"


def block(section: str, language: str) -> str:
    """The first code block of a section."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None, f"{section} has no {language} block"
    return found[1]


def expanded(text: str, variables: dict[str, str]) -> str:
    """The text with `$NAME` replaced; an unknown one is a KeyError."""
    return re.sub(r"\$([A-Z]+)", lambda found: variables[found[1]], text)


def keep_promises(words: list[str]) -> str:
    """What the probe prints in a sandbox that keeps every promise of the plan that these words ask for."""
    told = CliRunner().invoke(app, [*words, "--json"])
    document = json.loads(told.stdout)
    usual = {"reachable": "open", "closed": "blocked"}
    results = [{"id": item["id"], "outcome": usual[item["expect"]]} for item in document["expected"]]
    return json.dumps({"probe": "netprobe/2", "digest": document["plan"]["digest"], "results": results})


def test_every_printed_step_exits_0_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("task.yaml").write_text(TASK)
    Path("isolation.yaml").write_text(block("Isolation settings", "yaml"))
    Path("cluster.yaml").write_text(block("The cluster file", "yaml"))
    Path("targets.yaml").write_text(block("The probe", "yaml"))
    variables = {"IMAGE": IMAGE}
    ran = []
    for line in block("Before a sensitive run", "bash").splitlines():
        words = shlex.split(expanded(line, variables), comments=True)
        if len(words) == 1 and "=" in words[0]:
            name, _, value = words[0].partition("=")
            variables[name] = value
            continue
        assert words[:2] == ["gauntlet", "network"], line
        target = words[words.index(">") + 1] if ">" in words else None
        arguments = words[2 : words.index(">")] if target else words[2:]
        if "--results" in arguments:
            at = arguments.index("--results")
            Path(arguments[at + 1]).write_text(keep_promises(arguments[:at]))
        told = CliRunner().invoke(app, arguments)
        assert told.exit_code == 0, f"{line}\n{told.stdout}\n{told.stderr}"
        if target:
            Path(target).write_text(told.stdout)
        ran.append(arguments[0])
    assert ran == ["check", *["explain"] * 3, "render", "evaluate", "render", *["probe"] * 2]


@pytest.mark.parametrize(
    ("networks", "internet"), [("{n: }", "all"), ("{n: , m: {internal: true}}", "none"), ("{n: , m: }", "none")]
)
def test_a_shared_plain_network_opens_the_internet_only_when_it_is_the_only_one_declared(
    networks: str, internet: str
) -> None:
    """The row of the table; a second network, used or not, makes the file one that separates its services."""
    outcome = compose(f"services: {{a: {{networks: [n]}}, b: {{networks: [n]}}}}\nnetworks: {networks}")
    assert {verdict.internet for verdict in outcome.matrix.values()} == {internet}
    assert "| the only network declared is plain, and *every* service joins it | everything, for all | all |" in PAGE
