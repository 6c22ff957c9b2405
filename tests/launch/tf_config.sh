#!/usr/bin/env bash
# The same TF_CONFIG that a cluster of TensorFlow had: two centers, a chief, a
# worker and an evaluator, one of them sparse.
. "$(dirname "$0")/common.bash"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
ports=($(python3 "$here/../free_port.py" 2))
ps="\"localhost:${ports[0]}\", \"localhost:${ports[1]}\""
cluster="{\"chief\": [\"localhost:0\"], \"worker\": [\"localhost:0\"],
          \"ps\": [$ps]}"
sparse="{\"chief\": [\"localhost:0\"], \"worker\": {\"0\": \"localhost:0\"},
         \"ps\": [$ps]}"
run() { # CLUSTER TYPE INDEX
    TF_CONFIG="{\"cluster\": $1, \"environment\": \"cloud\",
                \"task\": {\"type\": \"$2\", \"index\": \"$3\"}}" \
        timeout 100 "$program" --steps 500 >>"$dir/out" 2>&1 &
    pids+=($!)
}
pids=()
run "$cluster" ps 0
run "$cluster" ps 1
# Centers know of workers that have not come, and of no evaluator: it is first,
# and the others begin once it has a connection.
run "$cluster" evaluator 0
connects() { # PID of its timeout
    local child
    child=$(cat "/proc/$1/task/$1/children") && [ -n "$child" ] &&
        ls -l "/proc/${child% }/fd" | grep -q socket
} 2>/dev/null
end=$((SECONDS + 60))
until connects "${pids[2]}"; do
    [ "$SECONDS" -lt "$end" ] || fail "the evaluator opens no connection"
    read -rt 0.05 <> <(:) || true
done
run "$cluster" chief 0
run "$sparse" worker 0
for pid in "${pids[@]}"; do
    wait "$pid" || fail "a task ended with $?"
done
expect 2 '^center: steps: '
expect 2 '^worker [01]: steps: '
expect 1 'final$'
echo "ok: $(grep final "$dir/out")"
