"""A challenge's database inside a sandbox: how it is started, asked whether it serves, and how programs reach it.

Started as uid 1000 by PID 1's own exec, data and socket under /tmp, for agents and judges alike and with the same
variables. One retry; whether an attempt goes on without it is the callers' decision.
"""

from __future__ import annotations

import asyncio

import structlog

from daemon.attempts.model import DatabaseSpec
from daemon.supervisor.errors import SupervisorError, SupervisorGone
from daemon.supervisor.link import SupervisorLink
from daemon.supervisor.types import ExecSpec, Exited, Output

log = structlog.get_logger(__name__)

USER = "agent"
BACKOFF_SECONDS = 5.0
# PID 1 ends a start at its limit; this much later its silence is a failure too.
ANSWER_MARGIN_SECONDS = 10.0
REASON_BYTES = 500
PORTS = {"postgres": 5432, "redis": 6379}

_POSTGRES = """
set -e
dir=/tmp/.gauntlet-postgres
serve() {{ pg_ctl -D $dir/data -w -t {seconds} -l $dir/server.log -o '-k /tmp -p {port} -h 127.0.0.1 -F \
-c shared_buffers=16MB -c max_connections=32 -c max_wal_size=16MB' start; }}
failed() {{ cat $dir/*.log >&2; pg_ctl -D $dir/data -m immediate stop || true; exit 1; }}
rm -rf $dir; mkdir -m 700 $dir
initdb -D $dir/data -A trust -U {user} -E UTF8 --locale=C.UTF-8 --no-sync --wal-segsize=1 > $dir/init.log 2>&1 || failed
serve > $dir/start.log 2>&1 || failed
psql -h /tmp -p {port} -U {user} -d postgres -qc 'create database "{name}"' > $dir/create.log 2>&1 || failed
psql -h /tmp -p {port} -U {user} -d '{name}' -Atqc 'select 1' > $dir/health.log 2>&1 || failed
"""
_REDIS = """
set -e
dir=/tmp/.gauntlet-redis
rm -rf $dir; mkdir -m 700 $dir
redis-server --daemonize yes --dir $dir --logfile $dir/server.log --port {port} --bind 127.0.0.1 \
--unixsocket /tmp/redis.sock --save '' --appendonly no
until redis-cli -p {port} ping | grep -q PONG; do sleep 0.1; done
"""
_SCRIPTS = {"postgres": _POSTGRES, "redis": _REDIS}


def variables(database: DatabaseSpec | None) -> dict[str, str]:
    """What tells programs where the database is; the same whether or not it could be started."""
    if database is None:
        return {}
    port = str(PORTS[database.kind])
    if database.kind == "redis":
        return {"REDIS_URL": f"redis://127.0.0.1:{port}/0"}
    return {
        "PGHOST": "/tmp",
        "PGPORT": port,
        "PGUSER": USER,
        "PGDATABASE": database.name,
        "DATABASE_URL": f"postgresql://{USER}@127.0.0.1:{port}/{database.name}",
    }


def start_script(database: DatabaseSpec) -> str:
    """The shell script that starts it and returns once it serves."""
    seconds = max(1, round(database.start_timeout_seconds))
    return _SCRIPTS[database.kind].format(port=PORTS[database.kind], user=USER, name=database.name, seconds=seconds)


async def start(link: SupervisorLink, database: DatabaseSpec, *, backoff_seconds: float = BACKOFF_SECONDS) -> str:
    """Start the database, once more after a pause if need be; why it does not serve, or nothing when it does.

    Raises SupervisorGone when the sandbox itself is.
    """
    reason = ""
    for number in (1, 2):
        if number > 1:
            await asyncio.sleep(backoff_seconds)
        reason = await _start_once(link, database, f"exe_database_{number}")
        if not reason:
            return ""
        log.warning("database_not_started", kind=database.kind, tries=number, reason=reason)
    return reason


async def _start_once(link: SupervisorLink, database: DatabaseSpec, exec_id: str) -> str:
    limit = database.start_timeout_seconds
    spec = ExecSpec(argv=["sh", "-c", start_script(database)], cwd="/tmp", timeout_seconds=limit)
    said = bytearray()
    try:
        async with asyncio.timeout(limit + ANSWER_MARGIN_SECONDS):
            handle = await link.exec(spec, exec_id=exec_id)
            async for event in handle.events():
                if isinstance(event, Output):
                    said += event.data
                    del said[:-REASON_BYTES]
                elif isinstance(event, Exited):
                    result = event.result
                    if result.exit_code == 0:
                        return ""
                    if result.timed_out:
                        return f"it did not serve within {limit:g} s"
                    return f"exit {result.exit_code}: {bytes(said).decode(errors='replace').strip()}"
    except TimeoutError:
        return f"no answer within {limit + ANSWER_MARGIN_SECONDS:g} s"
    except SupervisorGone:
        raise
    except SupervisorError as error:
        return str(error)
    return "its start has no end"
