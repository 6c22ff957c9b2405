#!/usr/bin/env bash
# check_style.sh - formatting, words and paths that do not belong in the tree,
# and public headers that stand alone.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
fail() {
    echo "style: $*" >&2
    failed=1
}

folders=(include src tests examples bench fuzz cli)
mapfile -t sources < <(find "${folders[@]}" \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cc' \) 2>/dev/null | sort)

# Other versions of clang-format break lines at other places.
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    for source in "${sources[@]}"; do
        clang-format --dry-run -Werror "$source" 2>/dev/null ||
            fail "run clang-format -i $source"
    done
else
    echo "style: clang-format 14 is not installed; formatting not checked"
fi

if grep -nE '^// ?-+ *$' "${sources[@]}"; then
    fail "section rulers over two lines above"
fi

# Text files of the project, the license and this script aside.
mapfile -t texts < <(find . \( -path ./.git -o -path ./build \) -prune -o \
    -type f ! -name LICENSE ! -path ./tools/check_style.sh \
    ! -path './tests/data/*' ! -path './fuzz/corpus/*' -print | sort)
if grep -nIE '\b(TODO|FIXME|XXX)\b' "${texts[@]}"; then
    fail "unfinished work is marked above"
fi
# /usr/bin/env and the default interpreter and prefix are part of the system.
if grep -nIE '(^|[^[:alnum:]_.}*-])/(home|root|work|tmp|mnt|Users)/' \
    "${texts[@]}"; then
    fail "absolute paths of one machine above"
fi

cxx=$(command -v g++ || command -v clang++ || true)
[ -n "$cxx" ] || echo "style: no C++ compiler; headers checked as C only"
for header in include/hooke/*.h; do
    gcc -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only \
        -x c "$header" || fail "$header does not stand alone as C11"
    [ -z "$cxx" ] || "$cxx" -std=c++11 -Wall -Wextra -Werror -Iinclude \
        -fsyntax-only -x c++ "$header" ||
        fail "$header does not stand alone as C++"
done
[ "$failed" -eq 0 ] || exit 1
echo "style: ${#sources[@]} sources, ${#texts[@]} files checked"
