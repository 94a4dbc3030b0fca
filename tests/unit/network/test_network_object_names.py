"""Names of rendered objects: no two objects of one namespace share one, whatever sandboxes and networks are called."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network.model import PodSpec
from network.render.backend import render
from network.render.lint import lint
from network.render.names import metadata, slug, subdomain
from tests.support.network_files import compose, values

BACKENDS = ["cilium", "gke-dpv2", "kubernetes"]
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def named(text: str, sandbox_id: str, backend: str) -> list[tuple[str, str]]:
    """(kind, name) of a sandbox's own objects."""
    objects = render(compose(text), backend, sandbox_id=sandbox_id).objects  # type: ignore[arg-type]
    return [
        (item["kind"], item["metadata"]["name"])
        for item in objects
        if not item["metadata"]["name"].startswith("gauntlet-baseline")
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_networks_with_names_alike_have_objects_of_their_own(backend: str) -> None:
    hashed = slug("A")
    outcome = values(f"""
        services:
          default: {{image: x, networks: [A]}}
          c: {{image: x, networks: ["{hashed}"]}}
        networks: {{A: {{}}, "{hashed}": {{}}}}
    """)
    assert outcome.ok, outcome.report.problems
    objects = render(outcome, backend).objects  # type: ignore[arg-type]
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "x-base"), ("a-svc-x", "y")),
        (("a", "x"), ("a-svc", "x")),
        (("1a", "x"), ("s-1a", "x")),
        (("A", "x"), (slug("A"), "x")),
        (("A", "x"), ("a", "x")),
        (("1A", "x"), ("s-1A", "x")),
        (("1a", "x"), (subdomain("1a"), "x")),
        (("a.b", "x"), ("a-b", "x")),
    ],
)
def test_two_sandboxes_never_own_an_object_of_one_name(
    one: tuple[str, str], other: tuple[str, str], backend: str
) -> None:
    text = "services: {{default: {{image: x}}, {}: {{image: y}}}}"
    mine, theirs = (set(named(text.format(service), sandbox, backend)) for sandbox, service in (one, other))
    assert mine and theirs and not mine & theirs


@given(st.lists(st.text("aAb1-._", min_size=1, max_size=5), unique=True, min_size=2, max_size=8))
def test_slugs_and_subdomains_of_different_texts_differ(texts: list[str]) -> None:
    texts = list(dict.fromkeys([*texts, *map(slug, texts), *map(subdomain, texts)]))
    for make in (slug, subdomain):
        made = [make(text) for text in texts]
        assert len(set(made)) == len(made)
    assert all(DNS_LABEL.fullmatch(subdomain(text)) for text in texts)


def test_the_longest_names_fit() -> None:
    for text in ("1" * 63, "a" * 63, "A" * 63, "a" * 50):
        assert DNS_LABEL.fullmatch(subdomain(text))
        assert len(metadata(text, "ns", "net", "N" * 55)["name"]) <= 253


def test_parts_are_never_run_together() -> None:
    pairs = itertools.product(["a", "a-b", "b", "a.b", "net"], repeat=2)
    names = [metadata(sandbox, "ns", "svc", service)["name"] for sandbox, service in pairs]
    assert len(set(names)) == len(names)


def test_the_lint_finds_two_objects_of_one_name() -> None:
    rendered = render(compose("services: {a: {image: x}}"), "cilium")
    pods: dict[str, PodSpec] = dict(rendered.pods)
    assert lint(rendered.objects, pods) == []
    twice = [*rendered.objects[:2], *rendered.objects[1:]]
    assert any("two objects are named sandbox.base" in line for line in lint(twice, pods))
