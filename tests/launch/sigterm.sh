#!/usr/bin/env bash
# A worker that gets SIGTERM hands in its last difference and ends with 143;
# the others go on to the end.
. "$(dirname "$0")/common.bash"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
address=unix:$dir/sock
"$program" center --listen "$address" --steps 100000 --seconds 8 \
    >>"$dir/out" 2>&1 &
center=$!
"$program" worker --center "$address" --index 0 --workers 2 >>"$dir/out" 2>&1 &
first=$!
"$program" worker --center "$address" --index 1 --workers 2 \
    --metrics 127.0.0.1:0 --verbose >"$dir/second" 2>&1 &
second=$!
# It has trained once its first report is there.
for _ in $(seq 200); do
    ! grep -q 'step' "$dir/second" || break
    sleep 0.1
done
kill -TERM "$second"
rc=0
wait "$second" || rc=$?
cat "$dir/second" >>"$dir/out"
[ "$rc" -eq 143 ] || fail "a stopped worker ended with $rc, not 143"
expect 1 '^worker 1: stopped: this worker; [1-9][0-9]* own steps'
wait "$first" || fail "the other worker ended with $?"
wait "$center" || fail "the center ended with $?"
expect 1 '^worker 0: time: '
expect 1 '^center: time: '
echo "ok: 143 after SIGTERM, the others ended by themselves"
