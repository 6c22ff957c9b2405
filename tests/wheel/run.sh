#!/usr/bin/env bash
# run.sh DIST PYTHON... - installs the wheel in DIST into a fresh environment of
# each PYTHON and uses it as somebody who has neither a compiler nor this tree.
# PEER is an interpreter that has PyTorch, if there is one; PATCHELF the tool.
set -euo pipefail
tests=$(cd "$(dirname "$0")/../../bindings/python/tests" && pwd)
dist=$(cd "$1" && pwd)
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wheels=("$dist"/hooke_train-*-py3-none-manylinux_*.whl)
wheel=${wheels[0]}

fail() {
    echo "wheel: $*" >&2
    exit 1
}

[ ${#wheels[@]} = 1 ] && [ -e "$wheel" ] || fail "no wheel in $dist"
version=${wheel##*/hooke_train-}
version=${version%%-*}
cp "$tests/engine.py" "$work"
cd "$work"

for python in "$@"; do
    rm -rf venv runs junk
    "$python" -m venv venv
    venv/bin/pip install --quiet --disable-pip-version-check "$wheel"
    # Nothing but the environment on the path, and nothing set.
    clean() {
        env -i PATH="$work/venv/bin" HOME="$work" "$@"
    }
    package=$(clean python -c 'import hooke; print(hooke.__path__[0])')
    case $package in
    "$work"/venv/*) ;;
    *) fail "the package is in $package" ;;
    esac

    # The program, by both of its names, with the engine of the package.
    for command in hooke "python -m hooke"; do
        said=$(clean $command version)
        [ "${said%%$'\n'*}" = "hooke $version" ] || fail "$command: $said"
        grep -q "^backends  *onednn .*, $package/lib/libhooke_engine.so$" \
            <<<"$said" || fail "$command names no engine: $said"
    done
    said=$(clean python -c 'import hooke; print(hooke.__version__)')
    [ "$said" = "$version" ] || fail "the package says $said"
    clean hooke train digits --steps 20 --set data.eval.count=50 -q -d runs/a >/dev/null
    [ -s runs/a/model.ckpt-20.safetensors ] || fail "nothing was trained"

    # Addresses are read with the libcurl of the package.
    said=$(clean hooke inspect https://127.0.0.1:1/x 2>&1) && fail "nobody was there, but: $said"
    grep -q "Failed to connect" <<<"$said" || fail "no libcurl: $said"

    # Exchanging needs no OpenMP, computing has one.
    said=$(clean python engine.py exchange)
    [ -z "$said" ] || fail "exchanging loaded $said"
    said=$(clean python engine.py exchange engine)
    [ "$(wc -l <<<"$said")" = 1 ] || fail "computing loaded $said"

    # A model of one's own is compiled with the package's headers.
    cp "$package/share/hooke/experiments/my_model.c" own.c
    env -i PATH="$work/venv/bin:$PATH" HOME="$work" hooke train own.c \
        --steps 2 --set data.eval.count=10 -q -d runs/own >/dev/null
    [ -s runs/own/model.ckpt-2.safetensors ] || fail "own.c was not trained"

    # Without libgomp, or with an engine that is gone, everything else works.
    mkdir -p junk
    echo "no library" >junk/libgomp.so.1
    LD_LIBRARY_PATH=$work/junk venv/bin/python engine.py exchange >/dev/null
    said=$(LD_LIBRARY_PATH=$work/junk venv/bin/hooke version)
    grep -q 'backend onednn: cannot be loaded .*libgomp.so.1' <<<"$said" ||
        fail "without libgomp: $said"
    mv "$package/lib/libhooke_engine.so" .
    clean python engine.py exchange >/dev/null
    said=$(clean hooke train digits --steps 1 -d runs/b 2>&1) &&
        fail "trained without an engine: $said"
    grep -q "backend onednn: cannot be loaded (looked in $package/lib): " \
        <<<"$said" || fail "without an engine: $said"
    mv libhooke_engine.so "$package/lib"
    echo "wheel: $("$python" --version): ${wheel##*/} works"
done

# Beside PyTorch, in both orders.
if [ -n "${PEER:-}" ] && "$PEER" -c 'import torch' 2>/dev/null; then
    "$PEER" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target site "$wheel"
    for order in "torch exchange engine" "exchange engine torch"; do
        said=$(PYTHONPATH=$work/site "$PEER" engine.py $order)
        [ "$(wc -l <<<"$said")" = 1 ] || fail "$order: $said"
    done
    echo "wheel: one OpenMP beside PyTorch" \
         "$("$PEER" -c 'import torch; print(torch.__version__)')"
else
    echo "wheel: no PyTorch at hand (make test-python installs one)"
fi

# A runtime of another name that the whole process sees, as older PyTorch has
# it: the engine's threads are its threads, no second pool comes up.
gomp=$(venv/bin/python engine.py engine)
cp "$gomp" libgomp-a34b3233.so.1
"$PATCHELF" --set-soname libgomp-a34b3233.so.1 libgomp-a34b3233.so.1
OPENBLAS_NUM_THREADS=1 venv/bin/python - <<'END' || fail "two pools of threads"
import ctypes, os
other = ctypes.CDLL("./libgomp-a34b3233.so.1", mode=ctypes.RTLD_GLOBAL)
other.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None),
                    None, 2, 0)
import engine
threads = os.listdir("/proc/self/task")
engine.engine()
assert os.listdir("/proc/self/task") == threads
END
