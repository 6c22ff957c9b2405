#!/usr/bin/env bash
# torchrun's variables, set by hand: the center is a thread of rank 0.
. "$(dirname "$0")/common.bash"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
port=$(python3 "$here/../free_port.py")
pids=()
for rank in 0 1 2; do
    RANK=$rank WORLD_SIZE=3 GROUP_RANK=0 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 \
        MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 HOOKE_PS_PORT=$port \
        timeout 100 "$program" train none --steps 500 >>"$dir/out" 2>&1 &
    pids+=($!)
done
for pid in "${pids[@]}"; do
    wait "$pid" || fail "a rank ended with $?"
done
expect 3 '^worker [0-2]: steps: '
echo "ok: $(grep -c '^worker' "$dir/out") workers"
