#!/usr/bin/env bash
# run_fuzz.sh DIR SECONDS - runs every fuzz target in DIR for that long.
#
# Seeds are read from fuzz/corpus/<target>; what the run finds stays in DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1 seconds=$2
count=0
for target in "$dir"/fuzz_*; do
    [ -x "$target" ] && [ -f "$target" ] || continue
    name=$(basename "$target")
    mkdir -p "$dir/corpus/$name"
    seeds=()
    [ -d "fuzz/corpus/$name" ] && seeds=("fuzz/corpus/$name")
    echo "fuzz: $name for $seconds s"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 \
        -verbosity=0 -print_final_stats=1 -close_fd_mask=3 \
        -artifact_prefix="$dir/$name-" \
        "$dir/corpus/$name" "${seeds[@]}"
    count=$((count + 1))
done
echo "fuzz: $count targets passed"
