"""Readers of the lists that open the outside: domains, CIDRs, entities, and extra ports of domains.

Shared by the Compose extension, values files and the isolation settings, which differ only in the
code for a list of the wrong type. Owns R14-R22; what the grants mean together is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from network.cidrs import CidrError, Protected, excepted, inside, mapped, parse
from network.domains import DomainError, canonical, protected_name
from network.model import Port
from network.nodes import Walker, join_path, kind_of, nearest
from network.problems import Place, shown
from network.spec import Cidr, Domain, Entity, ExtraPort
from network.yamlread import Map, Node, Scalar, Seq

PROTOCOLS = ("TCP", "UDP", "SCTP", "ANY")
IDENTITY_PORTS = (80, 443)
"""Ports on which an allowed domain is checked by name (Host, SNI) and not only by address."""
INFRA_ENTITIES = (
    "all",
    "cluster",
    "host",
    "remote-node",
    "kube-apiserver",
    "ingress",
    "health",
    "init",
    "unmanaged",
)


def read_domains(walker: Walker, node: Node, path: str, type_code: str) -> list[Domain]:
    """Allowed names, each valid and outside the cluster's own zones (R14, R15)."""
    found: list[Domain] = []
    for text, place in walker.strings(node, path, type_code):
        try:
            name = canonical(text)
        except DomainError as error:
            walker.report.reject("R14", place, f"{shown(text)} is no host name: {error}", error.fix)
            continue
        protected = protected_name(name)
        if protected is not None:
            walker.report.reject(
                "R15",
                place,
                f"{name} covers {protected}, a name of the cluster or of a metadata service",
                "name an outside host; cluster and metadata names cannot be allowed",
            )
            continue
        if all(known.name != name for known in found):
            found.append(Domain(name, place))
    return found


def read_cidrs(walker: Walker, node: Node, path: str, type_code: str, protected: Iterable[Protected]) -> list[Cidr]:
    """Allowed networks, none of them inside a protected range (R16, R17; W10 for one around such a range)."""
    ranges = tuple(protected)
    found: list[Cidr] = []
    for text, place in walker.strings(node, path, type_code):
        try:
            net = parse(text)
        except CidrError as error:
            walker.report.reject("R16", place, f"{shown(text)}: {error}", error.fix)
            continue
        held = inside(net, ranges)
        if held is not None:
            walker.report.reject(
                "R17",
                place,
                f"{net} lies in the protected range {held.net} ({held.name}), which stays closed for everyone",
                "name a network outside the protected ranges",
            )
            continue
        if (four := mapped(net)) is not None:
            message = f"{net} is an IPv4-mapped network, which no packet carries"
            walker.report.reject("R16", place, message, f"write {four}")
            continue
        except_list = excepted(net, ranges)
        if except_list:
            walker.report.warn(
                "W10",
                place,
                f"{net} contains protected ranges that stay closed: {', '.join(map(str, except_list))}",
                "narrow the network to what the engagement needs",
            )
        if all(known.net != net for known in found):
            found.append(Cidr(net, place))
    return found


def read_entities(walker: Walker, node: Node, path: str, type_code: str) -> list[Entity]:
    """Allowed entities; only `world` is ever accepted (R18, R19)."""
    found: list[Entity] = []
    for text, place in walker.strings(node, path, type_code):
        if text == "world":
            found.append(Entity(text, place))
        elif text in INFRA_ENTITIES:
            walker.report.reject(
                "R19",
                place,
                f"entity {text} reaches the cluster's infrastructure or other sandboxes",
                "use `world` for the internet, or allowDomains / allowCIDR for named targets",
            )
        else:
            hint = nearest(text.lower(), ("world", *INFRA_ENTITIES))
            walker.report.reject(
                "R18",
                place,
                f"{shown(text)} is no entity{hint}; names are lower case",
                f"the only entity accepted is `world` (known: world, {', '.join(INFRA_ENTITIES)})",
            )
    return found


def read_extra_ports(walker: Walker, node: Node, path: str, domains: list[Domain]) -> list[ExtraPort]:
    """Entries of allowDomainsPorts: `{port, protocol (default ANY), domain?}` (R20-R22, R41, R42)."""
    if not isinstance(node, Seq):
        walker.report.reject(
            "R41",
            walker.place(path, node.line),
            f"needs a list, found {kind_of(node)}",
            "write `- port: 22` entries",
        )
        return []
    names = {domain.name for domain in domains}
    found: list[ExtraPort] = []
    for index, item in enumerate(walker.limited(node.items, path, node.line)):
        item_path = f"{path}[{index}]"
        entry = walker.mapping(item, item_path, "R41")
        if entry is None:
            continue
        place = walker.place(item_path, item.line)
        unknown_keys(walker, entry, item_path, ("port", "protocol", "domain"))
        port = read_port(walker, entry, item_path, default="ANY")
        domain = _port_domain(walker, entry, item_path, names, place)
        if port is None:
            continue
        if port.port in IDENTITY_PORTS and port.protocol in ("TCP", "ANY"):
            walker.report.reject(
                "R20",
                place,
                f"{port.protocol} {port.port} would switch off the check of the requested name",
                f"{port.port}/TCP is open to allowed domains already; use `protocol: UDP` for QUIC, or another port",
            )
            continue
        if port.protocol == "SCTP":
            walker.report.warn("W19", place, "SCTP passes only where the cluster has SCTP support enabled")
        found.append(ExtraPort(port.port, port.protocol, domain, place))
    return found


def _port_domain(walker: Walker, entry: Map, path: str, names: set[str], place: Place) -> str | None:
    if not names:
        walker.report.reject(
            "R21", place, "an extra port without any allowed domain opens nothing", "add the domain to allowDomains"
        )
    node = entry.items.get("domain")
    if node is None:
        return None
    text = walker.text(node, join_path(path, "domain"), "R41", "name one entry of allowDomains")
    if text is None:
        return None
    try:
        name = canonical(text)
    except DomainError as error:
        walker.report.reject("R14", place, f"{shown(text)} is no host name: {error}", error.fix)
        return None
    if names and name not in names:
        walker.report.reject(
            "R21", place, f"{name} is not in allowDomains", f"add {name} to allowDomains, or drop the entry"
        )
    return name


def read_port(walker: Walker, entry: Map, path: str, default: str) -> Port | None:
    """`{port, protocol}` of a mapping; R41 without a port, R22 for values out of range."""
    node = entry.items.get("port")
    if node is None:
        walker.report.reject("R41", walker.place(path, entry.line), "has no `port`", "add `port: NUMBER`")
        return None
    number = node.value if isinstance(node, Scalar) else None
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= 65535:
        walker.report.reject(
            "R22",
            walker.place(join_path(path, "port"), node.line),
            f"port is {kind_of(node)}",
            "give a number from 1 to 65535",
        )
        return None
    protocol = default
    if "protocol" in entry.items:
        written = entry.items["protocol"]
        protocol = str(written.value) if isinstance(written, Scalar) else ""
        if protocol not in PROTOCOLS:
            walker.report.reject(
                "R22",
                walker.place(join_path(path, "protocol"), written.line),
                f"protocol is {kind_of(written)}",
                f"give one of {', '.join(PROTOCOLS)}, in capitals",
            )
            return None
    return Port(number, protocol)


def unknown_keys(walker: Walker, entry: Map, path: str, known: tuple[str, ...], code: str = "R42") -> None:
    """Reject every key that is not known, naming the nearest known one."""
    for key in entry.items:
        if key not in known:
            walker.report.reject(
                code,
                walker.place(join_path(path, key), entry.lines[key]),
                f"unknown key {shown(key)}{walker.hint(key, known)}",
                f"known keys: {', '.join(known)}",
            )
