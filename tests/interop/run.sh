#!/usr/bin/env bash
# run.sh PROGRAM - checks both directions with other programs' own code.
#
# PROGRAM is the built tests/interop/interop.c. The others live in a virtual
# environment in build/interop-venv, made from PyPI at the first run. Where
# that cannot be done the checks are skipped, and said to be: exit code 77.
#
# INTEROP_PYTHON: a Python that the packages exist for (default python3.11,
# then python3).
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$PWD/$1
venv=build/interop-venv
packages=("tensorflow-cpu==2.15.*" tensorboard safetensors "numpy<2")

skip() {
    count=$(grep -c '^@check' tests/interop/check.py)
    echo "interop: $1"
    echo "interop: 0 passed, 0 failed, $count skipped"
    exit 77
}

if ! "$venv/bin/python" -c 'import tensorflow, tensorboard, safetensors' \
        2>/dev/null; then
    python=${INTEROP_PYTHON:-$(command -v python3.11 || command -v python3 ||
                               true)}
    [ -n "$python" ] || skip "no Python here"
    echo "interop: making $venv (some 1.5 GB from PyPI)"
    mkdir -p build
    "$python" -m venv "$venv" || skip "$python cannot make $venv"
    "$venv/bin/pip" install --quiet --retries 1 "${packages[@]}" ||
        skip "PyPI cannot be reached, or has not got the packages"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES='' PYTHONDONTWRITEBYTECODE=1 \
    "$venv/bin/python" tests/interop/check.py "$program" "$work"
