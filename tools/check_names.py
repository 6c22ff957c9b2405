#!/usr/bin/env python3
"""One name, one meaning.

Refuses a second definition of an internal type (hki_...), a second source file
of one name, and names that differ by case only. Implementations of one table
may share names: the backends, which hold the same operators and handles, and an
operator's file and its kernels. A public header may share the name of an
internal one of its own module.
"""
import collections
import pathlib
import re
import sys

from check_layers import PUBLIC

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".c", ".h", ".cu", ".cc")

TYPE = re.compile(
    r"^(?:typedef\s+)?(?:struct|enum|union)\s+(hki_\w+)\s*\{"
    r"|^typedef\s[^;{]*?\(\*(hki_\w+)\)\("
    r"|^typedef\s+(?!struct|enum|union)[\w ]+?\b(hki_\w+);",
    re.MULTILINE)
NAME = re.compile(r"\bHKI_[A-Za-z0-9_]+\b")
# Types that every backend completes for itself: declared in backend.h.
OPAQUE = re.compile(r"^typedef struct (hki_\w+) \1;", re.MULTILINE)
# Folders that implement one table, and the operators that they implement.
BACKENDS = "src/backend/"
OPERATORS = "src/graph/ops/"


def backend_of(path):
    """The backend that a file belongs to, "" for everything else."""
    if path.startswith(BACKENDS) and path.count("/") > 2:
        return path.split("/")[2]
    if path == BACKENDS + "host.c":
        return "host"
    return "portable" if path.startswith(OPERATORS) else ""


def is_shared(paths):
    """Do the files belong to as many backends?"""
    owners = [backend_of(p) for p in paths]
    return "" not in owners and len(set(owners)) == len(owners)


def is_of_module(paths):
    """Is one of two the public header of the other's module?"""
    public = [p for p in paths if p.startswith("include/hooke/")]
    if len(paths) != 2 or len(public) != 1:
        return False
    stem = pathlib.PurePath(public[0]).stem
    inside = next(p for p in paths if p != public[0])
    return inside.split("/")[1] == PUBLIC.get(stem, stem)


def main():
    files = collections.defaultdict(list)
    types = collections.defaultdict(list)
    cases = collections.defaultdict(set)
    for folder in ("src", "cli", "include"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix not in SUFFIXES:
                continue
            name = path.relative_to(ROOT).as_posix()
            files[path.name].append(name)
            text = path.read_text(encoding="utf-8")
            for match in TYPE.finditer(text):
                types[next(filter(None, match.groups()))].append(name)
            for word in NAME.findall(text):
                cases[word.lower()].add(word)
    faults = []
    header = (ROOT / BACKENDS / "backend.h").read_text(encoding="utf-8")
    opaque = OPAQUE.findall(header)
    for what, found in (("files called", files), ("definitions of", types)):
        for name, paths in sorted(found.items()):
            own = found is types and name not in opaque
            if len(paths) > 1 and (own or not (is_shared(paths) or
                                               is_of_module(paths))):
                faults.append(f"{len(paths)} {what} {name}: {', '.join(paths)}")
    for words in cases.values():
        if len(words) > 1:
            faults.append(f"differ by case only: {', '.join(sorted(words))}")
    for fault in faults:
        print(f"names: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"names: {len(files)} files, {len(types)} internal types, each once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
