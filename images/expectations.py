"""What each stack's image must be able to do: shell scripts and what they print, data only.

Run by `images.validate` as uid 1000 in a directory of their own under /workspace/submissions (whose files may be
executed), in a sandbox like an agent's.
"""

from __future__ import annotations

from dataclasses import dataclass

_C = 'printf "#include <stdio.h>\\nint main(void){puts(\\"hello\\");return 0;}\\n" > m.c'
_POSTGRES = """
export PGHOST=/tmp/pg PGUSER=agent; mkdir /tmp/pg
initdb -D /tmp/pg/data -A trust -U agent > initdb.log
pg_ctl -D /tmp/pg/data -w -t 30 -l pg.log -o '-k /tmp/pg -c listen_addresses=' start > start.log
psql -d postgres -Atc 'select 40 + 2'
pg_ctl -D /tmp/pg/data -m immediate stop > stop.log; rm -rf /tmp/pg
"""
_PYTEST = """
printf 'def test_good():\\n    assert True\\ndef test_bad():\\n    assert False\\n' > test_two.py
python3 -m pytest -q -p no:cacheprovider test_two.py > out.txt && exit 9
tail -1 out.txt | sed 's/ in .*//'
"""


MIB = 1024**2
# The limits of the sandbox that the scripts below run in.
PIDS, FILE, TMP, OPEN = 64, 16 * MIB, 64 * MIB, 256


@dataclass(frozen=True)
class Expected:
    """A script by name and the line that it must print last."""

    name: str
    script: str
    prints: str


@dataclass(frozen=True)
class Expectations:
    """One stack's."""

    runtimes: tuple[Expected, ...]
    databases: tuple[Expected, ...]
    test_runners: tuple[Expected, ...]


EXPECTATIONS = {
    "python311": Expectations(
        runtimes=(
            Expected("python", "python3 -c 'import sys, sqlite3, ssl; print(sys.version_info[:2])'", "(3, 11)"),
            Expected("gcc", f"{_C}; gcc -O1 -o m m.c; ./m", "hello"),
            Expected("make", f"{_C}; printf 'all: m\\n\\t@./m\\n' > Makefile; make -s all CC=gcc | tail -1", "hello"),
            Expected("git", "git init -q r && cd r && git status -s && echo clean", "clean"),
            Expected("curl", "echo through > f; curl -s file://$PWD/f", "through"),
        ),
        databases=(Expected("postgresql", _POSTGRES, "42"),),
        test_runners=(Expected("pytest", _PYTEST, "1 failed, 1 passed"),),
    ),
}

_FORKS = f"""
python3 - <<'P'
import errno, os, time
children, said = [], "no limit"
try:
    while len(children) < {3 * PIDS}:
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        children.append(pid)
except OSError as error:
    said = errno.errorcode[error.errno]
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print(said if len(children) <= {PIDS} else len(children))
P
"""
_FILL_TMP = f"""
head -c {TMP + MIB} /dev/zero 2> err.txt | split -b 8m - /tmp/s 2>> err.txt; said=$?
rm -f /tmp/s*; test $said != 0 && echo full
"""
LIMITS = (
    Expected("processes", _FORKS, "EAGAIN"),
    Expected("descriptors", "ulimit -n", str(OPEN)),
    Expected(
        "file size", f"(trap '' XFSZ; head -c {2 * FILE} /dev/zero > b 2> err.txt); stat -c %s b; rm b", str(FILE)
    ),
    Expected("size of /tmp", _FILL_TMP, "full"),
    Expected("/tmp runs nothing", "cp /bin/true /tmp/t; /tmp/t 2> err.txt; echo $?; rm /tmp/t", "126"),
    Expected("read-only root", "touch /x /usr/x /etc/x 2> err.txt; ls -d /x /usr/x /etc/x 2>> err.txt | wc -l", "0"),
    Expected("no capabilities", "grep -c -E '^Cap(Eff|Prm):\\s0+$' /proc/self/status", "2"),
)
_CONNECT = """
python3 - <<'P'
import socket
reached = [name for _, name in socket.if_nameindex() if name != "lo"]
for address in (("8.8.8.8", 53), ("169.254.169.254", 80), ("172.17.0.1", 2375), ("10.0.0.1", 22)):
    one = socket.socket()
    one.settimeout(3)
    try:
        one.connect(address)
        reached.append(address)
    except OSError:
        pass
print(reached or "nothing")
P
"""
NETWORK = (Expected("nothing but loopback", _CONNECT, "nothing"),)
_LOOK = """
seen=
for p in /scoring /reference /results /sandbox /hidden /workspace/.sandbox /var/run/docker.sock; do
  test -e $p && seen="$seen $p"
done
for p in environ mem fd/0; do (exec < /proc/1/$p) 2> err.txt && seen="$seen /proc/1/$p"; done
echo ${seen:-none}
"""
HIDDEN = (Expected("nothing of the platform's", _LOOK, "none"),)
"""What every stack's image must show, whatever is in it."""
