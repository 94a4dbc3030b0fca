# shellcheck shell=bash
# Sourced by the scripts that need root: runs the calling script again through sudo, saying so first.
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "$0 needs root (Docker, mounts, cgroups) and sudo is not installed" >&2
    echo "  to do: run it as root" >&2
    exit 1
  fi
  echo "$0 needs root (Docker, mounts, cgroups): continuing with sudo" >&2
  exec sudo -E -H "$0" "$@"
fi
