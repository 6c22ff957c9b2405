#!/usr/bin/env python3
"""Checks who includes whom.

A module may include its own headers and those of the modules listed for it:
their public header hooke/<module>.h and their internal one
<module>/<module>.h (base adds the few in SHARED).
Every other header is private to its folder and to the tests. A module with
rooms (folders) has an order among them, too. Programs that show the library to
users include public headers only.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".c", ".h", ".cu", ".cc")

# Modules that each module may know about, beside itself.
KNOWS = {
    "base": "",
    "fetch": "base",
    "codec": "fetch base",
    "tensor": "base",
    "backend": "tensor base",
    "graph": "backend tensor base",
    "nn": "graph tensor base",
    "optim": "backend tensor base",
    "center": "optim backend tensor codec base",
    "elastic": "center optim backend tensor base",
    "train": "elastic center optim nn graph tensor base",
    "transport": "base",
    "launch": "codec base",
    "monitor": "codec base",
    "cluster": "launch monitor elastic center transport ckpt codec tensor base",
    "onnx": "codec tensor base",
    "data": "onnx tensor codec fetch base",
    "ckpt": "tensor codec base",
    "event": "codec base",
    "estimator": "base codec tensor backend graph nn optim center elastic train "
    "transport launch monitor cluster data ckpt event onnx",
}
# Rooms of a module, rooms in rooms as well, and those beside their own that they
# may know; "." is the module's own folder. <module>/<module>.h is for all of them.
ROOMS = {
    "fetch": {"": "remote", "remote": ""},
    "backend": {"": "", "reference": ".", "onednn": ".", "packed": ".",
                "apart": ".", "cuda": ". cuda/conv cuda/vectors",
                "cuda/conv": ". cuda", "cuda/vectors": ". cuda", "plugin": "."},
    "graph": {"": "", "ops": ".", "ops/elements": ". ops", "ops/shapes": ". ops",
              "ops/rows": ". ops", "ops/layers": ". ops", "ops/losses": ". ops",
              "ops/values": ". ops"},
    "data": {
        "core": "",
        "transforms": "core",
        "sources": "core",
        "files": "core",
        "csv": "core files",
        "example": "core files",
        "features": "core",
        "images": "core",
    },
    "cluster": {
        "wire": "",
        "center": "wire",
        "remote": "wire",
        "roles": "center remote wire",
    },
    "ckpt": {
        "core": "",
        "safetensors": "core",
        "tf": "core",
        "npz": "core",
        "model_dir": "core",
    },
    "estimator": {
        "model": "",
        "workers": "model",
        "saved": "workers model",
        "onnx": "saved workers model",
        "run": "saved workers model",
        "eval": "run saved workers model",
        "hooks": "eval run saved workers model",
        "sweep": "run",
        "": "hooks eval run saved workers model",
    },
    "cli": {
        "core": "",
        "experiment": "core",
        "report": "experiment core",
        "run": "report experiment core",
        "commands": "report run experiment core",
    },
}
# Public headers that do not carry their module's name.
PUBLIC = {
    "status": "base",
    "context": "base",
    "ops": "graph",
    "session": "graph",
    "metrics": "nn",
    "divide": "data",
    "files": "data",
    "writers": "data",
    "digits": "data",
    "feature": "data",
    "columns": "data",
    "image": "data",
    "spec": "estimator",
    "run_config": "estimator",
    "export": "estimator",
    "train_and_evaluate": "estimator",
    "hooks": "estimator",
    "sweep": "estimator",
    "canned": "estimator",
    "center_server": "cluster",
    "ranges": "cluster",
    "roles": "cluster",
    "schedule": "optim",
    "gradproc": "optim",
    "average": "optim",
    "rates": "elastic",
}
# Internal headers that other modules may include beside <module>.h.
SHARED = {"center/shard.h", "center/center_sections.h", "backend/vector.h", "base/isa.h", "base/team.h", "base/io.h", "base/banned.h"}
USERS = ("examples", "cli", "bindings")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def includes(path):
    text = path.read_text(encoding="utf-8", errors="replace")
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield line, match.group(1), match.group(2)


def check_public_name(allowed, name):
    """None, or what is wrong with including hooke/<name>.h."""
    stem = pathlib.PurePath(name).stem
    owner = PUBLIC.get(stem, stem)
    if owner not in KNOWS:
        return f"no module owns {name}"
    if owner not in allowed:
        return f"{name} belongs to {owner}"
    return None


def room_of(module, rel):
    """The room of a file below src/ (or of cli/), None where there is none."""
    if rel == f"{module}/{module}.h":
        return None
    return "/".join(pathlib.PurePosixPath(rel).parts[1:-1])


def check_room(module, path, rel, base=ROOT / "src"):
    """None, or what is wrong with including <base>/<rel> inside its module."""
    here = room_of(module, path.relative_to(base).as_posix())
    there = room_of(module, rel)
    if here is None or there is None:
        return None
    if here == there or (there or ".") in ROOMS.get(module, {}).get(here, "").split():
        return None
    return f"{module}/{here} may not know {module}/{there} ({rel})"


def check_module_include(module, path, quote, name):
    allowed = {module, *KNOWS[module].split()}
    if name.startswith("hooke/"):
        return check_public_name(allowed, name)
    if name.startswith("dnnl") or name.startswith("oneapi/"):
        if "backend/onednn" not in path.as_posix():
            return f"{name} is for src/backend/onednn only"
        return None
    if quote == "<":
        return None
    parts = pathlib.PurePosixPath(name).parts
    if len(parts) == 1 or parts[0] == "..":
        target = (path.parent / name).resolve()
    else:
        target = (ROOT / "src" / name).resolve()
        if not target.exists() and (path.parent / name).exists():
            target = (path.parent / name).resolve()
    try:
        rel = target.relative_to(ROOT / "src")
    except ValueError:
        return f"{name} is outside of src/"
    owner = rel.parts[0]
    if owner == module:
        return check_room(module, path, rel.as_posix())
    if owner not in allowed:
        return f"{module} may not know {owner} ({name})"
    if rel.as_posix() not in SHARED | {f"{owner}/{owner}.h"}:
        return f"{name} is private to {owner}"
    return None


def main():
    faults = []
    n_files = 0

    def report(path, line, text):
        faults.append(f"{path.relative_to(ROOT)}:{line}: {text}")

    for folder in sorted((ROOT / "src").iterdir()):
        if folder.is_dir() and folder.name not in KNOWS:
            faults.append(f"src/{folder.name}: not in the table of modules")
            continue
        for path in sorted(folder.rglob("*.*")):
            if path.suffix not in SUFFIXES:
                continue
            n_files += 1
            room = room_of(folder.name, path.relative_to(ROOT / "src").as_posix())
            rooms = ROOMS.get(folder.name, {"": ""})
            if room is not None and room not in rooms:
                report(path, 1, f"{folder.name} has no room {room!r}")
            for line, quote, name in includes(path):
                fault = check_module_include(folder.name, path, quote, name)
                if fault:
                    report(path, line, fault)

    # A public header may include what its module may know.
    for path in sorted((ROOT / "include" / "hooke").glob("*.h")):
        n_files += 1
        owner = PUBLIC.get(path.stem, path.stem)
        if path.stem == "hooke" or path.stem == "experimental":
            continue
        if owner not in KNOWS:
            faults.append(f"{path.relative_to(ROOT)}: no module owns it")
            continue
        allowed = {owner, *KNOWS[owner].split()}
        for line, quote, name in includes(path):
            if quote == "<":
                continue
            if not name.startswith("hooke/"):
                report(path, line, f"{name} is not a public header")
            elif fault := check_public_name(allowed, name):
                report(path, line, fault)

    for folder in USERS:
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix not in SUFFIXES:
                continue
            n_files += 1
            room = room_of(folder, path.relative_to(ROOT).as_posix())
            if folder in ROOMS and room not in ROOMS[folder]:
                report(path, 1, f"{folder} has no room {room!r}")
            for line, quote, name in includes(path):
                if quote != '"' or name.startswith("hooke/"):
                    continue
                if (ROOT / folder / name).exists():
                    fault = check_room(folder, path, f"{folder}/{name}", ROOT)
                    if fault:
                        report(path, line, fault)
                elif not (path.parent / name).exists():
                    report(path, line, f"{name} is not a public header")

    for fault in faults:
        print(f"layers: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"layers: {n_files} files, every include allowed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
