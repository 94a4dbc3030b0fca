"""Hostile network files for fuzzing: real ones changed in bytes, in structure or by YAML's features, and random YAML.

Pure and deterministic: a generator goes in, inputs come out. The real files are in `network_corpus/`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

CORPUS = {path.name: path.read_bytes() for path in sorted((Path(__file__).parent / "network_corpus").glob("*.yaml"))}
FILES = [text for name, text in CORPUS.items() if name not in ("isolation.yaml", "cluster.yaml")]
TREES = {text: yaml.safe_load(text) for name, text in CORPUS.items() if name != "bomb.yaml"}
MAX_BYTES = 3 << 20
"""More than a reader takes, and no more: memory is to be the reader's."""
MAX_PLACES = 10_000
TOKENS = (
    b"{", b"}", b"[", b"]", b": ", b"- ", b"&x ", b"*x", b"<<: ", b"<<: *x\n", b"!!str ", b"!!binary ",
    b"!!python/name:os.system ", b"!x ", b"!<tag:yaml.org,2002:int> ", b"|\n", b"|2-\n", b">+\n", b"'", b'"', b"\n",
    b"\n  ", b"\r\n", b"\r", b"\t", b"#", b"---\n", b"...\n", b"%YAML 9\n", b"%TAG ! x:\n", b"? ", b"? [a]\n: ",
    b"~", b"null", b"\xff", b"\xfe\xff", b"\x00", b"\x1b[2J", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xa8",
    b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"${", b"${A:-", b"${A:?", b"}", b"$$", b"${A:-${B}}", b"none", b"bridge",
    b"networks", b"services", b"allowDomains", b"x-k8s", b"*", b"0" * 30, b"1e999", b"-.inf", b".nan", b"0o17",
    b"1_000", b"22:22", b"2026-11-30", b"9" * 400, b"\\u0000", b"\\UFFFFFFFF", b"a" * 3000, b"[" * 100,
    b"{a: " * 70, b"- " * 90, b"!!null ''",
)  # fmt: skip
JUNK: tuple[Any, ...] = (
    None, "", "none", "*", "**.x", 0, -1, 80, 2**70, True, 1.5, float("inf"), float("nan"), [], {}, [None],
    {"a": None}, {"": {}}, "host", "a b", "http://x", "0.0.0.0/0", "::/0", "169.254.169.254/32", "${X}", "${", "$$",
    "x" * 300, ["*"], {"internal": "false"}, "é", "\x7f", "\u202e", ["world"], "all", "bridge", [[[[]]]],
    {"networks": {"networks": {}}}, "10.0.0.1/8", "1" * 40,
)  # fmt: skip

KEYS = (
    "services", "networks", "default", "a", "image", "network_mode", "allowDomains", "isolation", "<<", "1", "? x", "",
)  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """What one run is given."""

    text: bytes
    kind: Literal["compose", "values"] | None
    isolation: bytes | None
    cluster: bytes | None
    human_eval: bool


def inputs(rng: random.Random) -> Inputs:
    """One run's inputs."""
    return Inputs(
        text=_text(rng, rng.choice(FILES)),
        kind=rng.choice((None, "compose", "values")),
        isolation=_text(rng, CORPUS["isolation.yaml"]) if rng.randrange(4) == 0 else None,
        cluster=_text(rng, CORPUS["cluster.yaml"]) if rng.randrange(4) == 0 else None,
        human_eval=rng.randrange(4) == 0,
    )


def _text(rng: random.Random, real: bytes) -> bytes:
    kind = rng.randrange(10)
    if kind == 0:
        return _random_yaml(rng, 0).encode("utf-8", "surrogatepass")
    text = real if kind < 5 or real not in TREES else _dumped(rng, _restructured(rng, TREES[real]))
    if kind in (3, 4, 7, 8):
        text = _decorated(rng, text)
    return (_damaged(rng, text) if kind in (1, 2, 3, 9) else text)[:MAX_BYTES]


def _damaged(rng: random.Random, text: bytes) -> bytes:
    """Pieces inserted, removed, repeated, swapped or blown up."""
    data = bytearray(text)
    for _ in range(rng.randint(1, rng.choice((1, 2, 12)))):
        at = rng.randint(0, len(data))
        action = rng.randrange(60)
        if action < 20:
            data[at:at] = rng.choice(TOKENS)
        elif action < 30:
            del data[at : at + rng.randint(1, 40)]
        elif action < 40:
            data[at:at] = data[at : at + rng.randint(1, 60)] * rng.choice((1, 2, 50))
        elif action < 50 and data:
            data[at % len(data)] = rng.randrange(256)
        elif action < 59:
            data[at:at] = rng.choice(list(CORPUS.values()))
        else:  # past the limits of size, depth and number of values
            data[at:at] = (data[at : at + rng.randint(1, 30)] or b"- ") * rng.choice((5_000, 60_000))
            del data[MAX_BYTES:]
    return bytes(data)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a tree."""
    for key, child in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(child, dict | list):
            yield from _places(child)


def _restructured(rng: random.Random, tree: Any) -> Any:
    """The tree with parts deleted, replaced, copied elsewhere, nested, repeated, renamed or shared."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, rng.choice((1, 2, 8)))):
        places = list(_places(tree))
        if not 0 < len(places) < MAX_PLACES:
            return tree
        (parent, key), (other, name) = rng.choice(places), rng.choice(places)
        action = rng.randrange(8)
        if action == 0:
            del parent[key]
        elif action in (1, 2):
            parent[key] = copy.deepcopy(rng.choice(JUNK))
        elif action == 3:
            parent[key] = copy.deepcopy(other[name])
        elif action == 4:
            parent[key] = rng.choice(([parent[key]], {"a": parent[key]}, {str(key): parent[key]}))
        elif action == 5 and isinstance(parent, dict):
            parent[rng.choice((str(name), "none", "", "default", "Default", "x" * 70, 7, None))] = parent[key]
        elif action == 6 and isinstance(parent, list):
            parent.extend(parent[:] * rng.choice((1, 3, 200 if len(places) < 200 else 2)))
        elif action == 7 and not isinstance(parent[key], dict | list):
            parent[key] = rng.choice(
                (str(parent[key]).upper(), f"${{A:-{parent[key]}}}", f" {parent[key]} ", [parent[key]])
            )
    return tree


def _dumped(rng: random.Random, tree: Any) -> bytes:
    """The tree as some YAML writer would write it; shared parts become anchors."""
    dumped = yaml.safe_dump(
        tree,
        default_flow_style=rng.choice((True, False, None)),
        default_style=rng.choice((None, None, None, "'", '"')),
        canonical=rng.randrange(12) == 0,
        indent=rng.choice((1, 2, 4, 9)),
        width=rng.choice((20, 80, 10_000)),
        allow_unicode=rng.choice((True, False)),
        explicit_start=rng.choice((True, False)),
        sort_keys=False,
    )
    return str(dumped).encode("utf-8", "surrogatepass")


def _decorated(rng: random.Random, text: bytes) -> bytes:
    """The text with YAML's features put around and into its lines."""
    lines = text.split(b"\n")
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(lines))
        line, indent = lines[at], len(lines[at]) - len(lines[at].lstrip())
        key, colon, value = line.partition(b":")
        action = rng.randrange(10)
        if action == 0 and colon:
            lines[at] = key + b": " + rng.choice((b"&n", b"*n", b"!!str", b"!!map", b"!!int", b"!", b"!n")) + value
        elif action == 1 and colon:
            lines[at] = key + b": &m" + value
            lines.insert(rng.randint(at, len(lines)), b" " * indent + b"again" + str(at).encode() + b": *m")
        elif action == 2:
            lines.insert(at, b" " * indent + rng.choice((b"<<: *m", b"<<: [*m, *n]", b"<<: {a: b}", b"<<: 1")))
        elif action == 3 and colon:
            lines[at] = key + b": |" + rng.choice((b"", b"+", b"-", b"9")) + b"\n" + b" " * (indent + 2) + value.strip()
        elif action == 4:
            lines.insert(at, line)  # a duplicate key
        elif action == 5:
            lines.insert(at, rng.choice((b"---", b"...", b"%YAML 1.1\n---", b"# \xe2\x80\xae comment")))
        elif action == 6 and colon:
            lines[at] = b" " * indent + b"? " + key.strip() + b"\n" + b" " * indent + b":" + value
        elif action == 7 and colon:
            lines[at] = b" " * indent + b'"' + key.strip() + b'":' + value
        elif action == 8:
            lines[at] = line.replace(b"  ", b"\t", 1)
        else:
            return rng.choice((b"\n".join(lines).replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + text, _sixteen(text)))
    return b"\n".join(lines)


def _sixteen(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode("utf-16")


def _random_yaml(rng: random.Random, depth: int) -> str:
    """A random flow or block document, with anchors, tags and scalars of every style."""
    mark = rng.choice(("", "", "", "", "&a ", "!!str ", "! ", "&b "))
    kind = rng.randrange(9 if depth < 5 else 4)
    if kind == 0:
        return rng.choice(("*a", "*b"))
    if kind < 4:
        scalar = rng.choice(JUNK)
        style = rng.randrange(4)
        return mark + (str(scalar) if style < 2 else f"'{scalar}'" if style == 2 else f'"{scalar}"')
    inner = [_random_yaml(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    if kind < 6:
        return f"{mark}[{', '.join(inner)}]"
    keys = (
        "services",
        "networks",
        "default",
        "a",
        "image",
        "network_mode",
        "allowDomains",
        "isolation",
        "<<",
        "1",
        "? x",
        "",
    )
    pairs = [f"{rng.choice(keys)}: {value}" for value in inner]
    if kind < 8 or depth:
        return f"{mark}{{{', '.join(pairs)}}}"
    return "\n".join(pairs)
