"""What a merging kernel leaves of a history, told in an order that can have been. The kernel here is a model of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.fswatch.changes import CREATE, DELETE, IS_DIRECTORY, MODIFY, NAMES, Batch, Change
from daemon.fswatch.directories import Directories
from daemon.fswatch.records import RENAME, Place, Record
from daemon.fswatch.story import Story
from tests.support.possible_story import impossible

ROOT = b"root"


class Kernel:
    """A tree, and a queue that merges equal reports as fanotify does."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, Place] = {}
        self.directories = {ROOT}
        self.queue: dict[object, Record] = {}
        self.happened = self.made = 0
        self.tree = Directories(lambda handle: self.path(handle) if handle in {ROOT, *self.nodes} else None)
        self.story = Story(self.tree, self.is_at, lambda handle: self.path(handle) if handle in self.nodes else None)
        self.told: list[Change] = []
        self.lost = 0

    def path(self, handle: bytes) -> bytes:
        names = []
        while handle != ROOT:
            handle, name = self.nodes[handle]
            names.append(name)
        return b"/".join(reversed(names))

    def is_at(self, path: bytes, child: bytes | None) -> bool:
        return child in self.nodes and self.path(child) == path

    def at(self, place: Place) -> bytes | None:
        return next((node for node, there in self.nodes.items() if there == place), None)

    def report(self, mask: int, place: Place, child: bytes, target: Place = (b"", b"")) -> None:
        mask |= IS_DIRECTORY if child in self.directories else 0
        key = (place, child, target, mask & (IS_DIRECTORY | RENAME))
        old = self.queue.get(key)
        self.queue[key] = Record(mask | (old.mask if old is not None else 0), place, child, target)
        self.happened += mask & MODIFY == 0

    def create(self, place: Place, directory: bool) -> None:
        if self.at(place) is None and place[0] in {ROOT, *self.nodes} & self.directories:
            self.made += 1
            child = b"n%d" % self.made
            self.nodes[child] = place
            self.directories |= {child} if directory else set()
            self.report(CREATE, place, child)

    def act(self, kind: str, place: Place, target: Place) -> None:
        child = self.at(place)
        if kind in ("mkdir", "creat"):
            self.create(place, kind == "mkdir")
        elif child is None:
            return
        elif kind == "write" and child not in self.directories:
            self.report(MODIFY, place, child)
        elif kind == "remove" and not any(parent == child for parent, _ in self.nodes.values()):
            del self.nodes[child]
            self.report(DELETE, place, child)
        elif kind == "rename" and self.at(target) is None and target[0] in {ROOT, *self.nodes} & self.directories:
            above = target[0]
            while above != ROOT and above != child:
                above = self.nodes[above][0]
            if above != child:
                self.nodes[child] = target
                self.report(RENAME, place, child, target)

    def read(self) -> None:
        records, self.queue = list(self.queue.values()), {}
        batch = Batch()
        for record in records:
            self.story.tell(record, 1, batch)
        self.story.settle(1, batch)
        self.told += batch.changes
        self.lost += batch.lost

    def problems(self) -> list[str]:
        return impossible(((NAMES[one.operation], one.path, one.is_directory) for one in self.told), {})


def brief(kernel: Kernel) -> list[tuple[str, bytes, bool]]:
    return [(NAMES[change.operation], change.path, change.merged) for change in kernel.told]


def test_a_directory_goes_after_what_was_in_it():
    kernel = Kernel()
    d: Place = (ROOT, b"d")
    kernel.act("mkdir", d, d)
    kernel.act("creat", (b"n1", b"f"), d)
    kernel.act("remove", (b"n1", b"f"), d)
    kernel.act("remove", d, d)
    kernel.read()
    assert brief(kernel) == [
        ("CREATE", b"d", False),
        ("CREATE", b"d/f", False),
        ("DELETE", b"d/f", True),
        ("DELETE", b"d", False),
    ]


def test_a_name_is_left_before_another_takes_it():
    kernel = Kernel()
    place: Place = (ROOT, b"x")
    for _ in range(2):
        kernel.act("creat", place, place)
        kernel.act("remove", place, place)
    kernel.act("creat", place, place)
    kernel.read()
    assert [kind for kind, _, _ in brief(kernel)] == ["CREATE", "DELETE", "CREATE", "DELETE", "CREATE"]


def test_a_storm_of_renames_is_one_round_and_says_so():
    kernel = Kernel()
    a, b = (ROOT, b"a"), (ROOT, b"b")
    f, g = (b"n1", b"f"), (b"n1", b"g")
    kernel.act("mkdir", a, a)
    kernel.act("creat", f, f)
    for _ in range(1000):
        for origin, target in ((a, b), (f, g), (b, a), (g, f)):
            kernel.act("rename", origin, target)
    kernel.read()
    assert kernel.happened == 4002
    assert brief(kernel) == [
        ("CREATE", b"a", False),
        ("CREATE", b"a/f", False),
        ("MOVED_FROM", b"a", False),
        ("MOVED_TO", b"b", False),
        ("MOVED_FROM", b"b/f", False),
        ("MOVED_TO", b"b/g", False),
        ("MOVED_FROM", b"b", True),
        ("MOVED_TO", b"a", True),
        ("MOVED_FROM", b"a/g", True),
        ("MOVED_TO", b"a/f", True),
    ]


def test_a_round_that_was_not_finished_is_finished_before_the_next_move():
    kernel = Kernel()
    a, b, c = (ROOT, b"a"), (ROOT, b"b"), (ROOT, b"c")
    kernel.act("creat", a, a)
    for origin, target in ((a, b), (b, a), (a, b), (b, c)):
        kernel.act("rename", origin, target)
    kernel.read()
    assert kernel.problems() == []
    assert brief(kernel)[-1] == ("MOVED_TO", b"c", False)
    assert ("MOVED_TO", b"b", True) in brief(kernel)


def test_a_storm_of_one_kind_is_not_marked():
    kernel = Kernel()
    for number in range(50):
        kernel.act("creat", (ROOT, b"%d" % number), (ROOT, b""))
        kernel.act("rename", (ROOT, b"%d" % number), (ROOT, b"to%d" % number))
    kernel.read()
    assert len(kernel.told) == 150
    assert not any(change.merged for change in kernel.told)


LETTERS = st.sampled_from([b"a", b"b", b"c"])
NUMBERS = st.integers(0, 5)


def played(acts: list[tuple[str, int, int, bytes]]) -> Kernel:
    """Acts on what is there: kind, which object, into which directory, and the name's last letter.

    Each object has names of its own: of objects that swap names within one queue nobody can say who was where when.
    """
    kernel = Kernel()
    for kind, which, into, letter in acts:
        parents = [ROOT, *(node for node in kernel.nodes if node in kernel.directories)]
        parent = parents[into % len(parents)]
        if kind == "read":
            kernel.read()
        elif kind in ("mkdir", "creat"):
            place = (parent, b"n%d%s" % (kernel.made + 1, letter))
            kernel.act(kind, place, place)
        elif kernel.nodes:
            child = list(kernel.nodes)[which % len(kernel.nodes)]
            kernel.act(kind, kernel.nodes[child], (parent, child + letter))
    kernel.read()
    return kernel


KINDS = st.sampled_from(["mkdir", "creat", "write", "remove", "rename", "rename", "rename", "read"])
ACTS = st.lists(st.tuples(KINDS, NUMBERS, NUMBERS, LETTERS), max_size=60)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(ACTS)
def test_the_story_is_possible_and_what_it_leaves_out_is_marked(acts: list[tuple[str, int, int, bytes]]):
    kernel = played(acts)
    assert kernel.problems() == []
    assert kernel.lost == 0
    told = [change for change in kernel.told if NAMES[change.operation] not in ("MODIFY", "MOVED_TO")]
    assert len(told) >= kernel.happened or any(change.merged for change in kernel.told)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["mkdir", "creat", "remove", "read"]), NUMBERS, LETTERS), max_size=60))
def test_names_that_many_take_in_turn(acts: list[tuple[str, int, bytes]]):
    """Without renames, a name may pass from one object to the next."""
    kernel = Kernel()
    for kind, into, letter in acts:
        parents = [ROOT, *(node for node in kernel.nodes if node in kernel.directories)]
        place = (parents[into % len(parents)], letter)
        if kind == "read":
            kernel.read()
        else:
            kernel.act(kind, place, place)
    kernel.read()
    assert kernel.problems() == []
    assert kernel.lost == 0
