#!/usr/bin/env bash
# wan.sh BUILD_FOLDER MNIST_FOLDER [STEPS] - MNIST over a link of 20 Mbit/s
# while one worker is killed every minute.
#
# Four workers behind one slow link (a network namespace with a token-bucket
# filter, or the test's proxy where the machine does not allow that), tau = 64,
# TLS, differences in 8 bits, the center's values in 16. Compared with the same
# training in one process, and its bytes with an exchange of gradients at every
# step (8 bytes a parameter). Prints a table; fails when the accuracy is more
# than 0.5 points lower or the bytes are more than 1/100.
set -euo pipefail
build=$(realpath "${1:?usage: wan.sh BUILD_FOLDER MNIST_FOLDER [STEPS]}")
mnist=$(realpath "${2:?usage: wan.sh BUILD_FOLDER MNIST_FOLDER [STEPS]}")
steps=${3:-120000}
program=$build/examples/cluster
workers=4
parameters=101770 # of the example's model
rate=20000000     # bit/s
dir=$(mktemp -d "${TMPDIR:-/tmp}/hooke-wan-XXXXXX")
ns=hooke-wan-$$
pids=()
cleanup() {
    [ "${#pids[@]}" -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    ip netns del "$ns" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT

# The link: `inside COMMAND &` runs at the workers' end of it, under the pid
# that the shell sees; $listen and $dial are the center's address on either
# side.
make_namespace() {
    ip netns add "$ns" &&
        ip link add "hk$$a" type veth peer name "hk$$b" &&
        ip link set "hk$$b" netns "$ns" &&
        ip addr add 10.213.7.1/24 dev "hk$$a" && ip link set "hk$$a" up &&
        ip -n "$ns" addr add 10.213.7.2/24 dev "hk$$b" &&
        ip -n "$ns" link set "hk$$b" up && ip -n "$ns" link set lo up &&
        tc qdisc add dev "hk$$a" root tbf rate "${rate}bit" burst 32kb \
            latency 200ms &&
        tc -n "$ns" qdisc add dev "hk$$b" root tbf rate "${rate}bit" \
            burst 32kb latency 200ms
}
if make_namespace >/dev/null 2>&1; then
    link="namespace with tc tbf"
    listen=10.213.7.1:2222 dial=$listen
    inside() { exec ip netns exec "$ns" "$@"; }
else
    link="proxy with a token bucket"
    port=$(python3 "$(dirname "$0")/../tests/free_port.py")
    "$build/tests/chaos" proxy "$port" $((rate / 8)) >"$dir/proxy" &
    pids+=($!)
    until [ -s "$dir/proxy" ]; do sleep 0.1; done
    listen=127.0.0.1:$port dial=127.0.0.1:$(cat "$dir/proxy")
    inside() { exec "$@"; }
fi
echo "link: $link, $((rate / 1000000)) Mbit/s each way, TLS"
"$build/hooke" keygen "$dir/key" --quiet

"$program" center --listen "$listen" --key "$dir/key" --steps "$steps" \
    --center-file "$dir/center" >"$dir/center.out" 2>"$dir/center.err" &
center=$!
pids+=("$center")
"$program" evaluator --center "$listen" --key "$dir/key" --mnist "$mnist" \
    --expect 0 \
    >"$dir/evaluator.out" 2>&1 &
evaluator=$!
pids+=("$evaluator")
worker_pid=()
start_worker() {
    inside "$program" worker --center "$dial" --key "$dir/key" --index "$1" \
        --workers "$workers" --mnist "$mnist" --tau 64 --int8 \
        >>"$dir/worker$1.out" 2>&1 &
    worker_pid[$1]=$!
    pids+=($!)
}
begin=$(date +%s)
for ((i = 0; i < workers; i++)); do start_worker "$i"; done
kills=0
next=$((begin + 60))
while kill -0 "$center" 2>/dev/null; do
    sleep 1
    if [ "$(date +%s)" -ge "$next" ] && kill -0 "$center" 2>/dev/null; then
        victim=$((kills % workers))
        kill -9 "${worker_pid[$victim]}" 2>/dev/null || true
        wait "${worker_pid[$victim]}" 2>/dev/null || true
        sleep 2
        start_worker "$victim"
        kills=$((kills + 1))
        next=$((next + 60))
    fi
done
wait "$center"
wait "$evaluator"
seconds=$(($(date +%s) - begin))

"$program" --workers "$workers" --steps "$steps" --tau 64 --mnist "$mnist" \
    --expect 0 >"$dir/local.out" 2>"$dir/local.err"

python3 - "$dir" "$parameters" "$kills" "$seconds" <<'END'
import re
import sys

folder, parameters, kills, seconds = sys.argv[1], *map(int, sys.argv[2:])


def final(name):
    text = open(f"{folder}/{name}").read()
    return float(re.findall(r": ([0-9.]+) %, final", text)[-1])


text = open(f"{folder}/center.out").read()
steps, exchanges, into, out = map(int, re.search(
    r"(\d+) steps, (\d+) exchanges, (\d+) bytes in, (\d+) out", text).groups())
full = steps * parameters * 8
wan, local = final("evaluator.out"), final("local.out")
share = (into + out) / full
print(f"  accuracy, one process          {local:.2f} %")
print(f"  accuracy, slow link and kills  {wan:.2f} %")
print(f"  workers killed                 {kills} in {seconds} s")
print(f"  steps, exchanges               {steps}, {exchanges}")
print(f"  bytes over the link            {(into + out) / 1e6:.1f} MB")
print(f"  gradients at every step        {full / 1e6:.1f} MB")
print(f"  share                          1/{1 / share:.0f}")
sys.exit(0 if wan >= local - 0.5 and share <= 0.01 else 1)
END
