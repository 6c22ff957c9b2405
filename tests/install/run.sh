#!/usr/bin/env bash
# run.sh BUILD_DIR COMPILER - installs to a temporary prefix and looks at what a
# user gets: the program with its pages, completions and experiments; a small
# program built through pkg-config, shared and static, and through the CMake
# package; a model of one's own compiled by the installed program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 cc=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
cmake --install "$build" --prefix "$prefix" >/dev/null

fail() {
    echo "install: $*" >&2
    exit 1
}

# ---- the library ------------------------------------------------------------

pc=$(dirname "$(find "$prefix" -name hooke.pc)")
libdir=$(dirname "$pc")
export PKG_CONFIG_PATH=$pc
engine=$libdir/libhooke_engine.so best=onednn
[ -e "$engine" ] || engine= best=reference # built without it
# run FILE COMMAND... - the command prints the version and that its engine is in
# FILE.
run() {
    local file=$1 got
    shift
    got=$("$@")
    [ "$got" = "hooke $(pkg-config --modversion hooke)
$best $file" ] || fail "$* printed \"$got\""
}

"$cc" "$here/app.c" -o "$work/shared" $(pkg-config --cflags --libs hooke)
run "$engine" env LD_LIBRARY_PATH="$libdir" "$work/shared"

# Whoever computes nothing loads no engine; one that is gone is a sentence.
if [ -n "$engine" ]; then
    ! ldd "$libdir/libhooke.so" | grep -E 'gomp|dnnl|libhooke_' ||
        fail "libhooke.so needs more than it should"
    mv "$engine" "$engine.gone"
    ! LD_LIBRARY_PATH=$libdir "$work/shared" 2>"$work/said" >/dev/null ||
        fail "an engine came from elsewhere"
    grep -q "^backend onednn: cannot be loaded (looked in $libdir): " \
        "$work/said" || fail "without an engine: $(cat "$work/said")"
    mv "$engine.gone" "$engine"
fi

# The archive by name; the rest of Libs.private comes from pkg-config.
flags=$(pkg-config --static --cflags --libs hooke)
"$cc" "$here/app.c" -o "$work/static" ${flags/-lhooke/-l:libhooke.a}
run "" "$work/static"

cmake -S "$here" -B "$work/project" -DCMAKE_C_COMPILER="$cc" \
      -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/project" >/dev/null
run "$engine" "$work/project/app"
run "" "$work/project/app_static"

# ---- the program ------------------------------------------------------------

hooke=$prefix/bin/hooke
[ -x "$hooke" ] || exit 0 # built without it
share=$prefix/share

# All of Hooke is in it: 8 MB at most, system libraries aside.
strip -o "$work/stripped" "$hooke"
size=$(stat -c %s "$work/stripped")
[ "$size" -le 8000000 ] || fail "the stripped program has $size bytes"
if ldd "$hooke" | grep -q libhooke; then
    fail "the program needs libhooke"
fi

for line in onednn images metrics tls cpu features compiler; do
    "$hooke" version | grep -q "^$line " || fail "version says nothing of $line"
done

# Every command and the file format have a page; pages and completions parse.
for file in bash-completion/completions/hooke zsh/site-functions/_hooke \
            fish/vendor_completions.d/hooke.fish; do
    [ -s "$share/$file" ] || fail "$file is not there"
done
bash -n "$share/bash-completion/completions/hooke"
if command -v scdoc >/dev/null; then
    pages="man1/hooke.1 man5/hooke.conf.5"
    for command in $("$hooke" help --format names); do
        pages="$pages man1/hooke-$command.1"
    done
    for page in $pages; do
        [ -s "$share/man/$page" ] || fail "$page is not there"
        ! command -v man >/dev/null ||
            man --warnings -l "$share/man/$page" 2>&1 >/dev/null |
            { ! grep .; } || fail "$page has warnings"
    done
fi

# Experiments are found by name from anywhere, headers by the compiler.
cd "$work"
for experiment in "$share"/hooke/experiments/*.yaml; do
    name=$(basename "$experiment" .yaml)
    # Those with data of their own stop at the first file that is missing.
    got=$("$hooke" train "$name" --steps 1 --set data.eval.count=10 -q \
                   -d "runs/$name" 2>&1) || grep -q "data-dir" <<<"$got" ||
        fail "$name: $got"
done
cp "$share/hooke/experiments/my_model.c" own.c
CC=$cc "$hooke" train own.c --steps 2 --set data.eval.count=10 -q >/dev/null ||
    fail "own.c cannot be trained"
[ -s runs/own/model.ckpt-2.safetensors ] || fail "own.c left no checkpoint"
