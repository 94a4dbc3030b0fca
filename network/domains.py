"""Host names and patterns of an allow-list: syntax, protected names, and how wide a pattern is.

`*` stands for any characters inside one label, `**` as the whole first label for one or more
labels, a lone `*` or `**` for every name. Pure functions on text; who may list what is decided
elsewhere.
"""

from __future__ import annotations

import re
from functools import lru_cache

EVERYTHING = "*"
MAX_LENGTH = 253
MAX_LABEL = 63

_ALLOWED = re.compile(r"[a-z0-9.*_-]+")
_LABEL = re.compile(r"[a-z0-9*_-]+")
_NUMERIC = re.compile(r"(0x[0-9a-f*]*|[0-9*]*[0-9][0-9*]*|\*)")

#: Names of the cluster and of metadata services; `**.x` = x itself is listed beside it.
PROTECTED_NAMES = (
    "cluster.local", "**.cluster.local", "svc", "**.svc", "internal", "**.internal", "localhost",
    "**.localhost", "metadata", "instance-data", "metadata.azure.com", "metadata.packet.net",
    "metadata.platformequinix.com", "metadata.tencentyun.com", "kubernetes", "kubernetes.default",
)  # fmt: skip

#: Suffixes under which strangers may register names, beside every single label (`com`, `org`).
_SHARED_SUFFIXES = frozenset(
    f"{second}.{country}"
    for second in ("ac", "co", "com", "edu", "gov", "me", "ne", "net", "or", "org")
    for country in ("ar", "au", "br", "cn", "hk", "id", "il", "in", "jp", "kr", "mx", "my", "nz", "sg", "th",
                    "tr", "tw", "uk", "za")
)  # fmt: skip

#: Zones in which anybody can publish content or names, so that a wildcard lets data out.
WRITABLE_ZONES = (
    "amazonaws.com", "cloudfront.net", "awsapprunner.com", "elasticbeanstalk.com", "on.aws",
    "azurewebsites.net", "azureedge.net", "azurefd.net", "cloudapp.azure.com", "windows.net", "trafficmanager.net",
    "appspot.com", "cloudfunctions.net", "run.app", "web.app", "firebaseapp.com", "firebaseio.com",
    "googleapis.com", "googleusercontent.com", "storage.googleapis.com", "workers.dev", "pages.dev", "r2.dev",
    "trycloudflare.com", "github.io", "githubusercontent.com", "gitlab.io", "herokuapp.com", "netlify.app",
    "vercel.app", "onrender.com", "fly.dev", "deno.dev", "glitch.me", "repl.co", "replit.dev", "surge.sh",
    "ngrok.io", "ngrok.app", "ngrok-free.app", "loca.lt", "serveo.net", "duckdns.org", "dyndns.org", "no-ip.org",
    "ddns.net", "nip.io", "sslip.io", "xip.io", "hf.space", "readthedocs.io", "blogspot.com", "wordpress.com",
    "digitaloceanspaces.com", "ondigitalocean.app", "backblazeb2.com", "wasabisys.com", "supabase.co", "myshopify.com",
    "interact.sh", "oast.fun", "oast.live", "oast.me", "oast.online", "oast.pro", "oast.site", "burpcollaborator.net",
    "oastify.com", "requestbin.net", "webhook.site", "pipedream.net",
)  # fmt: skip


class DomainError(ValueError):
    """An entry that is no host name or pattern; the message says why, `fix` what to write."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


def canonical(entry: str) -> str:
    """The entry in lower case without its trailing dot, `**` alone as `*`; DomainError when it is none."""
    bare = "give the bare host name, such as `target.example.com`"
    text = entry.lower().removesuffix(".")
    if not text:
        raise DomainError("an empty name", bare)
    if "://" in text or "/" in text:
        raise DomainError("a URL or path instead of a host name", bare)
    if not text.isascii():
        raise DomainError("characters outside ASCII", "write the name in its xn-- form")
    if text.startswith("[") or text.count(":") > 1:
        raise DomainError("an IP address", "list addresses under allowCIDR")
    if ":" in text:
        raise DomainError("a port", "give the bare host name; ports go to allowDomainsPorts")
    if not _ALLOWED.fullmatch(text):
        raise DomainError("a character outside a-z, 0-9, `.`, `-`, `_` and `*`", bare)
    if len(text) > MAX_LENGTH:
        raise DomainError(f"longer than {MAX_LENGTH} characters", bare)
    labels = text.split(".")
    for index, label in enumerate(labels):
        if not label:
            raise DomainError("an empty label", bare)
        if len(label) > MAX_LABEL:
            raise DomainError(f"a label longer than {MAX_LABEL} characters", bare)
        if not label.strip("_"):
            raise DomainError("a label of underscores only", bare)
        if "**" in label and (label != "**" or index > 0):
            raise DomainError("`**` other than as the whole first label", "write `**.example.com`")
    if text in ("*", "**"):
        return EVERYTHING
    if _looks_numeric(labels):
        raise DomainError("an IP address", "list addresses under allowCIDR")
    return text


def _looks_numeric(labels: list[str]) -> bool:
    """True for what a resolver library would read as an address: 1.2.3.4, 0x7f.1, 2130706433, 10.0.0.*."""
    return all(_NUMERIC.fullmatch(label) for label in labels) and any(label.strip("*") for label in labels)


def overlaps(pattern: str, other: str) -> bool:
    """Whether some name matches both patterns (each in canonical form)."""
    if EVERYTHING in (pattern, other):
        return True
    first, second = pattern.split("."), other.split(".")
    deep = [labels[0] == "**" for labels in (first, second)]
    first, second = (labels[1:] if is_deep else labels for labels, is_deep in zip((first, second), deep, strict=True))
    if not deep[0] and not deep[1] and len(first) != len(second):
        return False
    if deep[0] and not deep[1] and len(second) <= len(first):
        return False
    if deep[1] and not deep[0] and len(first) <= len(second):
        return False
    return all(labels_overlap(one, two) for one, two in zip(reversed(first), reversed(second), strict=False))


@lru_cache(maxsize=4096)
def labels_overlap(one: str, two: str) -> bool:
    """Whether two label patterns have a label in common (`*` = any characters, also none)."""
    if "*" not in one and "*" not in two:
        return one == two
    if "*" not in one or "*" not in two:
        return _matches(*((one, two) if "*" in one else (two, one)))
    reached = {(0, 0)}
    todo = [(0, 0)]
    while todo:
        left, right = todo.pop()
        if left == len(one) and right == len(two):
            return True
        star_left, star_right = one[left : left + 1] == "*", two[right : right + 1] == "*"
        steps = []
        if star_left:
            steps.append((left + 1, right))
            if right < len(two):
                steps.append((left, right + 1))
        if star_right:
            steps.append((left, right + 1))
            if left < len(one):
                steps.append((left + 1, right))
        if not star_left and not star_right and one[left : left + 1] == two[right : right + 1]:
            steps.append((left + 1, right + 1))
        for step in steps:
            if step not in reached and step[0] <= len(one) and step[1] <= len(two):
                reached.add(step)
                todo.append(step)
    return False


def _matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches the text: each part between stars at its first place, so in linear time."""
    first, *parts = pattern.split("*")
    last = parts.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in parts:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def protected_name(pattern: str) -> str | None:
    """The cluster or metadata name that the pattern covers, None when it covers none; `*` is exempt."""
    if pattern == EVERYTHING:
        return None
    return next((name for name in PROTECTED_NAMES if overlaps(pattern, name)), None)


def is_broad(pattern: str) -> bool:
    """Whether anybody could register a name that the pattern matches (`*`, `*.com`, `*.co.uk`, `*evil.org`)."""
    if pattern == EVERYTHING:
        return True
    labels = pattern.split(".")
    wild = [index for index, label in enumerate(labels) if "*" in label]
    if not wild:
        return False
    registered = ".".join(labels[max(wild) + 1 :])
    return "." not in registered or registered in _SHARED_SUFFIXES


def writable_zone(pattern: str) -> str | None:
    """The zone open to everybody in which a wildcard pattern lies, None without one."""
    if "*" not in pattern:
        return None
    return next((zone for zone in WRITABLE_ZONES if pattern.endswith(f".{zone}")), None)
