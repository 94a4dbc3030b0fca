"""The forms that a Compose service's keys may have; everything else is R41, and unmapped keys are R11.

Owns the keys that do not touch the network verdict. They are checked all the same, because a file
that fails later, at start-up, has cost a run.
"""

from __future__ import annotations

import re

from network.grantread import unknown_keys
from network.hardening import MAX_ID
from network.nodes import Walker, is_null, join_path, kind_of
from network.problems import Place
from network.spec import ExtraUse, PodUser
from network.yamlread import Map, Node, Scalar, Seq

PLATFORMS = ("linux/amd64", "linux/arm64")
_DURATION = re.compile(r"(?=\d)(\d+h)?(\d+m)?(\d+s)?")
_BYTES = re.compile(r"\d+(\.\d+)?\s*([bkmg]b?)?", re.IGNORECASE)
_USER = re.compile(r"[0-9]{1,19}(:[0-9]{1,19})?")
_VOLUME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?:/[^:]*")
_SECURITY = re.compile(r"no-new-privileges([:=](true|false))?|seccomp[:=](?!/)[^\s].*")
_ENV = re.compile(r"[^=\s][^=]*=.*", re.DOTALL)
_HEALTH_KEYS = (
    "test", "disable", "interval", "timeout", "retries", "start_period", "start_interval",
)  # fmt: skip
_GPU_DRIVERS = frozenset({"nvidia", "amd", "gpu"})


class ServiceKeys:
    """Checks of one service's keys, by name: `check(key, node, path)`."""

    def __init__(self, walker: Walker, name: str) -> None:
        self.walker = walker
        self.name = name
        self.extras: list[ExtraUse] = []
        self.gpu: Place | None = None
        self.user = PodUser()

    def check(self, key: str, node: Node, path: str) -> bool:
        """Check one key; False when this class does not know it."""
        form = getattr(self, f"_{key}", None)
        if form is not None and key in SIMPLE_KEYS:
            if not is_null(node):
                form(node, path)
            return True
        return key in IGNORED_KEYS

    def _bad(self, node: Node, path: str, accepted: str) -> None:
        self.walker.report.reject(
            "R41", self.walker.place(path, node.line), f"cannot be {kind_of(node)}", f"accepted: {accepted}"
        )

    def _string(self, node: Node, path: str, accepted: str) -> str | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        self._bad(node, path, accepted)
        return None

    def _matching(self, node: Node, path: str, form: re.Pattern[str], accepted: str) -> None:
        if not isinstance(node, Scalar) or isinstance(node.value, bool) or not form.fullmatch(str(node.text).strip()):
            self._bad(node, path, accepted)

    def _words(self, node: Node, path: str) -> None:
        if isinstance(node, Seq):
            self.walker.strings(node, path, "R41")
        else:
            self._string(node, path, "a text, or a list of texts")

    _command = _words
    _entrypoint = _words

    def _image(self, node: Node, path: str) -> None:
        self._string(node, path, "an image name")

    def _working_dir(self, node: Node, path: str) -> None:
        self._string(node, path, "an absolute path")

    def _hostname(self, node: Node, path: str) -> None:
        if not isinstance(node, Scalar) or node.text != self.name:
            self._bad(node, path, f"the service's own name, {self.name}")

    def _platform(self, node: Node, path: str) -> None:
        if not isinstance(node, Scalar) or node.text not in PLATFORMS:
            self._bad(node, path, " or ".join(PLATFORMS))

    def _user(self, node: Node, path: str) -> None:
        text = str(node.text).strip() if isinstance(node, Scalar) and not isinstance(node.value, bool) else ""
        ids = [int(part) for part in text[:40].split(":")] if _USER.fullmatch(text) else [-1]
        if not 0 <= min(ids) <= max(ids) <= MAX_ID:
            self._bad(node, path, f"a numeric uid, or uid:gid, each up to {MAX_ID}")
            return
        self.user = PodUser(ids[0], ids[1] if len(ids) > 1 else None)

    def _mem_limit(self, node: Node, path: str) -> None:
        self._matching(node, path, _BYTES, "a number with b, k, m or g, such as 512m")

    def _cpus(self, node: Node, path: str) -> None:
        self._matching(node, path, re.compile(r"\d*\.?\d+"), "a number of CPUs, such as 0.5")

    def _environment(self, node: Node, path: str) -> None:
        accepted = "`NAME: value`, or a list of `NAME=value`; a bare NAME takes nothing from the host"
        if isinstance(node, Map):
            for key, child in node.items.items():
                if not isinstance(child, Scalar) or child.value is None:
                    self._bad(child, join_path(path, key), accepted)
        elif isinstance(node, Seq):
            for index, child in enumerate(node.items):
                if not isinstance(child, Scalar) or not _ENV.fullmatch(child.text):
                    self._bad(child, f"{path}[{index}]", accepted)
        else:
            self._bad(node, path, accepted)

    def _security_opt(self, node: Node, path: str) -> None:
        for text, place in self.walker.strings(node, path, "R41"):
            if not _SECURITY.fullmatch(text):
                self.walker.report.reject(
                    "R41",
                    place,
                    "this security option is not supported",
                    "accepted: no-new-privileges, seccomp:unconfined, seccomp:builtin, seccomp:RELATIVE/PATH",
                )

    def _volumes(self, node: Node, path: str) -> None:
        if not isinstance(node, Seq):
            self._bad(node, path, "a list of `name:/path`")
            return
        for index, item in enumerate(node.items):
            if not isinstance(item, Scalar) or not _VOLUME.fullmatch(item.text):
                place = self.walker.place(f"{path}[{index}]", item.line)
                self.extras.append(ExtraUse("volume", place, "R41", f"volume {kind_of(item)}"))

    def _healthcheck(self, node: Node, path: str) -> None:
        entry = self.walker.mapping(node, path, "R41")
        if entry is None:
            return
        unknown_keys(self.walker, entry, path, _HEALTH_KEYS, "R11")
        for key in ("interval", "timeout", "start_period"):
            if (child := entry.items.get(key)) is not None:
                accepted = "a duration in whole hours, minutes and seconds, such as 1m30s"
                self._matching(child, join_path(path, key), _DURATION, accepted)
        if (retries := entry.items.get("retries")) is not None:
            self._matching(retries, join_path(path, "retries"), re.compile(r"\d{1,9}"), "a whole number")
        disabled = entry.items.get("disable")
        off = disabled is not None and self.walker.boolean(disabled, join_path(path, "disable"), "R41")
        test = entry.items.get("test")
        if test is None:
            if not off:
                self._bad(entry, path, "a mapping with `test`, or with `disable: true`")
        elif not (isinstance(test, Seq) and _is_test(test)):
            accepted = "a list starting with CMD or CMD-SHELL, such as [CMD-SHELL, curl -f localhost]"
            self._bad(test, join_path(path, "test"), accepted)

    def _deploy(self, node: Node, path: str) -> None:
        entry = self.walker.mapping(node, path, "R41")
        if entry is None:
            return
        unknown_keys(self.walker, entry, path, ("resources",), "R11")
        path = join_path(path, "resources")
        resources = self._below(entry, "resources", path, ("limits", "reservations"))
        for part, known in (("limits", ("cpus", "memory")), ("reservations", ("cpus", "memory", "devices"))):
            part_path = join_path(path, part)
            values = self._below(resources, part, part_path, known) if resources else None
            if values is None:
                continue
            for key, form in (("cpus", self._cpus), ("memory", self._mem_limit)):
                if (child := values.items.get(key)) is not None:
                    form(child, join_path(part_path, key))
            if (devices := values.items.get("devices")) is not None:
                self._devices(devices, join_path(part_path, "devices"))

    def _below(self, entry: Map, key: str, path: str, known: tuple[str, ...]) -> Map | None:
        node = entry.items.get(key)
        found = None if node is None else self.walker.mapping(node, path, "R41", null=True)
        if found is not None:
            unknown_keys(self.walker, found, path, known, "R11")
        return found

    def _devices(self, node: Node, path: str) -> None:
        """Reserved devices can only be GPUs; anything with a capability or driver of one marks the service."""
        if not isinstance(node, Seq):
            self._bad(node, path, "a list of `{driver: nvidia, capabilities: [gpu]}`")
            return
        for index, item in enumerate(node.items):
            driver = item.items.get("driver") if isinstance(item, Map) else None
            capabilities = item.items.get("capabilities") if isinstance(item, Map) else None
            names = [driver, *(capabilities.items if isinstance(capabilities, Seq) else [])]
            if any(isinstance(name, Scalar) and name.text.lower() in _GPU_DRIVERS for name in names):
                self.gpu = self.walker.place(f"{path}[{index}]", item.line)
            else:
                self._bad(item, f"{path}[{index}]", "`{driver: nvidia, capabilities: [gpu]}`")


def _is_test(test: Seq) -> bool:
    texts = [item.text for item in test.items if isinstance(item, Scalar)]
    if len(texts) != len(test.items) or not texts:
        return False
    return texts == ["NONE"] or (texts[0] in ("CMD", "CMD-SHELL") and len(texts) > 1)


SIMPLE_KEYS = frozenset({
    "command", "cpus", "deploy", "entrypoint", "environment", "healthcheck", "hostname", "image", "mem_limit",
    "platform", "security_opt", "user", "volumes", "working_dir",
})  # fmt: skip
IGNORED_KEYS = frozenset({"build", "expose", "init", "memswap_limit", "x-local"})
"""Keys without effect here: images are built beforehand, and peers reach every port anyway."""
