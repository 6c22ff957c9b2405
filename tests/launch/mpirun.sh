#!/usr/bin/env bash
# mpirun as a starter: rank 0 is the center.
. "$(dirname "$0")/common.bash"
trap 'rm -rf "$dir"' EXIT
need mpirun
mpirun --version 2>&1 | grep -q 'Open MPI' || skip "mpirun is not Open MPI's"
MPIRUN_FLAGS="--oversubscribe --quiet"
[ "$(id -u)" -ne 0 ] || MPIRUN_FLAGS+=" --allow-run-as-root"
export MPIRUN_FLAGS
timeout 100 "$launch/mpirun.sh" 3 none --steps 500 >"$dir/out" 2>&1 ||
    fail "exit code $?"
expect 1 '^center: steps: '
expect 2 '^worker [01]: steps: '
echo "ok: $(grep '^center' "$dir/out")"
