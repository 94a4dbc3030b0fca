"""Generates the Python beside each `.proto` under `proto/`: messages, their type stubs, and gRPC classes.

`python tools/gen_proto.py` writes; `--check` generates elsewhere and compares, exit code 1 on drift (make lint). The
versions of the generators are those of the locked environment, so the output depends on the sources alone.
"""

import argparse
import filecmp
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PROTO = REPOSITORY / "proto"
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def sources() -> list[str]:
    """Return every `.proto`, relative to `proto/`, sorted."""
    return sorted(path.relative_to(PROTO).as_posix() for path in PROTO.glob("gauntlet/**/*.proto"))


def generate(target: Path) -> None:
    """Generate all Python below `target`, at the path of its source.

    Raises:
        SystemExit: protoc refused a file; it has printed why.
    """
    googleapis = Path(sys.prefix) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={PROTO}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        f"--proto_path={googleapis}",  # google/rpc/*.proto, from googleapis-common-protos
        f"--python_out={target}",
        f"--mypy_out={target}",
        f"--grpc_python_out={target}",
        *sources(),
    ]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"}
    done = subprocess.run(command, cwd=PROTO, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"gen_proto: protoc failed:\n{done.stderr}")


def drift(fresh: Path, committed: Path) -> list[str]:
    """Return a line for each generated file that is missing, left over or different."""
    made = {path.relative_to(fresh) for pattern in PATTERNS for path in fresh.rglob(pattern)}
    kept = {path.relative_to(committed) for pattern in PATTERNS for path in committed.rglob(pattern)}
    lines = [f"{path}: not generated yet" for path in made - kept]
    lines += [f"{path}: left over from a removed .proto" for path in kept - made]
    lines += [
        f"{path}: differs from its source"
        for path in made & kept
        if not filecmp.cmp(fresh / path, committed / path, shallow=False)
    ]
    return sorted(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the generated files, or with `--check` compare them."""
    parser = argparse.ArgumentParser(prog="tools/gen_proto.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 on drift")
    if not parser.parse_args(arguments).check:
        generate(PROTO)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        lines = drift(Path(scratch), PROTO)
    for line in lines:
        print(f"proto/{line}; run make gen", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
