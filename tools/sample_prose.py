#!/usr/bin/env python3
"""What readers read: README, 12 pages and 60 messages, drawn by a commit.

    sample_prose.py [--commit REV] [--out FOLDER]

Writes one file for each page, a sentence a line with its number, headings and
code between them, and messages.txt. Readers who have not seen the pages note
the number of each sentence that they have to read twice; of all sentences at
most 3 % may be noted by any of them. The hash of the commit draws the sample,
so that nobody has mended what is read for it.
"""
import argparse
import hashlib
import pathlib
import random
import re
import subprocess

import check_words

PAGES, MESSAGES = 12, 60
ROOT = check_words.ROOT
SENTENCE_END = re.compile(r'([.!?:;]["\')*]*)\s+(?=[A-Z`*\[(])')
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|vs|etc|al|no|Fig)\.$")
TITLE = re.compile(r"(\d+\.|(- )?\*\*[^*]+\*\*)$")  # of the sentence after it


def sentences_of(paragraph):
    """The sentences of one paragraph, list item or table cell row."""
    out = []
    text = SENTENCE_END.sub(r"\1\n", " ".join(paragraph.split()))
    for piece in text.split("\n"):
        if out and (out[-1][-1] in ":;" or ABBREVIATION.search(out[-1]) or
                    TITLE.match(out[-1])):
            out[-1] += " " + piece
        elif piece:
            out.append(piece)
    return out


def blocks_of(page):
    """[(is_prose, text)]: paragraphs, items and rows; code and headings."""
    page = re.sub(r"<!--.*?-->\n?", "", page, flags=re.DOTALL)
    fence, lines = None, []

    def flush():
        if lines:
            yield True, "\n".join(lines)
            lines.clear()

    for line in page.splitlines():
        opened = re.match(r"\s*(```+)", line)
        if fence or opened:
            yield from flush()
            yield False, line
            if fence:
                fence = None if line.strip() == fence else fence
            else:
                fence = opened.group(1)
        elif not line.strip():
            yield from flush()
        elif line.startswith(("#", "    ")) or re.match(r"\|[\s|:-]+\|$", line):
            yield from flush()
            yield False, line
        else:
            if re.match(r"\s*([-*|]|\d+\.\s)", line):
                yield from flush()
            lines.append(line)
    yield from flush()


def number_page(path):
    """(text with numbered sentences, how many there are)."""
    out, count = [], 0
    for is_prose, text in blocks_of(path.read_text()):
        if not is_prose:
            out.append(f"        {text}")
            continue
        for sentence in sentences_of(text):
            count += 1
            out.append(f"[{count}] {sentence}")
    return "\n".join(out) + "\n", count


def is_full_message(path, line, text):
    """No fragment of one, no markup, style sheet, docstring, type or command."""
    first = path.read_text().splitlines()[line - 1].lstrip()
    return (len(re.findall(r"[A-Za-z]{2,}", text)) >= 5 and
            not re.search(r"</?[a-z]+[ >]", text) and
            not re.search(r"\{[a-z-]+:[^ ]", text) and
            not re.match(r"[A-Z]\w+\[\w", text) and
            not (path.parent.name == "commands" and
                 re.match(r"hooke [a-z]+ ", text)) and
            not first.startswith('"""'))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--out", type=pathlib.Path,
                        default=ROOT / "build" / "sample")
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", args.commit], cwd=ROOT,
                            check=True, text=True,
                            capture_output=True).stdout.strip()
    draw = random.Random(hashlib.sha256(commit.encode()).digest())
    pages = sorted((ROOT / "docs").rglob("*.md"))
    pages = [ROOT / "README.md"] + sorted(draw.sample(pages, PAGES))
    texts = sorted({(str(p.relative_to(ROOT)), line, " ".join(text.split()))
                    for p, _, line, text in check_words.all_texts(["message"])
                    if is_full_message(p, line, text)})
    args.out.mkdir(parents=True, exist_ok=True)
    for old in args.out.glob("*.txt"):
        old.unlink()
    total = 0
    for path in pages:
        text, count = number_page(path)
        name = str(path.relative_to(ROOT)).replace("/", "-")
        (args.out / f"{name}.txt").write_text(text)
        print(f"{count:5} sentences  {name}")
        total += count
    chosen = sorted(draw.sample(texts, MESSAGES))
    (args.out / "messages.txt").write_text("".join(
        f"[{i}] {text}    ({where}:{line})\n"
        for i, (where, line, text) in enumerate(chosen, 1)))
    print(f"{MESSAGES:5} messages of {len(texts)}")
    print(f"{total + MESSAGES:5} in all, drawn by {commit[:12]}: {args.out}")


if __name__ == "__main__":
    main()
