"""One question: do official installers answer from here? Asked once, briefly, and remembered.

Where they do not, everything is built from package registries instead, so a wrong "no" costs minutes and
nothing else. `GAUNTLET_OFFLINE=1` says no without asking.
"""

import functools
import os
import urllib.error
import urllib.request

from scripts.provision.console import say

PROBE_SECONDS = 4.0


@functools.cache
def reachable(url: str) -> bool:
    """Return whether `url` answers a HEAD request with success within a few seconds."""
    if os.environ.get("GAUNTLET_OFFLINE") == "1":
        return False
    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": "gauntlet-setup"})
    try:
        with urllib.request.urlopen(request, timeout=PROBE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError) as refusal:
        say("network", f"{url} does not answer ({refusal}); building from packages instead")
        return False
