"""The spool file after kills, torn writes and full disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from daemon.telemetry.spool import Place, SpoolFile, read_lines, seek
from formats import event
from tests.support.events import gap_line, line


def spooled(directory: Path, *lines: bytes) -> SpoolFile:
    directory.mkdir(exist_ok=True)
    file = SpoolFile(directory, "resource")
    file.append([text + b"\n" for text in lines])
    return file


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "att_1"


def test_a_reopened_file_counts_what_it_holds(directory: Path) -> None:
    spooled(directory, line(1), line(2), gap_line(3, 9), line(10)).close()
    tally = SpoolFile(directory, "resource").tally
    assert (tally.lines, tally.events, tally.gaps, tally.next_sequence) == (4, 3, 1, 11)
    assert tally.size == (directory / "resource.jsonl").stat().st_size


def test_a_gap_of_unknown_length_takes_no_number(directory: Path) -> None:
    spooled(directory, line(1), gap_line(2, None)).close()
    assert SpoolFile(directory, "resource").tally.next_sequence == 2


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_is_cut_off_and_the_numbers_go_on(directory: Path, cut: int) -> None:
    spooled(directory, line(1), line(2)).close()
    path = directory / "resource.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + (line(3) + b"\n")[:cut])
    file = SpoolFile(directory, "resource")
    assert path.read_bytes() == whole
    assert file.tally.next_sequence == 3
    file.append([line(3) + b"\n"])
    file.close()
    assert path.read_bytes() == whole + line(3) + b"\n"


def test_a_line_torn_inside_a_character_or_with_no_line_before_it(directory: Path) -> None:
    directory.mkdir()
    (directory / "resource.jsonl").write_bytes(b'{"kind":"resource\xc3')
    file = SpoolFile(directory, "resource")
    assert (directory / "resource.jsonl").read_bytes() == b""
    assert file.tally.next_sequence == event.FIRST_SEQUENCE


def test_a_malformed_line_in_the_middle_keeps_its_place(directory: Path) -> None:
    directory.mkdir()
    (directory / "resource.jsonl").write_bytes(line(1) + b"\n" + b"\0\0\0\n" + line(3) + b"\n")
    tally = SpoolFile(directory, "resource").tally
    assert (tally.lines, tally.events, tally.next_sequence) == (3, 2, 4)


def test_a_failed_write_leaves_the_file_as_it_was(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = spooled(directory, line(1))
    before = file.path.read_bytes()
    write = os.write
    calls = 0

    def filling_up(handle: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, data[:20])

    monkeypatch.setattr(os, "write", filling_up)
    with pytest.raises(OSError, match="No space"):
        file.append([line(2) + b"\n"])
    monkeypatch.undo()
    assert file.path.read_bytes() == before
    file.append([line(2) + b"\n"])
    assert file.path.read_bytes() == before + line(2) + b"\n"


def test_the_mark_outlives_its_process(directory: Path) -> None:
    directory.mkdir()
    pid = os.fork()
    if pid == 0:
        SpoolFile(directory, "resource").mark.set(12_345)
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert SpoolFile(directory, "resource").mark.get() == 12_345


def test_the_synced_size_never_runs_ahead_of_what_is_written(directory: Path) -> None:
    file = spooled(directory, line(1))
    assert file.synced_size == 0
    assert file.sync() == file.synced_size == file.path.stat().st_size
    file.append([line(2) + b"\n"])
    assert file.synced_size < file.path.stat().st_size
    file.close()
    assert file.synced_size == file.path.stat().st_size
    assert file.sync() == file.synced_size


def test_a_reader_takes_whole_lines_up_to_its_bounds(directory: Path) -> None:
    lines = [line(number) for number in range(1, 101)]
    file = spooled(directory, *lines)
    end = file.tally.size
    assert read_lines(file.path, Place(), end, 1_000, 1 << 20) == lines
    assert read_lines(file.path, Place(), end, 7, 1 << 20) == lines[:7]
    width = len(lines[0]) + 1
    assert read_lines(file.path, Place(), end, 1_000, 3 * width + 5) == lines[:3]
    assert read_lines(file.path, Place(), 2 * width + 3, 1_000, 1 << 20) == lines[:2]
    assert read_lines(file.path, Place(100, end), end, 1_000, 1 << 20) == []


@pytest.mark.parametrize("number", [0, 1, 50, 100])
def test_seek_finds_a_line(directory: Path, number: int) -> None:
    lines = [line(n) for n in range(1, 101)]
    file = spooled(directory, *lines)
    place = seek(file.path, number, file.tally.size)
    assert place.line == number
    assert read_lines(file.path, place, file.tally.size, 1_000, 1 << 20) == lines[number:]
    assert seek(file.path, 500, file.tally.size).line == 100
