"""An environment on one machine: runtime, profile, images, then every service from the collector to the judge worker.

Each service depends on exactly what it uses, so that a changed setting restarts what it concerns and nothing else.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pulumi

from infra.components.local_resources import Installation, Runtime, SeccompProfile, Service, StackImage
from infra.config import LocalSettings
from infra.local.kinds.image import stack_content
from infra.local.kinds.installation import REPOSITORY, USER, code_digest
from infra.local.places import Places


class LocalEnvironment(pulumi.ComponentResource):
    """Everything of one machine."""

    def __init__(self, name: str, settings: LocalSettings) -> None:
        super().__init__("gauntlet:environment:Local", name)
        self._settings = settings
        self._places = Places(settings.instance)
        self._installation = Installation(
            "installation", instance=settings.instance, code_digest=code_digest(), opts=self._child()
        )
        self._scheduler_endpoint = self._places.socket("scheduler")
        collector = self._collector()
        scheduler = self._scheduler(collector)
        daemons = self._daemons(collector, scheduler)
        self._judge(scheduler, daemons)
        self.endpoint = self._scheduler_endpoint
        self.register_outputs({"endpoint": self.endpoint})

    def _child(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(after))

    def _service(
        self, name: str, module: str, config: Any, user: str, endpoints: list[str], *after: pulumi.Resource
    ) -> Service:
        return Service(
            name,
            instance=self._settings.instance,
            module=module,
            config=pulumi.Output.from_input(config).apply(lambda value: json.dumps(value, indent=1, sort_keys=True)),
            user=user,
            endpoints=endpoints,
            installation=self._installation,
            purge=module == "daemon",
            opts=self._child(*after),
        )

    def _records(self, name: str) -> str:
        return str(self._places.state / "records" / name)

    def _collector(self) -> Service:
        endpoint = self._places.socket("collector")
        database = f"sqlite:///{self._records('events.db')}"
        config = {"endpoint": endpoint, "database_url": database, "socket_group": USER}
        return self._service("collector", "records.collector", config, USER, [endpoint])

    def _scheduler(self, collector: Service) -> Service:
        agents = self._places.socket("scheduler-agents")
        config = {
            "state_dir": str(self._places.state / "scheduler"),
            "operator_endpoint": self._scheduler_endpoint,
            "agent_endpoint": agents,
            "token_key_file": str(self._places.token_key),
            "events_db": self._records("events.db"),
            "audit_db": self._records("audit.db"),
            "operator_group": self._installation.gid,
        }
        return self._service("scheduler", "scheduler", config, USER, [self._scheduler_endpoint, agents], collector)

    def _trace(self) -> Service:
        settings, places = self._settings, self._places
        endpoint = places.socket("trace")
        config = {
            "trace_socket": str(places.trace_socket),
            "endpoint": endpoint,
            "nodes": {f"node-{number}": str(places.state / f"node-{number}") for number in range(settings.daemons)},
            "files": str(places.trace),
            "runsc": _runsc(),
        }
        return self._service("trace", "daemon.trace", config, "root", [endpoint])

    def _daemons(self, collector: Service, scheduler: Service) -> list[Service]:
        settings, places = self._settings, self._places
        trace = self._trace()
        runtime = Runtime(
            "runtime",
            instance=settings.instance,
            runsc=_runsc(),
            docker_host=settings.docker_host,
            opts=self._child(self._installation),
        )
        profile = SeccompProfile(
            "seccomp",
            instance=settings.instance,
            text=(REPOSITORY / "seccomp" / "profile.json").read_text(),
            opts=self._child(self._installation),
        )
        stacks = {
            stack: {
                "image": StackImage(
                    stack,
                    stack=stack,
                    content=stack_content(stack),
                    docker_host=settings.docker_host,
                    opts=self._child(),
                ).tag,
                "defaults": each.defaults.limits(),
                "policy": each.policy.limits(),
                "pool_target": each.pool,
            }
            for stack, each in settings.stacks.items()
        }
        made = []
        for number in range(settings.daemons):
            node = f"node-{number}"
            endpoints = [places.socket(node), places.socket(f"{node}-agents")]
            config = {
                "node_id": node,
                "instance": f"{settings.instance}-{number}",
                "state_dir": str(places.state / node),
                "endpoint": endpoints[0],
                "agent_endpoint": endpoints[1],
                "scheduler_endpoint": self._scheduler_endpoint,
                "collector_endpoint": places.socket("collector"),
                "trace_endpoint": places.socket("trace"),
                "token_key_file": str(places.token_key),
                "docker_host": settings.docker_host,
                "runtime": places.runtime,
                "runtime_digest": runtime.digest,
                "seccomp_profile": profile.path,
                "stacks": stacks,
                "capacity": settings.capacity,
                "socket_gid": self._installation.gid,
            }
            made.append(
                self._service(node, "daemon", config, "root", endpoints, collector, scheduler, trace, runtime, profile)
            )
        return made

    def _judge(self, scheduler: Service, daemons: list[Service]) -> Service:
        # One slow submission must not hold up the judging of the others.
        parallel = self._settings.capacity * self._settings.daemons
        config = {"worker_id": "judge-0", "scheduler_endpoint": self._scheduler_endpoint, "parallel": parallel}
        return self._service("judge", "judges", config, USER, [], scheduler, *daemons)


def _runsc() -> str:
    """The runsc that setup published; a machine-wide one where there is none."""
    cache = Path(os.environ.get("GAUNTLET_CACHE_DIR", Path.home() / ".cache" / "gauntlet"))
    published = cache / "bin" / "runsc"
    return str(published.resolve() if published.exists() else Path("/usr/local/bin/runsc"))
