"""What an attempt changed, as the diff tells it, through the whole path."""

from __future__ import annotations

import json

import pytest

from tests.support.attempts import run_script
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import gauntlet

pytestmark = pytest.mark.docker
CHANGES = r"""
import os
os.chdir('/workspace')
open('submissions/new', 'w').write('n')
open('challenge/src/answer.py', 'a').write('# more\n')
os.unlink('challenge/briefing.md')
os.rename('challenge/tests/test_answer.py', 'challenge/tests/test_renamed.py')
os.unlink('challenge/docs/keep'); os.rmdir('challenge/docs'); os.mkdir('challenge/docs')
open('challenge/docs/other', 'w')
os.symlink('/etc/shadow', 'submissions/shadow')
os.link('submissions/new', 'submissions/hard')
open(b'submissions/line\nbreak', 'w'); open(b'submissions/bad\xff', 'w')
os.utime('challenge/src/untouched.py', (1, 1))
path = 'submissions/deep'
for n in range(200):
    os.mkdir(path); os.chdir(path); path = 'd'
open('leaf', 'w').write('leaf')
"""


def test_every_kind_of_change_is_listed_right(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    (challenge / "workspace/challenge/docs").mkdir()
    (challenge / "workspace/challenge/docs/keep").write_text("k")
    (challenge / "workspace/challenge/src/untouched.py").write_text("u")
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", CHANGES))
    record = run_script(environment, challenge, script)
    entries = json.loads(gauntlet(environment, "attempt", "diff", record["attempt_id"], "--json").stdout)
    by_path = {entry["path"]: entry for entry in entries}

    def change(path: str) -> tuple[str, str]:
        return by_path[path]["change"], by_path[path]["type"]

    assert change("submissions/new") == ("added", "file")
    assert change("challenge/src/answer.py") == ("modified", "file")
    assert change("challenge/briefing.md") == ("deleted", "file")
    assert change("challenge/tests/test_answer.py") == ("deleted", "file")
    assert change("challenge/tests/test_renamed.py") == ("added", "file")
    assert change("challenge/docs/keep") == ("deleted", "file")
    assert change("challenge/docs/other") == ("added", "file")
    assert change("submissions/shadow") == ("added", "symlink")
    assert by_path["submissions/shadow"]["sha256"] is None
    assert by_path["submissions/hard"]["sha256"] == by_path["submissions/new"]["sha256"]
    assert "submissions/line\nbreak" in by_path
    assert "path_bytes" in by_path["submissions/bad\ufffd"]
    assert "challenge/src/untouched.py" not in by_path
    assert "submissions/deep" + "/d" * 199 + "/leaf" in by_path
    counts = {kind: sum(e["change"] == kind for e in entries) for kind in ("added", "modified", "deleted")}
    assert counts == {kind: record["workspace"][kind] for kind in counts}
