"""The cluster file: forms, versions as text, and errors that name the key."""

from __future__ import annotations

import pytest

from network.cluster import ClusterError, read_cluster


def test_every_key_and_short_forms() -> None:
    cluster = read_cluster(
        """
        protected: {vpc: 10.0.0.0/20, nodes: [10.1.0.0/24], pods: [], services: [10.96.0.0/16]}
        runtime_classes: [gvisor, runc]
        default_runtime_class: CLUSTER_DEFAULT
        backend: cilium
        versions: {cilium: 1.20, kubernetes: v1.36.3}
        enforcement: always
        """,
        "c.yaml",
    )
    assert cluster.protected.vpc == ("10.0.0.0/20",)
    assert cluster.default_runtime_class is None and cluster.hardened_runtime == "gvisor"
    assert cluster.version("cilium") == (1, 20) and cluster.version("kubernetes") == (1, 36)
    assert cluster.version("gke") is None
    assert cluster.installed("kata") is False and cluster.installed("runc") is True
    assert cluster.enforcement.policy


def test_an_empty_mapping_knows_nothing() -> None:
    cluster = read_cluster("{}", "c.yaml")
    assert cluster.installed("gvisor") is None
    assert {item.name for item in cluster.protected_ranges()} == {"link-local and metadata", "cloud metadata"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[a]", "mapping"),
        ("backend: calico", "backend"),
        ("protected: {vpc: [10.0.0.1/8]}", "protected.vpc"),
        ("protected: {peers: []}", "protected.peers"),
        ("enforcement: maybe", "enforcement"),
        ("unknown: 1", "unknown"),
        ("a: 1\na: 2", "duplicate"),
    ],
)
def test_mistakes_name_the_key(text: str, named: str) -> None:
    with pytest.raises(ClusterError, match=named):
        read_cluster(text, "c.yaml")


@pytest.mark.parametrize("key", ["protected", "enforcement", "versions", "protected.vpc"])
def test_a_key_that_holds_nothing_is_told_in_plain_words(key: str) -> None:
    text = "protected: {vpc: }" if "." in key else f"{key}:\n"
    with pytest.raises(ClusterError, match=f"{key}: holds nothing; write a value, or leave the key out"):
        read_cluster(text, "cluster.yaml")
    unset = read_cluster("backend: null\ndefault_runtime_class: null\ncluster_name: null", "cluster.yaml")
    assert unset == read_cluster("{}", "cluster.yaml")
