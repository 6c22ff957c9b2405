#!/usr/bin/env bash
# check_symbols.sh LIBRARY - the shared library exports hk_ names only, and
# has a SONAME.
set -euo pipefail
lib=$1
exported=$(nm -D --defined-only "$lib" | awk '{print $NF}')
foreign=$(grep -v '^hk_' <<<"$exported" || true)
if [ -n "$foreign" ]; then
    echo "symbols: $lib exports names without hk_:" $foreign >&2
    exit 1
fi
if [ -z "$exported" ]; then
    echo "symbols: $lib exports nothing" >&2
    exit 1
fi
headers=$(objdump -p "$lib")
if ! grep -q 'SONAME *libhooke\.so\.[0-9]' <<<"$headers"; then
    echo "symbols: $lib has no versioned SONAME" >&2
    exit 1
fi
echo "symbols: $(wc -l <<<"$exported") exported, all hk_"
