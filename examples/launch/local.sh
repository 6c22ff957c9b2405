#!/usr/bin/env bash
# local.sh EXPERIMENT [WORKERS] [FLAGS...] - a center, workers and an evaluator
# as plain processes of this machine, tied by a unix socket.
#
# HOOKE names the program (default: hooke). FLAGS go to every process. Ends
# with the first exit code that is not 0.
set -euo pipefail
experiment=${1:?usage: local.sh EXPERIMENT [WORKERS] [FLAGS...]}
workers=${2:-2}
shift $(($# < 2 ? $# : 2))
hooke=${HOOKE:-hooke}
dir=$(mktemp -d "${TMPDIR:-/tmp}/hooke-local-XXXXXX")
address=unix:$dir/center.sock
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT

"$hooke" center "$experiment" --listen "$address" \
    --center-file "$dir/center" --workers "$workers" "$@" &
pids+=($!)
for ((i = 0; i < workers; i++)); do
    "$hooke" worker "$experiment" --center "$address" --index "$i" \
        --workers "$workers" "$@" &
    pids+=($!)
done
"$hooke" evaluator "$experiment" --center "$address" "$@" &
pids+=($!)

rc=0
for pid in "${pids[@]}"; do
    wait "$pid" || rc=$((rc == 0 ? $? : rc))
done
exit "$rc"
