#!/usr/bin/env bash
# build.sh PYTHON - makes the source distribution, the wheel out of that, and
# out of it one that runs elsewhere: build/wheel/dist. PYTHON has what
# requirements.txt names.
#
# libgomp stays outside: under another name it would be a second runtime beside
# PyTorch's. The engine takes the one that is loaded, or the system's.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$PWD/$1
out=$PWD/build/wheel
rm -rf "$out"
mkdir -p "$out/source"

# quiet COMMAND... - what it prints is for those who want to know why it failed.
quiet() {
    "$@" >"$out/log.txt" 2>&1 || { tail -40 "$out/log.txt" >&2; exit 1; }
}

quiet "$python" -m build --no-isolation --sdist --outdir "$out/dist" .
# Folders of fixed names, for the sake of caches of compilers.
tar -xzf "$out"/dist/*.tar.gz --strip-components=1 -C "$out/source"
quiet "$python" -m build --no-isolation --wheel --outdir "$out/made" \
    -Cbuild-dir="$out/cmake" "$out/source"
PATH=$(dirname "$python"):$PATH quiet "$python" -m auditwheel repair \
    --exclude libgomp.so.1 --wheel-dir "$out/dist" "$out"/made/*.whl
ls "$out"/dist/*
