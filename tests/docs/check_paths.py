"""Checks that the files which pages and comments name are there.

In pages: inline code that begins with a folder of the repository or with one of
src/, and names of C files. In comments of sources: names of C files. Of their
paths the end is enough (wire/frame.c).
"""
import re

import pages

ROOT = pages.ROOT
FOLDERS = ("include", "src", "cli", "tests", "examples", "experiments", "bench",
           "fuzz", "tools", "scripts", "docs", "cmake")
BESIDE = ("", "src", "include", "include/hooke", "docs")
PATH = re.compile(r"[\w.*{},-]+(?:/[\w.*{},-]*)*")
C_FILE = re.compile(r"(?<![\w./*<-])((?:[\w-]+/)*[\w-]+\.(?:[ch]|cu|cc))\b(?![.(\w])")
SUFFIXES = (".c", ".h", ".cu", ".cc")
COMMENT = re.compile(r"//[^\n]*")
# A file that the reader is to write, the name of a series, others' headers.
NO_NAMES = {"src/graph/ops/elements/softsign.c", "src/backend/cuda/softsign.cu",
            "src/transport/memory.c", "examples/sec", "jansson.h"}


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in SUFFIXES:
                yield path


def known_files():
    """{name: paths} of the C files of the tree, and those for cards."""
    out = {}
    for path in sources():
        out.setdefault(path.name, []).append(path.relative_to(ROOT).as_posix())
    return out


def is_there(name, page):
    """Does a path exist, from one of the places that names start at?"""
    name = name.rstrip("/.,")
    if name in NO_NAMES or "{" in name:
        return True
    for place in [ROOT / b for b in BESIDE] + [page.parent]:
        # A program is named like its source.
        if next(place.glob(name), None) or (place / (name + ".c")).exists():
            return True
    return False


def is_known(name, files):
    """Is there a C file of this name, or of this end of a path?"""
    return name in NO_NAMES or any(
        ("/" + f).endswith("/" + name)
        for f in files.get(name.split("/")[-1], []))


def page_faults(page, modules, files):
    written = {b.mark("file") for b in pages.blocks(page)}
    for line, span in pages.spans(page):
        for word in span.split():
            if not PATH.fullmatch(word) or word in written:
                continue
            first = word.split("/")[0]
            if "/" in word and first in FOLDERS + modules:
                if not is_there(word, page):
                    yield line, word
            elif C_FILE.fullmatch(word) and not is_known(word, files):
                yield line, word


def source_faults(path, files):
    """C files that comments name and that are not there."""
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for comment in COMMENT.findall(line):
            for name in C_FILE.findall(comment):
                if not is_known(name, files):
                    yield n, name


def problems():
    files = known_files()
    modules = tuple(p.name for p in (ROOT / "src").iterdir() if p.is_dir())
    out = []
    for page in pages.all_pages() + [ROOT / "CONTRIBUTING.md",
                                     ROOT / "bench" / "NOTES.md"]:
        out += [f"{page.relative_to(ROOT)}:{n}: {name} does not exist"
                for n, name in page_faults(page, modules, files)]
    for path in sources():
        out += [f"{path.relative_to(ROOT)}:{n}: {name} does not exist"
                for n, name in source_faults(path, files)]
    return out


if __name__ == "__main__":
    for problem in problems():
        print(problem)
