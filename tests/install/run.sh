#!/usr/bin/env bash
# run.sh BUILD_DIR COMPILER - installs to a temporary prefix, then builds and
# runs a small program against it: through pkg-config, shared and static, and
# through the CMake package.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >/dev/null

pc=$(dirname "$(find "$prefix" -name hooke.pc)")
libdir=$(dirname "$pc")
export PKG_CONFIG_PATH=$pc
run() {
    local got
    got=$("$@")
    if [ "$got" != "hooke $(pkg-config --modversion hooke)" ]; then
        echo "install: $1 printed \"$got\"" >&2
        exit 1
    fi
}

"$cc" "$here/app.c" -o "$work/shared" $(pkg-config --cflags --libs hooke)
run env LD_LIBRARY_PATH="$libdir" "$work/shared"

# The archive by name; the rest of Libs.private comes from pkg-config.
flags=$(pkg-config --static --cflags --libs hooke)
"$cc" "$here/app.c" -o "$work/static" ${flags/-lhooke/-l:libhooke.a}
run "$work/static"

cmake -S "$here" -B "$work/project" -DCMAKE_C_COMPILER="$cc" \
      -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/project" >/dev/null
run "$work/project/app"
run "$work/project/app_static"
