#!/usr/bin/env bash
# run.sh PROGRAM - checks both directions with other programs' own code.
#
# PROGRAM is the built tests/interop/interop.c. The other programs are in
# build/python/interop, installed from PyPI by the first run (scripts/python-env).
# Where they cannot be installed, the checks are skipped: exit code 77.
set -euo pipefail
cd "$(dirname "$0")/../.."
program=$PWD/$1
if ! scripts/python-env interop; then
    echo "interop: PyPI cannot be reached, or has not got the packages"
    echo "interop: 0 passed, 0 failed," \
        "$(grep -c '^@check' tests/interop/check.py) skipped"
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES='' PYTHONDONTWRITEBYTECODE=1 \
    build/python/interop/bin/python tests/interop/check.py "$program" "$work"
