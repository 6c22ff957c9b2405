#!/usr/bin/env python3
"""Counts lines of code: no comments, no blank lines.

    tools/count_code.py [--files] [FOLDER...]

One line a folder that holds sources (src, cli and include unless named), with
the share of its lines that are comments, and the sum. --files adds a line a
file, the longest first.
"""
import argparse
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/"
                     r"|(\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", re.S)


def filled(text):
    return sum(1 for line in text.splitlines() if line.strip())


def count(path):
    """(lines of code, lines that are nothing but comment) of a file."""
    text = path.read_text(encoding="utf-8")
    code = filled(COMMENT.sub(
        lambda m: m.group(1) or "\n" * m.group(0).count("\n"), text))
    return code, filled(text) - code


def show(name, code, comments, width=44):
    share = 100 * comments / max(1, code + comments)
    print(f"{name:{width}} {code:7} lines, {share:4.1f} % comments")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", action="store_true")
    parser.add_argument("folders", nargs="*", default=["src", "cli", "include"])
    args = parser.parse_args()
    files, folders = [], {}
    for top in args.folders:
        for path in sorted((ROOT / top).rglob("*.[ch]")):
            name = path.relative_to(ROOT)
            code, comments = count(path)
            files.append((code, comments, name.as_posix()))
            sums = folders.setdefault(name.parent.as_posix(), [0, 0])
            sums[0] += code
            sums[1] += comments
    if args.files:
        for code, comments, name in sorted(files, reverse=True):
            show(name, code, comments)
        print()
    for name, sums in sorted(folders.items()):
        show(name, *sums)
    show("all", sum(f[0] for f in files), sum(f[1] for f in files))


if __name__ == "__main__":
    main()
