"""The file that says where a probe may look: addresses of the cluster, of other sandboxes and of siblings.

Every key is optional; what is left out is not tried, and the outside has addresses of its own. The file is the
operator's, so a mistake in it is a plain `TargetsError`, not a problem of the network file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from network.probe import Peer, Targets
from network.settings import in_words, plain, read_settings


class TargetsError(ValueError):
    """The targets cannot be used; the message names the key and the accepted form."""


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no IP address") from error


def _family(version: int) -> AfterValidator:
    def check(text: str) -> str:
        if ipaddress.ip_address(text).version != version:
            raise ValueError(f"{text} is no IPv{version} address")
        return text

    return AfterValidator(check)


_Address = Annotated[str, AfterValidator(_address)]
_DEFAULT = Targets()
_Port = Annotated[int, Field(ge=1, le=65535)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Stranger(_Strict):
    address: _Address
    port: _Port


class _Sibling(_Strict):
    address: _Address
    ports: list[_Port] = Field(min_length=1)


class _File(_Strict):
    outside_v4: Annotated[_Address, _family(4)] = _DEFAULT.outside_v4
    outside_v6: Annotated[_Address, _family(6)] = _DEFAULT.outside_v6
    outside_dns: _Address = _DEFAULT.outside_dns
    outside_name: str = Field(_DEFAULT.outside_name, pattern=r"^[A-Za-z0-9][-A-Za-z0-9.]{0,252}$")
    api_server: list[_Address] = []
    nodes: list[_Address] = []
    strangers: list[_Stranger] = []
    siblings: Mapping[str, _Sibling] = {}
    gateway_ports: list[_Port] = list(_DEFAULT.gateway_ports)


def read_targets(text: bytes | str, file: str, *, offline: bool) -> Targets:
    """The targets of a file; `offline` adds that there must be no interface but loopback.

    Raises:
        TargetsError: a key or a value of it cannot be used.
    """
    root = read_settings(text, file, "nodes: [10.1.0.4]", TargetsError)
    try:
        found = _File.model_validate(plain(root))
    except ValidationError as error:
        raise TargetsError(f"{file}: {in_words(error)}") from error
    return Targets(
        outside_v4=found.outside_v4,
        outside_v6=found.outside_v6,
        outside_dns=found.outside_dns,
        outside_name=found.outside_name,
        api_server=tuple(found.api_server),
        nodes=tuple(found.nodes),
        strangers=tuple((item.address, item.port) for item in found.strangers),
        siblings={name: Peer(item.address, tuple(item.ports)) for name, item in found.siblings.items()},
        gateway_ports=tuple(found.gateway_ports),
        offline=offline,
    )
