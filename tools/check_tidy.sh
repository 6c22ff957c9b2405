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
    files_each=1 # the analyzer mistakes va_list in the second file of a process
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
# Every file has to be in the build: clang-tidy guesses the flags of others.
mapfile -t files < <(for file in "${files[@]}"; do
    ! grep -qF "/$file\"" "$build/compile_commands.json" || echo "$file"
done)
printf '%s\n' "${files[@]}" |
    xargs -P "$jobs" -n "$files_each" clang-tidy -p "$build" --quiet \
          --warnings-as-errors='*' --checks="$checks" 2>/dev/null ||
    { echo "tidy: see above" >&2; exit 1; }
echo "tidy: ${#files[@]} files checked${checks:+, without the analyzer}"
