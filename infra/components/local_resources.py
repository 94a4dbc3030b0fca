"""The local provider's resources as the program sees them: names, inputs, outputs."""

from __future__ import annotations

from typing import Any

import pulumi


class _Local(pulumi.CustomResource):
    def __init__(
        self, kind: str, name: str, inputs: dict[str, Any], outputs: tuple[str, ...], opts: pulumi.ResourceOptions
    ) -> None:
        properties = {**dict.fromkeys(outputs), **inputs}
        super().__init__(f"gauntlet:local:{kind}", name, properties, opts)


class Installation(_Local):
    """User, directories, code, interpreter, token key."""

    code: pulumi.Output[str]
    python: pulumi.Output[str]
    gid: pulumi.Output[int]

    def __init__(self, name: str, *, instance: str, code_digest: str, opts: pulumi.ResourceOptions) -> None:
        inputs = {"instance": instance, "code_digest": code_digest}
        super().__init__("Installation", name, inputs, ("code", "python", "gid"), opts)


class Runtime(_Local):
    """The gVisor runtime's entry in the engine."""

    digest: pulumi.Output[str]

    def __init__(self, name: str, *, instance: str, runsc: str, docker_host: str, opts: pulumi.ResourceOptions) -> None:
        inputs = {"instance": instance, "runsc": runsc, "docker_host": docker_host}
        super().__init__("Runtime", name, inputs, ("name", "digest"), opts)


class SeccompProfile(_Local):
    """The seccomp profile in use."""

    path: pulumi.Output[str]
    digest: pulumi.Output[str]

    def __init__(self, name: str, *, instance: str, text: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("SeccompProfile", name, {"instance": instance, "text": text}, ("path", "digest"), opts)


class StackImage(_Local):
    """A stack's image."""

    tag: pulumi.Output[str]
    digest: pulumi.Output[str]

    def __init__(self, name: str, *, stack: str, content: str, docker_host: str, opts: pulumi.ResourceOptions) -> None:
        inputs = {"stack": stack, "content": content, "docker_host": docker_host}
        super().__init__("StackImage", name, inputs, ("tag", "digest", "layers"), opts)


class Service(_Local):
    """A supervised service."""

    pid: pulumi.Output[int]

    def __init__(
        self,
        name: str,
        *,
        instance: str,
        module: str,
        config: pulumi.Input[str],
        user: str,
        endpoints: list[str],
        installation: Installation,
        purge: bool = False,
        opts: pulumi.ResourceOptions,
    ) -> None:
        inputs = {
            "instance": instance,
            "name": name,
            "module": module,
            "config": config,
            "user": user,
            "endpoints": endpoints,
            "code": installation.code,
            "python": installation.python,
            "gid": installation.gid,
            "purge": purge,
        }
        super().__init__("Service", name, inputs, ("pid", "started", "alive"), opts)
