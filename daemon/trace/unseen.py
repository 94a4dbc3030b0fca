"""Programs that ran without being told, found by looking.

gVisor sends nothing of an execve whose arguments, environment or path are no UTF-8, or are larger than a socket's
buffer, and counts no loss. `starting` finds those that set up thread storage. For the others: when two looks in a row
find another executable in a process than the trace explains, that is told as a spawn of its own, marked `inferred`.
What lives shorter than two looks stays hidden behind its process's earlier command. A look also tells what a program
that was found without a name is called. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daemon.trace.facts import Fact
from daemon.trace.runsc import Seen
from daemon.trace.tree import Tree

# An interpreter's line may hold one argument before the script.
SCRIPT_PLACES = 3


@dataclass(slots=True)
class _Known:
    """What looks have found since the last program that was told."""

    programs: int
    executable: str = ""
    suspect: str = ""


class Unseen:
    """Compares looks at one sandbox with its tree."""

    def __init__(self, tree: Tree) -> None:
        """Nothing is known yet."""
        self._tree = tree
        self._known: dict[int, _Known] = {}

    def before(self) -> dict[int, int]:
        """Take this before a look, and give it to `compare`: what changes meanwhile is not judged."""
        return self._tree.programs()

    def compare(self, before: dict[int, int], seen: Iterable[Seen]) -> list[Fact]:
        """What a look says that the trace did not."""
        looks = {one.pid: one for one in seen}
        now = self._tree.programs()
        self._known = {pid: known for pid, known in self._known.items() if pid in now}
        facts: list[Fact] = []
        for pid, one in looks.items():
            if pid in now and before.get(pid) == now[pid] and one.executable:
                self._tree.named(pid, one.argv)
                facts += self._judge(one, now[pid], looks)
        return facts

    def _judge(self, one: Seen, programs: int, looks: dict[int, Seen]) -> list[Fact]:
        known = self._known.get(one.pid)
        if known is None or known.programs != programs:
            known = self._known[one.pid] = _Known(programs)
            known.executable = self._expected(one, programs, looks)
        if one.executable == known.executable:
            known.suspect = ""
            return []
        if one.executable != known.suspect:
            known.suspect = one.executable
            return []
        self._known[one.pid] = _Known(programs + 1, one.executable)
        return self._tree.found(one.pid, one.argv)

    def _expected(self, one: Seen, programs: int, looks: dict[int, Seen]) -> str:
        """What the trace lets a process run: without a program of its own its maker's, else what was told."""
        if not programs:
            maker = looks.get(self._tree.maker(one.pid))
            return one.executable if maker is None else maker.executable
        told = self._tree.path(one.pid)
        # A script runs in its interpreter, which gets the script's path as an early argument.
        script = any(_name(word) == _name(told) for word in one.argv[1:SCRIPT_PLACES])
        return one.executable if not told or script else told


def _name(path: str) -> str:
    return path.rpartition("/")[2]
