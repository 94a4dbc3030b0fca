"""Honest work in a real sandbox: it succeeds, and none of it looks like an escape."""

from __future__ import annotations

import asyncio
import json

import pytest

from cli import sandbox
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from tests.support.environment import gauntlet

pytestmark = [pytest.mark.docker, pytest.mark.slow]
# A directory of its own each; a tool that an image lacks is asked for by `needs`.
WORK = {
    "gcc and make": """
        printf '#include <stdio.h>\\nint main(void){puts("built");return 0;}\\n' > m.c
        printf 'all: m\\n\\t./m\\nm: m.o\\n\\tcc -o m m.o\\nm.o: m.c\\n\\tcc -O1 -c m.c\\n' > Makefile
        make -j2 | grep built""",
    "C threads and signals": """
        cat > t.c <<'C'
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <unistd.h>
        static volatile sig_atomic_t seen;
        static void on(int n) { seen = n; }
        static void *work(void *p) { usleep(1000); return p; }
        int main(void) {
            pthread_t t[8];
            signal(SIGALRM, on);
            for (int i = 0; i < 8; i++) if (pthread_create(&t[i], 0, work, 0)) return 1;
            for (int i = 0; i < 8; i++) pthread_join(t[i], 0);
            raise(SIGALRM);
            return seen == SIGALRM ? 0 : 2;
        }
        C
        gcc -pthread -o t t.c && ./t""",
    "pytest in parallel": """
        printf 'import pytest\\n@pytest.mark.parametrize("n", range(8))\\ndef test_n(n): assert n < 8\\n' > test_n.py
        python3 -m pytest -q -n 2 -p no:cacheprovider test_n.py | grep '8 passed'""",
    "a virtual environment": """
        python3 -m venv v && v/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'""",
    "pip, without a network": """
        export HOME=$PWD PIP_DISABLE_PIP_VERSION_CHECK=1 TMPDIR=$PWD
        cat > wheel.py <<'P'
        import zipfile
        info = "honest-1.0.dist-info/"
        with zipfile.ZipFile("honest-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("honest.py", "ANSWER = 42\\n")
            wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: honest\\nVersion: 1.0\\n")
            wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(info + "RECORD", "honest.py,,\\n")
        P
        python3 wheel.py && python3 -m venv v && v/bin/pip install --no-index -q ./honest-1.0-py3-none-any.whl
        v/bin/python -c 'import honest; assert honest.ANSWER == 42' && v/bin/pip uninstall -yq honest && pip list""",
    "git": """
        export HOME=$PWD GIT_CONFIG_GLOBAL=$PWD/gitconfig
        git config --global user.email a@b.c && git config --global user.name a
        git init -q r && cd r && for i in 1 2 3; do echo $i > f && git add f && git commit -qm $i; done
        git checkout -q -b b && git mv f g && git commit -qm g && git checkout -q - && git merge -q b
        git gc -q && git fsck && cd .. && git clone -q r s && test "$(cat s/g)" = 3""",
    "coreutils": """
        seq 20000 | sort -rn --parallel=2 -S 1M -o sorted && test "$(head -1 sorted)" = 20000
        mkdir a && echo x > a/f && ln -s f a/l && ln a/f a/h && cp -a a b && diff -r a b
        tar czf a.tgz a && mkdir c && tar xzf a.tgz -C c && diff -r a c/a
        install -m 755 a/f d && touch -d 2020-01-01 d && stat -c %Y d && nice -n 5 true
        timeout 5 sleep 0.1 && find . -name f | xargs -P 2 -n 1 cat && sed -i s/x/y/ a/f && chmod 600 a/f
        df . && ls -la && ps -e | grep ps""",
    "Python processes": """
        cat > m.py <<'P'
        import multiprocessing as m, os, signal, subprocess, threading, time
        def square(n): return n * n
        if __name__ == "__main__":
            for way in ("fork", "spawn"):
                with m.get_context(way).Pool(2) as pool:
                    assert pool.map(square, range(20)) == [n * n for n in range(20)]
            q = m.Queue(); p = m.Process(target=q.put, args=(7,)); p.start(); assert q.get() == 7; p.join()
            child = subprocess.Popen(["sleep", "60"]); child.terminate(); assert child.wait() == -signal.SIGTERM
            assert time.time() > 0 and time.clock_gettime(time.CLOCK_MONOTONIC) > 0
            threads = [threading.Thread(target=square, args=(n,)) for n in range(8)]
            [t.start() for t in threads]; [t.join() for t in threads]
            os.setpriority(os.PRIO_PROCESS, 0, 5)
        P
        python3 m.py""",
    "sqlite": """
        python3 - <<'P'
        import sqlite3
        for mode in ("wal", "delete"):
            c = sqlite3.connect("d.db"); c.execute(f"pragma journal_mode={mode}")
            c.execute("create table if not exists t (n integer)")
            with c: c.executemany("insert into t values (?)", [(n,) for n in range(1000)])
            assert c.execute("select count(*) from t").fetchone()[0] % 1000 == 0; c.close()
        P""",
    "a server and its client": """
        python3 - <<'P'
        import http.server, socket, threading, urllib.request
        s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=s.serve_forever, daemon=True).start()
        assert urllib.request.urlopen(f"http://127.0.0.1:{s.server_port}/").status == 200; s.shutdown()
        a, b = socket.socketpair(); a.sendall(b"x"); assert b.recv(1) == b"x"
        P""",
    "jobs of a shell": """
        bash -c 'set -m; sleep 60 & kill %1; wait; sleep 60 & kill -STOP $!; kill -CONT $!; kill -9 $!; wait; true'
        bash -c 'trap "echo term" TERM; kill -TERM $$; exit 0' | grep term""",
    "node": "node -e 'new Worker' ; node --test",
    "go": "mkdir m && cd m && go mod init m && printf 'package m\\n' > m.go && go vet ./... && go test ./...",
    "cargo": "cargo init -q --name c && cargo test -q --offline",
}
NEEDS = {"node": "node", "go": "go", "cargo": "cargo"}


@pytest.fixture(scope="module")
def done(environment, tmp_path_factory):
    """Every piece of work done in one attempt: exit code and words by name (None where the image has no such tool),
    and the attempt's events and record."""
    challenge = make_challenge(tmp_path_factory.mktemp("c") / "c", resources={"memory": "512m"})
    results, record = asyncio.run(_do_everything(environment, challenge))
    lines = gauntlet(environment, "events", record["attempt_id"], "--json").stdout.splitlines()
    return results, [json.loads(line) for line in lines], record


async def _do_everything(environment, challenge):
    results: dict[str, tuple[int | None, str] | None] = {}
    async with running(environment, challenge) as (to, attempt_id, agent):
        for number, (name, script) in enumerate(WORK.items()):
            tool = NEEDS.get(name, "true")
            if (await sandbox.run_command(agent, ["sh", "-c", f"command -v {tool}"])).exit_code != 0:
                results[name] = None
                continue
            place = f"/workspace/submissions/code/w{number}"
            await sandbox.run_command(agent, ["mkdir", "-p", place])
            words = bytearray()
            end = await sandbox.run_command(
                agent,
                ["bash", "-e", "-o", "pipefail", "-c", _dedent(script)],
                cwd=place,
                timeout_seconds=120,
                stdout=words.extend,
                stderr=words.extend,
            )
            results[name] = (end.exit_code, f"{end}: {words.decode(errors='replace')[-3000:]}")
        await sandbox.submit(agent)
        return results, await ended(to, attempt_id)


def _dedent(script: str) -> str:
    """Heredocs need their lines at the margin."""
    return "\n".join(line.removeprefix("        ") for line in script.strip("\n").splitlines())


@pytest.mark.parametrize("name", [name for name in WORK if name not in NEEDS])
def test_it_succeeds(done, name):
    found = done[0][name]
    assert found is not None
    assert found[0] == 0, found[1]


def test_languages_of_other_images_succeed_where_they_are(done):
    assert {name: found for name, found in done[0].items() if name in NEEDS and found and found[0] != 0} == {}


def test_none_of_it_looks_like_an_escape(done):
    _, events, record = done
    assert [event for event in events if event["kind"] == "escape_attempt"] == []
    assert record["sandbox"]["blocked_syscalls"] == 0
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", [])
