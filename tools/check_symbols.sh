#!/usr/bin/env bash
# check_symbols.sh LIBRARY - the shared library exports what the public headers
# declare and hk_ names only, has a SONAME and needs no OpenMP; plug-ins beside it export their one name.
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
declared=$(sed 's://.*::' "$(dirname "$0")"/../include/hooke/*.h | tr '\n' ' ' |
    grep -oP 'HK_API[^;(]*?\bhk_\w+(?=\s*\()' | grep -oP 'hk_\w+$' | sort -u)
missing=$(comm -23 <(echo "$declared") <(sort -u <<<"$exported"))
if [ -n "$missing" ]; then
    echo "symbols: $lib does not export what headers declare:" $missing >&2
    exit 1
fi
headers=$(objdump -p "$lib")
if ! grep -q 'SONAME *libhooke\.so\.[0-9]' <<<"$headers"; then
    echo "symbols: $lib has no versioned SONAME" >&2
    exit 1
fi
if grep -E 'NEEDED *lib(gomp|omp|iomp5|dnnl)\.' <<<"$headers" >&2; then
    echo "symbols: $lib needs what only its engine should" >&2
    exit 1
fi
for plugin in "$(dirname "$lib")"/libhooke_*.so; do
    [ -e "$plugin" ] || continue
    if [ "$(nm -D --defined-only "$plugin" | awk '{print $NF}')" != \
         hki_plugin_entry ]; then
        echo "symbols: $plugin exports more than hki_plugin_entry" >&2
        exit 1
    fi
done
echo "symbols: $(wc -l <<<"$exported") exported, all hk_"
