#!/usr/bin/env bash
# A network partition: one worker is in a network namespace of its own, and its
# link goes down for longer than a membership lasts. The worker trains on, the
# center and the other worker do not notice, and when the link is up again all
# of them end together.
. "$(dirname "$0")/common.bash"
need ip
ns=hooke-part-$$
name=hp$$
cleanup() {
    kill $(jobs -p) 2>/dev/null || true
    ip netns del "$ns" 2>/dev/null || true # the link goes with it
    rm -rf "$dir"
}
trap cleanup EXIT
make_namespace() {
    ip netns add "$ns" &&
        ip link add "${name}a" type veth peer name "${name}b" &&
        ip link set "${name}b" netns "$ns" &&
        ip addr add 10.213.8.1/24 dev "${name}a" &&
        ip link set "${name}a" up &&
        ip -n "$ns" addr add 10.213.8.2/24 dev "${name}b" &&
        ip -n "$ns" link set "${name}b" up && ip -n "$ns" link set lo up
}
make_namespace >"$dir/namespace" 2>&1 ||
    skip "network namespaces are not permitted: $(tail -n 1 "$dir/namespace")"

# wait_for SECONDS FILE PATTERN
wait_for() {
    for _ in $(seq $(($1 * 5))); do
        ! grep -qE "$3" "$2" || return 0
        sleep 0.2
    done
    tail -n 30 "$2" >>"$dir/out"
    fail "\"$3\" is not in $(basename "$2") after $1 s"
}
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$dir/hex"
echo "hooke-key-1 test $(cat "$dir/hex")" >"$dir/key"
chmod 600 "$dir/key"
at=10.213.8.1:$(python3 "$here/../free_port.py")
"$program" center --listen "$at" --key "$dir/key" --steps 100000000 --seconds 50 --verbose \
    >"$dir/center" 2>&1 &
center=$!
"$program" worker --center "$at" --key "$dir/key" --index 0 --workers 2 \
    >"$dir/first" 2>&1 &
first=$!
ip netns exec "$ns" "$program" worker --center "$at" --key "$dir/key" \
    --index 1 --workers 2 --verbose >"$dir/second" 2>&1 &
second=$!
wait_for 30 "$dir/center" 'worker 1 joined'
wait_for 30 "$dir/center" 'worker 0 joined'
sleep 2
ip link set "${name}a" down
wait_for 40 "$dir/center" 'worker 1 .* gave no sign of life for'
wait_for 40 "$dir/second" 'lost the connection to shard 0'
# It trains on by itself, and comes back when the link does.
steps() { grep -c 'worker 1: step' "$dir/second"; }
alone=$(($(steps) + 5))
for _ in $(seq 200); do
    [ "$(steps)" -lt "$alone" ] || break
    sleep 0.2
done
[ "$(steps)" -ge "$alone" ] || fail "worker 1 does not train without the center"
! grep -q 'connected again after' "$dir/second" || fail "worker 1 was back without a link"
ip link set "${name}a" up
wait_for 30 "$dir/second" 'connected again after'
for pid in "$first" "$second" "$center"; do
    wait "$pid" || fail "a process ended with $?: $(tail -n 3 "$dir"/{center,first,second})"
done
cat "$dir"/{center,first,second} >"$dir/out"
expect 2 '^worker [01]: time: '
expect 1 '^center: time: '
echo "ok: $(grep -o 'connected again after.*' "$dir/second" | head -n 1)"
