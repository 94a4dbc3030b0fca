# shellcheck shell=sh
# Sourced by scripts/run and scripts/down: holds descriptor 9 locked, so that two of them take turns with the stack.
GAUNTLET_STATE_DIR=${GAUNTLET_STATE_DIR:-$HOME/.local/state/gauntlet}
(umask 077 && mkdir -p "$GAUNTLET_STATE_DIR")
exec 9>"$GAUNTLET_STATE_DIR/stack.lock"
if ! flock -n 9; then
  echo "another make run or make down is at work: waiting for it" >&2
  flock 9
fi
