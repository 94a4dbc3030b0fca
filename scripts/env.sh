# shellcheck shell=sh
# Sourced by Makefile targets and scripts: puts the tools that setup installed on PATH. Expects to be sourced from
# the repository's root, or with GAUNTLET_REPOSITORY set.
GAUNTLET_REPOSITORY=${GAUNTLET_REPOSITORY:-$(pwd)}
GAUNTLET_CACHE_DIR=${GAUNTLET_CACHE_DIR:-$HOME/.cache/gauntlet}
GAUNTLET_STATE_DIR=${GAUNTLET_STATE_DIR:-$HOME/.local/state/gauntlet}
PATH=$GAUNTLET_REPOSITORY/.venv/bin:$GAUNTLET_CACHE_DIR/bin:$PATH:/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin
export GAUNTLET_REPOSITORY GAUNTLET_CACHE_DIR GAUNTLET_STATE_DIR PATH
