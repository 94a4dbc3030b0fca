"""`python -m images build STACK` and `python -m images pin STACK`."""

import argparse
import sys
import time
from collections.abc import Sequence

import docker

from images.build import ensure_image
from images.pin import write_lock
from images.stacks import STACKS, ImageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the image's tag and digest, or the lock file written; exit code 1 with the reason on failure."""
    parser = argparse.ArgumentParser(prog="python -m images", description=__doc__)
    parser.add_argument("action", choices=["build", "pin"])
    parser.add_argument("stack", choices=sorted(STACKS))
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        if options.action == "pin":
            print(write_lock(options.stack, docker.from_env()))
        else:
            image = ensure_image(options.stack, docker.from_env(), report=lambda line: print(line, file=sys.stderr))
            print(image.tag, image.digest)
    except ImageError as failure:
        print(f"images: {failure}", file=sys.stderr)
        return 1
    print(f"images: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
