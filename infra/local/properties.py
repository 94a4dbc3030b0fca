"""Between Pulumi's property values and plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulumi.provider.experimental.property_value import PropertyValue, PropertyValueType

from infra.local.planning import UNKNOWN


def plain(value: PropertyValue) -> Any:
    """The plain value; UNKNOWN where it is not known yet. Whole numbers come back as int."""
    if value.type == PropertyValueType.COMPUTED:
        return UNKNOWN
    inner = value.value
    if isinstance(inner, bool | str) or inner is None:
        return inner
    if isinstance(inner, int | float):
        return int(inner) if float(inner).is_integer() else inner
    if isinstance(inner, Mapping):
        return {name: plain(item) for name, item in inner.items()}
    if isinstance(inner, tuple | list):
        return [plain(item) for item in inner]
    raise TypeError(f"a property of type {type(inner).__name__} has no place here")


def plain_map(values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """Every property, plain."""
    return {name: plain(value) for name, value in values.items()}


def wrapped(value: Any) -> PropertyValue:
    """The property value of a plain one."""
    if isinstance(value, Mapping):
        return PropertyValue({name: wrapped(item) for name, item in value.items()})
    if isinstance(value, tuple | list):
        return PropertyValue([wrapped(item) for item in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    return PropertyValue(value)


def wrapped_map(values: Mapping[str, Any]) -> dict[str, PropertyValue]:
    """Every property, wrapped."""
    return {name: wrapped(value) for name, value in values.items()}
