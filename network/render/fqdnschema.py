"""The form of GKE's FQDNNetworkPolicy, which has no public definition: what its documentation shows.

Stricter than the documentation where that is silent: no unknown key, nothing empty, every rule with
ports, so that an object that passes means the same under every reading of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Match(_Strict):
    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]+(\.[a-z0-9_-]+)*$")] | None = None
    pattern: Annotated[str, Field(pattern=r"^[a-z0-9*_-]+(\.[a-z0-9*_-]+)+$")] | None = None

    @model_validator(mode="after")
    def _one(self) -> _Match:
        if (self.name is None) == (self.pattern is None):
            raise ValueError("needs either name or pattern")
        if self.pattern is not None and ("**" in self.pattern or "*" not in self.pattern):
            raise ValueError("a pattern has single stars inside labels")
        return self


class _Port(_Strict):
    protocol: Literal["TCP", "UDP", "SCTP"]
    port: Annotated[int, Field(ge=1, le=65535)]


class _Rule(_Strict):
    matches: Annotated[list[_Match], Field(min_length=1)]
    ports: Annotated[list[_Port], Field(min_length=1)]


class _Expression(_Strict):
    key: str
    operator: Literal["DoesNotExist", "Exists"]


class _Selector(_Strict):
    match_labels: Annotated[dict[str, str], Field(alias="matchLabels", min_length=1)]
    match_expressions: Annotated[list[_Expression], Field(alias="matchExpressions", min_length=1)]


class _Spec(_Strict):
    pod_selector: Annotated[_Selector, Field(alias="podSelector")]
    egress: Annotated[list[_Rule], Field(min_length=1)]


class _Object(_Strict):
    api: Annotated[Literal["networking.gke.io/v1alpha1"], Field(alias="apiVersion")]
    kind: Literal["FQDNNetworkPolicy"]
    metadata: dict[str, Any]
    spec: _Spec


def fqdn_problems(item: Mapping[str, Any]) -> list[str]:
    """What is wrong with one object, a line each; empty when it has the documented form."""
    try:
        _Object.model_validate(dict(item))
    except ValidationError as error:
        return [f"{'.'.join(map(str, entry['loc']))}: {entry['msg']}" for entry in error.errors()]
    return []
