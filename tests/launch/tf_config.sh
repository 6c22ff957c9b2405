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
# Centers know of workers that have not come, and of no evaluator: it is first.
run "$cluster" evaluator 0
run "$cluster" chief 0
run "$sparse" worker 0
for pid in "${pids[@]}"; do
    wait "$pid" || fail "a task ended with $?"
done
expect 2 '^center: steps: '
expect 2 '^worker [01]: steps: '
expect 1 'final$'
echo "ok: $(grep final "$dir/out")"
