"""The content key: moves with everything the bits depend on, and with nothing else."""

import shutil
from pathlib import Path

import pytest

from images import build, supervisor
from images.stacks import ImageError, find_stack

STACK = find_stack("python311")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copied = tmp_path / "supervisor"
    shutil.copytree(supervisor.SOURCE, copied)
    monkeypatch.setattr(supervisor, "SOURCE", copied)
    return copied


def test_the_key_is_stable() -> None:
    assert build.content_key(STACK) == build.content_key(STACK)


def test_the_supervisors_source_is_in_the_key_but_not_in_the_base(sources: Path) -> None:
    whole, base = build.content_key(STACK), build.base_key(STACK)
    with (sources / "main.go").open("a") as file:
        file.write("\n// changed\n")
    assert build.content_key(STACK) != whole
    assert build.base_key(STACK) == base


def test_the_supervisors_tests_are_not_in_the_key(sources: Path) -> None:
    before = build.content_key(STACK)
    (sources / "more_test.go").write_text("package main\n")
    assert build.content_key(STACK) == before


def test_the_way_the_image_runs_is_in_the_base_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = build.base_key(STACK)
    monkeypatch.setitem(build.RUN_CONFIGURATION, "WorkingDir", "/elsewhere")
    assert build.base_key(STACK) != before


def test_a_layer_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(ImageError, match="mode 0700"):
        build.private(tmp_path)
    link = tmp_path / "link"
    (tmp_path / "real").mkdir(mode=0o700)
    link.symlink_to(tmp_path / "real")
    with pytest.raises(ImageError, match="mode 0700"):
        build.private(link)


def test_the_dockerfile_is_in_step_with_the_builder() -> None:
    text = (STACK.directory / "Dockerfile").read_text(encoding="utf-8")
    assert f'CMD ["{build.RUN_CONFIGURATION["Cmd"][0]}"]' in text
    assert f"WORKDIR {build.RUN_CONFIGURATION['WorkingDir']}" in text
    assert "useradd -l -m -s /bin/bash -u 1000 agent" in text
    assert "packages.lock" in text
