"""Reader of the isolation settings: level, the eval set's own egress, runtime class, human eval.

The file's keys are `isolation` (a level, or a mapping in the spec's spelling), `sandbox: {type,
default_user}`, `human_eval`, and `tasks: {NAME: {isolation, human_eval}}` for an eval set that says
more about single tasks. Owns R43; what the strict level refuses is in `strict`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from network.cidrs import Protected
from network.credentials import is_credential_name, reject_credentials
from network.grantread import read_cidrs, read_domains, unknown_keys
from network.nodes import Walker, is_null, join_path, kind_of, nearest
from network.problems import Place, Report, shown
from network.spec import Cidr, Domain
from network.yamlread import Map, Node, Scalar, Seq, read_yaml

Level = Literal["standard", "strict"]
LEVELS: tuple[Level, ...] = ("standard", "strict")
UNSET_RUNTIME = "CLUSTER_DEFAULT"
_KEYS = ("level", "allow_domains", "allow_cidr", "runtime_class", "allow_gpu", "non_root", "read_only_root")
_STRICT_ONLY = ("allow_domains", "allow_cidr", "non_root", "read_only_root")
_FILE_KEYS = ("isolation", "sandbox", "human_eval", "tasks")


@dataclass(slots=True)
class Isolation:
    """The settings of one eval set. `no_sandbox` and `default_user` say where the file asks for those."""

    level: Level = "standard"
    place: Place = field(default_factory=lambda: Place(""))
    domains: list[Domain] = field(default_factory=list)
    cidrs: list[Cidr] = field(default_factory=list)
    runtime_class: str | None = None
    runtime_place: Place | None = None
    allow_gpu: bool = False
    non_root: bool = False
    read_only_root: bool = False
    human_evals: list[Place] = field(default_factory=list)
    no_sandbox: Place | None = None
    default_user: Place | None = None

    @property
    def strict(self) -> bool:
        """Whether the level is strict."""
        return self.level == "strict"

    @property
    def human_eval(self) -> bool:
        """Whether anything in the eval set is a human eval."""
        return bool(self.human_evals)

    @property
    def grants(self) -> bool:
        """Whether the eval set opens anything itself."""
        return bool(self.domains or self.cidrs)


def read_isolation(
    text: bytes | str, file: str, report: Report, protected: Iterable[Protected], *, only: str | None = None
) -> Isolation:
    """The settings of a file; problems are R43 (R14-R17 for its lists, R40 for YAML, R44 for keys).

    `only` names the one top-level key that is read, in a file whose other keys are somebody else's.
    """
    root = read_yaml(text, file, report)
    walker = Walker(file, report)
    if only is not None and isinstance(root, Map):
        root = Map(root.line, {only: root.items[only]}, {only: root.lines[only]}) if only in root.items else None
    if root is None or is_null(root):
        if only is None and report.ok:
            message = "the isolation settings are empty: the standard level holds"
            report.warn("W21", Place(file), message, "write `isolation: standard`, or leave the file out")
        return Isolation(place=Place(file))
    reject_credentials(walker, root)
    return _File(walker, tuple(protected)).read(root)


class _File:
    def __init__(self, walker: Walker, protected: tuple[Protected, ...]) -> None:
        self.walker = walker
        self.protected = protected
        self.isolation = Isolation(place=Place(walker.file))
        self.raised: tuple[Level, Place] | None = None

    def read(self, root: Node) -> Isolation:
        """The whole file."""
        entry = self.walker.mapping(root, "", "R43")
        if entry is None:
            return self.isolation
        self._unknown(entry, "", _FILE_KEYS)
        if (node := entry.items.get("isolation")) is not None:
            self._isolation(node, "isolation", entry.lines["isolation"])
        if "sandbox" in entry.items:
            self._sandbox(entry.items["sandbox"], "sandbox", entry.lines["sandbox"])
        if (node := entry.items.get("human_eval")) is not None:
            self._human_eval(node, "human_eval")
        if (node := entry.items.get("tasks")) is not None:
            self._tasks(node)
        if self.raised is not None:
            self.isolation.level, self.isolation.place = self.raised
        return self.isolation

    def _unknown(self, entry: Map, path: str, known: tuple[str, ...]) -> None:
        credentials = tuple(key for key in entry.items if is_credential_name(key))
        unknown_keys(self.walker, entry, path, known + credentials, "R43")

    def _isolation(self, node: Node, path: str, line: int) -> None:
        self.isolation.place = self.walker.place(path, line)
        if not isinstance(node, Map):
            self.isolation.level = self._level(node, path) or "standard"
            return
        self._unknown(node, path, _KEYS)
        level = node.items.get("level")
        if level is not None and not is_null(level):
            self.isolation.level = self._level(level, join_path(path, "level")) or "standard"
        for key in _KEYS[1:]:
            child = node.items.get(key)
            if child is not None and not is_null(child):
                self._setting(key, child, join_path(path, key))

    def _level(self, node: Node, path: str) -> Level | None:
        text = node.text if isinstance(node, Scalar) else None
        for level in LEVELS:
            if text == level:
                return level
        hint = nearest(text, LEVELS) if text else ""
        self.walker.report.reject(
            "R43",
            self.walker.place(path, node.line),
            f"isolation level is {kind_of(node)}{hint}",
            "write `standard` or `strict`",
        )
        return None

    def _setting(self, key: str, node: Node, path: str) -> None:
        isolation, walker = self.isolation, self.walker
        truthy = bool(node.items) if isinstance(node, Map | Seq) else bool(node.value)
        if truthy and key in _STRICT_ONLY and not isolation.strict:
            walker.report.reject(
                "R43",
                walker.place(path, node.line),
                f"`{key}` has an effect at the strict level only",
                "set `level: strict`, or remove it",
            )
        if key == "allow_domains":
            isolation.domains = read_domains(walker, node, path, "R43")
        elif key == "allow_cidr":
            isolation.cidrs = read_cidrs(walker, node, path, "R43", self.protected)
        elif key == "runtime_class":
            name = walker.text(node, path, "R43", "name a runtime class, such as gvisor")
            if name and name != UNSET_RUNTIME:
                isolation.runtime_class = name
                isolation.runtime_place = walker.place(path, node.line)
        else:
            setattr(isolation, key, bool(walker.boolean(node, path, "R43")))

    def _sandbox(self, node: Node, path: str, line: int) -> None:
        place = self.walker.place(path, line)
        if isinstance(node, Scalar) and (node.value in (None, False) or node.text in ("local", "none", "")):
            self.isolation.no_sandbox = place
            return
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return  # the short form: a provider's name
        entry = self.walker.mapping(node, path, "R43")
        if entry is None:
            return
        self._unknown(entry, path, ("type", "default_user"))
        kind = entry.items.get("type")
        if isinstance(kind, Scalar) and (kind.value is None or kind.text in ("local", "none", "")):
            self.isolation.no_sandbox = self.walker.place(join_path(path, "type"), kind.line)
        elif kind is not None:
            self.walker.text(kind, join_path(path, "type"), "R43", "name a sandbox provider, such as k8s")
        user = entry.items.get("default_user")
        if user is not None and not (isinstance(user, Scalar) and user.value in (None, "")):
            self.isolation.default_user = self.walker.place(join_path(path, "default_user"), user.line)

    def _human_eval(self, node: Node, path: str) -> None:
        if not is_null(node) and self.walker.boolean(node, path, "R43"):
            self.isolation.human_evals.append(self.walker.place(path, node.line))

    def _tasks(self, node: Node) -> None:
        entry = self.walker.mapping(node, "tasks", "R43", null=True)
        for name, child in (entry.items if entry else {}).items():
            path = join_path("tasks", name)
            task = self.walker.mapping(child, path, "R43", null=True)
            if task is None:
                continue
            self._unknown(task, path, ("isolation", "human_eval"))
            if (flag := task.items.get("human_eval")) is not None:
                self._human_eval(flag, join_path(path, "human_eval"))
            if "isolation" in task.items:
                self._task_level(name, task.items["isolation"], join_path(path, "isolation"))

    def _task_level(self, name: str, node: Node, path: str) -> None:
        """A task's own level, which may be higher: the strictest one holds, since no file says whose it is."""
        if isinstance(node, Map):
            unknown_keys(self.walker, node, path, ("level",), "R43")
            node, path = node.items.get("level", node), join_path(path, "level")
        if is_null(node) or isinstance(node, Map):
            return
        level = self._level(node, path)
        place = self.walker.place(path, node.line)
        if level is not None and LEVELS.index(level) < LEVELS.index(self.isolation.level):
            self.walker.report.reject(
                "R43",
                place,
                f"task {shown(name)} lowers the level from {self.isolation.level} to {level}",
                f"a task may raise the level only: write {self.isolation.level}, or remove it",
            )
        elif level is not None and level != self.isolation.level and self.raised is None:
            self.raised = (level, place)


def raise_to(base: Isolation, own: Isolation, report: Report) -> Isolation:
    """The settings of one task under its eval set: `own` may raise the level of `base`, never lower it.

    The eval set's runtime class, egress and user settings win; R43 when `own` asks for a lower level
    in so many words.
    """
    if LEVELS.index(own.level) < LEVELS.index(base.level) and own.place.path:
        report.reject(
            "R43",
            own.place,
            f"the task lowers the isolation level from {base.level} to {own.level}",
            f"write `{base.level}`, or remove the setting",
        )
    return Isolation(
        level=max(base.level, own.level, key=LEVELS.index),
        place=base.place if base.strict else own.place,
        domains=base.domains if base.strict else own.domains,
        cidrs=base.cidrs if base.strict else own.cidrs,
        runtime_class=base.runtime_class or own.runtime_class,
        runtime_place=base.runtime_place or own.runtime_place,
        allow_gpu=base.allow_gpu or own.allow_gpu,
        non_root=base.non_root or own.non_root,
        read_only_root=base.read_only_root or own.read_only_root,
        human_evals=[*base.human_evals, *own.human_evals],
        no_sandbox=base.no_sandbox or own.no_sandbox,
        default_user=base.default_user or own.default_user,
    )
