#!/usr/bin/env bash
# Plain processes: all end by themselves, the final state is evaluated.
. "$(dirname "$0")/common.bash"
trap 'rm -rf "$dir"' EXIT
timeout 100 "$launch/local.sh" none 3 --steps 10000 >"$dir/out" 2>&1 ||
    fail "exit code $?"
expect 1 '^center: steps: [0-9]+ of 10000; [0-9]+ steps, '
expect 3 '^worker [0-2]: steps: '
expect 1 '^evaluator: step [0-9]+: .* final$'
echo "ok: $(grep final "$dir/out")"
