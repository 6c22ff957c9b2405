#!/usr/bin/env bash
# run.sh HOOKE FOLDER - models.py with the Python of scripts/python-env; 77: it
# is not there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../../build/python/onnx/bin/python
[ -x "$python" ] || { echo "no $python; run scripts/python-env onnx"; exit 77; }
rm -rf "$2"
exec "$python" -B "$here/models.py" "$1" "$2"
