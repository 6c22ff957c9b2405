#!/usr/bin/env python3
"""Checks that every public function is called by a test or by an example, all
of which the tests run. Lists those that are not; exit code 1 if there are any.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DECLARED = re.compile(r"\bHK_API\b[^;{]*?\b(hk_\w+)\s*\(")
CALLED = re.compile(r"\b(hk_\w+)\s*[(,);]")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.S)


def code(path):
    """The text without comments and strings."""
    return COMMENT.sub(" ", path.read_text(encoding="utf-8"))


def main():
    public = {}
    for header in sorted((ROOT / "include/hooke").glob("*.h")):
        for name in DECLARED.findall(code(header)):
            public[name] = header.name
    called = set()
    for folder in "tests", "examples":
        for path in (ROOT / folder).rglob("*.[ch]"):
            called.update(CALLED.findall(code(path)))
    missing = [name for name in public if name not in called]
    for name in missing:
        print(f"tested: {public[name]}: no test calls {name}")
    if not missing:
        print(f"tested: {len(public)} public functions, each in a test")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
