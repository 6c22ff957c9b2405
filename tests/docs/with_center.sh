#!/usr/bin/env bash
# with_center.sh PORT COMMAND... - runs a command while a center serves its
# metrics at that port.
set -euo pipefail
port=$1
shift
hooke center --listen unix:metrics.sock --metrics "127.0.0.1:$port" \
    2>center.err &
center=$!
trap 'kill "$center"; wait "$center" || true' EXIT
for _ in $(seq 200); do
    ! grep -q 'metrics at' center.err || break
    sleep 0.05
done
"$@"
