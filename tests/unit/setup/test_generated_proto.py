"""The generated protocol code is what its sources give, and drift is told file by file."""

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
spec = importlib.util.spec_from_file_location("gen_proto", REPOSITORY / "tools" / "gen_proto.py")
assert spec is not None and spec.loader is not None
gen_proto = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gen_proto)


def test_committed_code_is_up_to_date() -> None:
    assert gen_proto.sources()
    assert gen_proto.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("a_pb2.py", "gauntlet/a_pb2.py: differs from its source"),
        ("new_pb2.pyi", "gauntlet/new_pb2.pyi: left over from a removed .proto"),
    ],
)
def test_drift_names_the_file(tmp_path: Path, name: str, complaint: str) -> None:
    for tree in ("fresh", "kept"):
        (tmp_path / tree / "gauntlet").mkdir(parents=True)
        (tmp_path / tree / "gauntlet" / "a_pb2.py").write_text("same")
    assert gen_proto.drift(tmp_path / "fresh", tmp_path / "kept") == []
    (tmp_path / "kept" / "gauntlet" / name).write_text("edited")
    assert gen_proto.drift(tmp_path / "fresh", tmp_path / "kept") == [complaint]
