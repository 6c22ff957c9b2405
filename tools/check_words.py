#!/usr/bin/env python3
"""One vocabulary.

    check_words.py [docs] [message] [identifier] [comment]

Refuses the words of tools/words.txt in the places that the file names for them.
Without arguments documentation and messages are checked.
"""
import io
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = ROOT / "tools" / "words.txt"
PLACES = ("docs", "message", "identifier", "comment")
C_SUFFIXES = (".c", ".h", ".cu", ".cc", ".cuh")
DOCS = ("README.md", "CONTRIBUTING.md", "docs")
SOURCES = ("src", "cli", "include")

# What is no prose on a page: fenced blocks, comments, code, targets of links.
NO_PROSE = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)[ \t]*$|<!--.*?-->|(?P<tick>`+).+?(?P=tick)"
    r"|\]\([^)\n]*\)|<[a-z/][^>\n]*>", re.MULTILINE | re.DOTALL)
C_TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<include>#\s*include[^\n]*)'
    r'|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>\'(?:\\.|[^\'\\\n])+\')'
    r"|(?P<name>[A-Za-z_]\w*)|(?P<space>\s+|\\\n)|(?P<other>.)", re.DOTALL)


def read_words():
    """[(pattern, places, replacement)] of words.txt."""
    words = []
    for line in WORDS.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        word, places, instead = (f.strip() for f in re.split(r" +\| ", line))
        unknown = set(places.split()) - set(PLACES)
        if unknown:
            sys.exit(f"{WORDS.name}: no such place: {', '.join(unknown)}")
        # A name like run.rail or --card is a name and not the word.
        pattern = r"(?<![\w./-])(?:" + word.replace(" ", r"\s+") + \
            r")(?![\w/-]|\.\w)"
        words.append((re.compile(pattern, re.IGNORECASE), places.split(),
                      instead))
    return words


def blank(match):
    """Keeps the lines of what is taken out."""
    return re.sub(r"[^\n]", " ", match.group(0))


def docs_texts(path):
    """[(line, text)] of a page."""
    yield 1, NO_PROSE.sub(blank, path.read_text())


def is_message(text):
    return len(re.findall(r"[A-Za-z]{2,}", text)) > 1 and re.search(r"\s", text)


def unescape(text):
    """A literal without its quotes; escapes become spaces."""
    return re.sub(r"\\[nt]", "  ", text[1:-1])


def c_texts(path, places):
    """[(place, line, text)] of a C source; adjacent literals are one message."""
    source = path.read_text()
    line, literal, began = 1, "", 1
    for m in C_TOKEN.finditer(source):
        kind = m.lastgroup
        if kind == "string":
            began = began if literal else line
            literal += unescape(m.group(0))
        elif literal and kind not in ("space", "comment"):
            if "message" in places and is_message(literal):
                yield "message", began, literal
            literal = ""
        if kind == "comment" and "comment" in places:
            yield "comment", line, re.sub(r"\n\s*//", "\n", m.group(0))
        if kind == "name" and "identifier" in places:
            words = re.sub(r"([a-z])([A-Z])", r"\1 \2", m.group(0))
            yield "identifier", line, words.replace("_", " ")
        line += m.group(0).count("\n")


def python_texts(path):
    """[(line, text)] of a Python module; adjacent literals are one message."""
    literal, began = "", 1
    for t in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if t.type == tokenize.STRING:
            began = began if literal else t.start[0]
            literal += re.sub(r"\{[^{}]*\}", "{}",
                              re.sub(r"""^\w?("{3}|'{3}|"|')|("{3}|'{3}|"|')$""",
                                     "", t.string))
        elif literal and t.type not in (tokenize.NL, tokenize.COMMENT):
            if is_message(literal):
                yield began, literal
            literal = ""


def all_texts(places):
    """(path, place, line, text) of everything that is checked."""
    if "docs" in places:
        for name in DOCS:
            top = ROOT / name
            for path in sorted(top.rglob("*.md")) if top.is_dir() else [top]:
                for line, text in docs_texts(path):
                    yield path, "docs", line, text
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in C_SUFFIXES:
                for place, line, text in c_texts(path, places):
                    yield path, place, line, text
    if "message" in places:
        for path in sorted((ROOT / "bindings/python/hooke").rglob("*.py")):
            for line, text in python_texts(path):
                yield path, "message", line, text


def main():
    places = sys.argv[1:] or ["docs", "message"]
    if set(places) - set(PLACES):
        sys.exit(__doc__)
    words = read_words()
    found = 0
    for path, place, line, text in all_texts(places):
        for pattern, where, instead in words:
            if place not in where:
                continue
            for m in pattern.finditer(text):
                at = line + text.count("\n", 0, m.start())
                word = " ".join(m.group(0).split())
                print(f"{path.relative_to(ROOT)}:{at}: '{word}' in a {place}; "
                      f"write: {instead}")
                found += 1
    if found:
        sys.exit(f"check_words: {found} words")
    print("check_words: the vocabulary holds")


if __name__ == "__main__":
    main()
