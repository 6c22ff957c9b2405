# common.bash - for the tests of launchers: PROGRAM is examples/cluster, which
# takes the place of hooke. 77 says that this machine has no such launcher.
set -euo pipefail
program=$(realpath "${1:?usage: TEST PROGRAM}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
launch=$(cd "$here/../../examples/launch" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/hooke-launch-XXXXXX")
export HOOKE=$program

skip() {
    echo "skipped: $*"
    exit 77
}

# need COMMAND... - skips unless all are there.
need() {
    local command
    for command; do
        command -v "$command" >/dev/null || skip "$command is not installed"
    done
}

fail() {
    echo "failed: $*" >&2
    [ ! -f "$dir/out" ] || cat "$dir/out" >&2
    exit 1
}

# expect COUNT PATTERN - so many lines of the output match.
expect() {
    local n
    n=$(grep -cE "$2" "$dir/out" || true)
    [ "$n" -eq "$1" ] || fail "$n lines match \"$2\", expected $1"
}
