#!/usr/bin/env python3
"""Finds internal functions that the product does not reach.

A function of src/ is reached when something outside of all functions names it
(a table), or a public function or one of the program does, directly or through
others. What is reached by tests, benches and fuzz targets only is theirs, not
the product's, and has to be in FOR_TESTS, with its reason; what nothing names
at all has to go. Names made by a macro's ## are not seen: MADE has them.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".c", ".h", ".cu", ".cc")
CALLERS = ("tests", "bench", "fuzz")
# Functions of src/ that are there to test the others.
FOR_TESTS = {
    "hki_alloc_count": "allocations: a step makes none",
    "hki_alloc_fail_at": "allocations that fail",
    "hki_alloc_fault_hit": "allocations that fail",
    "hki_alloc_live": "allocations: none is left",
    "hki_io_count": "file calls that fail",
    "hki_io_fail_at": "file calls that fail",
    "hki_io_fault_hit": "file calls that fail",
    "hki_input_bytes": "bytes read: every one once",
    "hki_io_replace": "a disk that loses what was not synced",
    "hki_saver_set_clock": "time that passes",
    "hki_board_name": "notes of a center: their bounds",
    "hki_server_note": "notes of a center: their bounds",
    "hki_server_post": "notes of a center: their bounds",
}

# Names that macros make: HKI_ISA_NAME(x) is called through its level's table, a
# maker of CUDA kernels through HKI_CUDA_MAKERS.
MADE = ("HKI_", "hki_cuda_make_")

NAME = re.compile(r"\b[a-z_]\w*\b")
# A line at column 0 that names a function and opens its parameters.
HEAD = re.compile(r"^(?!typedef|#|//)[A-Za-z_][\w \*]*?\b(\w+)\([^\n]*?"
                  r"(?:\n[ \t]+[^\n]*?)*?(\{|;)$", re.MULTILINE)
COMMENT = re.compile(r"[ \t]*//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"",
                     re.DOTALL)


class Source:
    """What a file defines, and what it names inside and outside of that."""

    def __init__(self, path):
        text = COMMENT.sub("", path.read_text(encoding="utf-8"))
        text = re.sub(r"__launch_bounds__\([^()]*\)\s", "", text)
        # An operator's rules that have its name.
        text = re.sub(r"\bHKI_OPERATOR_RULES\((\w+)", r"infer_\1 run_\1", text)
        self.path = path.relative_to(ROOT)
        self.bodies = {}
        rest, at = [], 0
        for head in HEAD.finditer(text):
            if head.start() < at:
                continue  # inside of a body
            rest.append(text[at:head.start()])
            at = head.end()
            if head.group(2) == "{":
                end = text.find("\n}", at)
                at = end if end >= 0 else len(text)
                # Those of two branches of an #if are one.
                self.bodies.setdefault(head.group(1), set()).update(
                    NAME.findall(text[head.end():at]))
        rest.append(text[at:])
        self.loose = set(NAME.findall("".join(rest)))


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix not in SUFFIXES:
                continue
            yield Source(path)


def reached(files):
    """Names that the product reaches; statics by (file, name)."""
    owners = collections.defaultdict(list)
    for source in files:
        for name in source.bodies:
            owners[name].append(source)
    todo, seen = [], set()

    def visit(name, source):
        # A static of the same file hides others of its name.
        places = owners.get(name, ())
        for place in [source] if source in places else places:
            if (place, name) not in seen:
                seen.add((place, name))
                todo.append((place, name))

    for source in files:
        for name in source.loose:
            visit(name, source)
        for name in source.bodies:
            if (name.startswith(("hk_",) + MADE) or
                    source.path.parts[0] == "cli"):
                visit(name, source)
    while todo:
        place, name = todo.pop()
        for other in place.bodies[name]:
            visit(other, place)
    return seen


def main():
    product = list(sources("src", "cli"))
    tests = set()
    for source in sources(*CALLERS):
        tests |= source.loose.union(*source.bodies.values())
    seen = reached(product)
    faults, count = [], 0
    for source in product:
        for name in source.bodies:
            if not name.startswith("hki_"):
                continue  # compilers know about statics
            count += 1
            if (source, name) not in seen and name not in FOR_TESTS:
                who = "only tests reach" if name in tests else "nobody reaches"
                faults.append(f"{source.path}: {who} {name}")
    for fault in sorted(faults):
        print(f"unused: {fault}", file=sys.stderr)
    if faults:
        return 1
    print(f"unused: {count} internal functions, each is reached by the product")
    return 0


if __name__ == "__main__":
    sys.exit(main())
