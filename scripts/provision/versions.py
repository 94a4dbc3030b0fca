"""The versions setup installs, in one place.

The builds from modules are locked, with hashes, by `tools/modules/*/go.sum`; the numbers here name the cache
directories and what the binaries say of themselves.
"""

GVISOR_RELEASE = "20260905"
PULUMI = "3.274.1"
MOBY = "2.0.0-beta.24"
CONTAINERD = "2.4.2"
RUNC = "1.5.3"

MINIMUM_GO = (1, 24)
"""Modules with a `tool` line need it; a newer toolchain that a module asks for is fetched by Go itself."""
MINIMUM_PYTHON = (3, 11)
MINIMUM_DOCKER_API = (1, 40)
