#!/usr/bin/env bash
# run.sh HOOKE CAT - remote.py with the Python of scripts/python-env; 77: it, or
# nginx, is not there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../../build/python/remote/bin/python
PATH=$PATH:/usr/sbin
[ -x "$python" ] || { echo "no $python; run scripts/python-env remote"; exit 77; }
command -v nginx >/dev/null || { echo "no nginx"; exit 77; }
exec "$python" -B "$here/remote.py" "$@"
