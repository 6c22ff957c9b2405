"""Pages of the book: their fenced blocks, commands and links."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARK = re.compile(r"^<!-- test: (.*?) -->$")
FENCE = re.compile(r"^(```+)(\w*)\s*$")
# What begins a command line; an indented block of them has to be fenced.
COMMAND = re.compile(r"(hooke|make|cmake|ctest|cc|gcc|sbatch|srun|mpirun|"
                     r"torchrun|kubectl|systemctl|python3|curl|"
                     r"\.?/?(examples|tools|build|bench|tests|scripts)/\S+)"
                     r"(\s|$)")


class Block:
    """A fenced block, with the marks in front of it."""

    def __init__(self, page, line, language, text, marks):
        self.page = page
        self.line = line
        self.language = language
        self.text = text
        self.marks = marks

    @property
    def place(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def mark(self, word):
        """What follows a word in the marks; None when it is not there."""
        for mark in self.marks:
            head, _, rest = mark.partition(" ")
            if head.rstrip(":") == word:
                return rest.strip()
        return None


def all_pages():
    return [ROOT / "README.md"] + sorted((ROOT / "docs").rglob("*.md"))


def blocks(page):
    """Every fenced block of a page, in order."""
    out, marks = [], []
    lines = page.read_text(encoding="utf-8").splitlines()
    i = 0
    while i < len(lines):
        mark, fence = MARK.match(lines[i]), FENCE.match(lines[i])
        if mark:
            marks.append(mark.group(1))
        elif fence:
            end = i + 1
            while end < len(lines) and lines[end] != fence.group(1):
                end += 1
            text = "\n".join(lines[i + 1:end]) + "\n"
            out.append(Block(page, i + 1, fence.group(2), text, marks))
            marks, i = [], end
        elif lines[i].strip():
            marks = []
        i += 1
    return out


def without_fences(page):
    """(line number, text) of everything outside of fenced blocks."""
    inside = None
    for n, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside = fence.group(1)
        elif inside is not None:
            if line == inside:
                inside = None
        else:
            yield n, line


def indented_commands(page):
    """(line number, command) of command lines in indented blocks."""
    return (x for x in indented_code(page) if COMMAND.match(x[1]))


def indented_code(page):
    """(line number, text) of commands and C in indented blocks."""
    before = ""
    block = False
    for n, line in without_fences(page):
        if line.startswith("    ") and (block or not before.strip()):
            block = True
            if COMMAND.match(line.strip()) or re.search(r"\bhk_\w+\(", line):
                yield n, line.strip()
        else:
            block = False
        before = line


def spans(page):
    """(line number, text) of inline code; a span may go over two lines."""
    text = "\n".join(line for _, line in without_fences(page))
    numbers = [n for n, _ in without_fences(page)]
    for m in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        yield numbers[text.count("\n", 0, m.start())], " ".join(
            m.group(1).split())


def links(page):
    """(line number, target) of links and pictures."""
    for n, line in without_fences(page):
        bare = re.sub(r"`[^`]*`", "", line)
        for m in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", bare):
            yield n, m.group(1)
