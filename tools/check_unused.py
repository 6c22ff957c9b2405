#!/usr/bin/env python3
"""Finds internal functions that nothing calls.

Every hki_ function that a .c file of src/ defines has to be named once more,
in code of the library, its tests, benches or fuzz targets, than by its
definition and its declarations. Names made by a macro's ## are not seen; there
are none for functions.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "bench", "fuzz")

NAME = re.compile(r"\bhki_\w+")
# A line at column 0 that names a function and opens its parameters.
HEAD = re.compile(r"^(?!typedef|#|//)[A-Za-z_][\w \*]*?\b(hki_\w+)\([^\n]*?"
                  r"(?:\n[ \t]+[^\n]*?)*?(\{|;)$", re.MULTILINE)
COMMENT = re.compile(r"[ \t]*//[^\n]*|/\*.*?\*/", re.DOTALL)


def main():
    named = collections.Counter()
    heads = collections.Counter()
    defined = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.[ch]")):
            text = COMMENT.sub("", path.read_text(encoding="utf-8"))
            named.update(NAME.findall(text))
            for match in HEAD.finditer(text):
                heads[match.group(1)] += 1
                if match.group(2) == "{" and folder == "src":
                    defined[match.group(1)] = path.relative_to(ROOT)
    unused = [n for n in sorted(defined) if named[n] <= heads[n]]
    for name in unused:
        print(f"unused: {defined[name]}: {name}", file=sys.stderr)
    if unused:
        return 1
    print(f"unused: {len(defined)} internal functions, each has a caller")
    return 0


if __name__ == "__main__":
    sys.exit(main())
