#!/usr/bin/env bash
# check_tidy.sh - clang-tidy over the library, the program and the examples.
#
#   tools/check_tidy.sh          what is quick: no analyzer (a minute)
#   tools/check_tidy.sh --all    all of .clang-tidy (many minutes)
#   tools/check_tidy.sh [--all] FILE...  these files only
#
# BUILD is the folder whose compile_commands.json is used (build/release), JOBS
# how many files are looked at side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/release}
jobs=${JOBS:-$(nproc)}
checks=-clang-analyzer-*
files_each=6
if [ "${1:-}" = --all ]; then
    checks=
    files_each=1
    shift
fi

# Other versions have other checks.
if ! clang-tidy --version 2>/dev/null | grep -q 'version 14\.'; then
    echo "tidy: clang-tidy 14 is not installed; not checked"
    exit 0
fi
files=("$@")
[ $# -gt 0 ] ||
    mapfile -t files < <(find src cli examples -name '*.c' | sort)
# Every file has to be in the build: clang-tidy guesses the flags of others. A
# file that is compiled several times (levels of kernels, plug-ins) is looked at
# as often, in a process of its own each time: the analyzer mistakes va_list in
# the second file of a process.
mkdir -p "$build/tidy"
list=$(python3 - "$build" "${files[@]}" <<'END'
import collections, json, os, sys
build, *files = sys.argv[1:]
found = collections.defaultdict(list)
with open(f"{build}/compile_commands.json") as f:
    for entry in json.load(f):
        found[os.path.relpath(entry["file"])].append(entry)
for turn in range(max(len(found[f]) for f in files)):
    some = [f for f in files if turn < len(found[f])]
    os.makedirs(f"{build}/tidy/{turn}", exist_ok=True)
    with open(f"{build}/tidy/{turn}/compile_commands.json", "w") as f:
        json.dump([found[name][turn] for name in some], f)
    print(*(f"{turn} {name}" for name in some), sep="\n")
END
)
look() { # TURN FILE...
    clang-tidy -p "$build/tidy/$1" --quiet --warnings-as-errors='*' \
        --checks="$checks" "${@:2}" 2>/dev/null
}
export -f look
export build checks
failed=0
for turn in $(cut -d' ' -f1 <<<"$list" | sort -un); do
    sed -n "s/^$turn //p" <<<"$list" |
        xargs -P "$jobs" -n "$files_each" bash -c "look $turn \"\$@\"" look ||
        failed=1
done
[ "$failed" -eq 0 ] || { echo "tidy: see above" >&2; exit 1; }
echo "tidy: ${#files[@]} files checked${checks:+, without the analyzer}"
