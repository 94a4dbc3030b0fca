"""Sixty seconds of mutated files: no crash, no hang, bounded memory.

The seconds and the seed can be set by GAUNTLET_FUZZ_SECONDS and GAUNTLET_FUZZ_SEED; a failure prints
the seed and the input.
"""

from __future__ import annotations

import os
import random
import resource
import time

import pytest

from network.check import Source, check

SECONDS = float(os.environ.get("GAUNTLET_FUZZ_SECONDS", "60"))
SEED = int(os.environ.get("GAUNTLET_FUZZ_SEED", "20261129"))
HANG_SECONDS = 10.0
MEMORY_MIB = 512
CORPUS = (
    b"services:\n  default: {image: a, network_mode: bridge}\n  db: &x\n"
    b"    networks: {n: {aliases: [q]}}\nnetworks: {n: }\n",
    b"allowDomains: ['*.a.b', c.d]\nallowCIDR: [10.0.0.0/8]\n"
    b"services: {default: {ports: [{port: 80, protocol: TCP}]}}\n",
    b"x-k8s: {allow_entities: [world]}\nservices:\n  a: {<<: *b, environment: ['A=${B:-c}']}\n",
    b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
    b"isolation: {level: strict, allow_domains: [a.b], runtime_class: gvisor}\nsandbox: {type: k8s}\n",
)
TOKENS = (
    b"{", b"}", b"[", b"]", b": ", b"- ", b"&x ", b"*x", b"<<: ", b"!!str ", b"!x ", b"|\n", b">\n", b"'", b'"',
    b"\n", b"\n  ",
    b"\t", b"#", b"---\n", b"...\n", b"%YAML 9\n", b"? ", b"~", b"\xff", b"\x00", b"\xef\xbb\xbf", b"\xc2\x85",
    b"${", b"}", b"none", b"bridge", b"networks", b"services", b"allowDomains", b"*", b"0" * 30, b"1e999", b"9" * 400,
    b"\\u0000", b"a" * 3000,
)  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """A corpus file with pieces inserted, removed, repeated or swapped."""
    data = bytearray(rng.choice(CORPUS))
    for _ in range(rng.randint(1, 12)):
        at = rng.randint(0, len(data))
        action = rng.randint(0, 4)
        if action == 0:
            data[at:at] = rng.choice(TOKENS)
        elif action == 1:
            del data[at : at + rng.randint(1, 20)]
        elif action == 2:
            data[at:at] = data[at : at + rng.randint(1, 60)] * rng.choice((1, 2, 50))
        elif action == 3 and data:
            data[at % len(data)] = rng.randint(0, 255)
        else:
            data[at:at] = rng.choice(CORPUS)
    return bytes(data)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
def test_mutated_files_never_crash_hang_or_grow() -> None:
    rng = random.Random(SEED)
    started = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs = 0
    kinds = (None, "compose", "values")
    while time.monotonic() - started < SECONDS:
        data = mutated(rng)
        begun = time.monotonic()
        try:
            outcome = check(
                Source(data, "f.yaml"),
                kind=kinds[runs % 3],  # type: ignore[arg-type]
                isolation=Source(mutated(rng), "i.yaml") if runs % 4 == 0 else None,
            )
            outcome.to_json()
        except BaseException:
            print(f"seed {SEED}, run {runs}: {data!r}")
            raise
        assert time.monotonic() - begun < HANG_SECONDS, data
        runs += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MEMORY_MIB, f"{grown:.0f} MiB more after {runs} runs"
    assert runs > 100
