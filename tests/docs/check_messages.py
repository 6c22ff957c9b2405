"""Compares docs/troubleshooting.md with the texts in the sources.

The code spans that begin an item of a list are messages, or parts of them, as
they stand in src/ and cli/, with <words> in the place of what is filled in.
Every one has to exist, so that the page cannot tell of messages that nobody
sees any more.
"""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "troubleshooting.md"
STRING = r'"((?:[^"\\\n]|\\.)*)"'
LITERAL = re.compile(rf"{STRING}(?:\s*{STRING})*")
SPAN = r"(?:``.+?``|`[^`]+`)"
ITEM = re.compile(rf"^- ({SPAN}(?:, {SPAN})*)", re.M)
COMMENT = re.compile(rf"//[^\n]*|/\*.*?\*/|({STRING})", re.S)
LEAST = 6  # letters that a part of a message has to have to mean something


def plain(text):
    """A C format without its escapes, \\0 for what is filled in."""
    text = text.replace('\\"', '"').replace("\\n", "\n")
    text = re.sub(r"%[-+ #0]*[\d.*]*(?:hh|h|ll|l|z|j)?[a-zA-Z]", "\0", text)
    return text.replace("%%", "%")


def literals(text):
    """The strings of a source, those side by side as one."""
    text = COMMENT.sub(lambda m: m.group(1) or "", text)
    text = re.sub(r'"\s*PRI\w+\s*"', "d", text)
    for m in LITERAL.finditer(text):
        yield plain("".join(re.findall(STRING, m.group(0))))


def sources():
    for folder in ("cli", "src"):
        yield from sorted((ROOT / folder).rglob("*.[ch]"))


def quoted(page):
    """(line, message) of what begins the items of a page."""
    for item in ITEM.finditer(page):
        line = page.count("\n", 0, item.start()) + 1
        for span in re.findall(SPAN, item.group(1)):
            yield line, re.sub(r"<[^<>]+>", "\0", span.strip("`"))


def faults(page, there):
    """What is wrong with the messages that a page quotes."""
    for line, message in quoted(page):
        if len(re.findall(r"[a-zA-Z]", message)) < LEAST:
            yield line, "too short to be found", message
        elif not any(message in one for one in there):
            yield line, "no such message", message


def problems():
    there = set()
    for path in sources():
        there.update(literals(path.read_text(encoding="utf-8")))
    return [f"docs/troubleshooting.md:{line}: {what}: "
            + message.replace("\0", "<...>")
            for line, what, message in faults(PAGE.read_text(), there)]


if __name__ == "__main__":
    for problem in problems():
        print(problem)
