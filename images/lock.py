"""The lock file: one `package version` a line, sorted, and what to say when the archive no longer holds a version."""

from collections.abc import Mapping
from pathlib import Path

from images.stacks import ImageError

HEADER = "# Every package of the image, exactly. Written by `python -m images pin`; do not edit.\n"


def parse(text: str, source: Path) -> dict[str, str]:
    """Return package to version.

    Raises:
        ImageError: a line is not `package version`; names the file and the line.
    """
    pins: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 2 or words[0] in pins:
            raise ImageError(f"{source}:{number}: expected one `package version`, found {line!r}")
        pins[words[0]] = words[1]
    return pins


def render(pins: Mapping[str, str]) -> str:
    """Return the lock file's text."""
    return HEADER + "".join(f"{name} {pins[name]}\n" for name in sorted(pins))


def require_available(pins: Mapping[str, str], available: Mapping[str, list[str]], source: Path, stack: str) -> None:
    """Check that the archive still holds every pinned version.

    Args:
        pins: package to wanted version.
        available: package to the versions the archive offers, newest first; a package may be absent.
        source: the lock file, for the message.
        stack: its stack's name, for the remedy.

    Raises:
        ImageError: names each vanished version and what is there instead.
    """
    gone = [
        f"  {name} {version} is gone; the archive has {', '.join(available.get(name, [])) or 'no such package'}"
        for name, version in sorted(pins.items())
        if version not in available.get(name, [])
    ]
    if gone:
        raise ImageError(
            f"{source}: pinned versions have vanished from the package archive:\n"
            + "\n".join(gone)
            + f"\n  to do: python -m images pin {stack}, and read the difference before committing it"
        )


def require_installed(pins: Mapping[str, str], installed: Mapping[str, str], source: Path, stack: str) -> None:
    """Check that exactly the pinned packages came to be installed.

    Raises:
        ImageError: names each difference.
    """
    differing = [
        f"  {name}: locked {pins.get(name, 'not at all')}, installed {installed.get(name, 'not at all')}"
        for name in sorted({*pins, *installed})
        if pins.get(name) != installed.get(name)
    ]
    if differing:
        raise ImageError(
            f"{source}: the image would hold other packages than those locked:\n"
            + "\n".join(differing)
            + f"\n  to do: python -m images pin {stack}, and read the difference before committing it"
        )
