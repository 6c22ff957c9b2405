#!/usr/bin/env python3
"""Checks which strings tools/sample_prose.py takes for messages."""
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import check_words  # noqa: E402
import sample_prose  # noqa: E402

CASES = [
    ("%s: ends after %llu bytes; the file is incomplete", True),
    ("set 'model: {classes: 0}' to predict a number", True),
    ("no such file", False),
    ("<p>one page of several curves</p> and more", False),
    ("p{margin:.25rem 0} the grid and the chart have no border", False),
]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "one.c"
        path.write_text("static const char *text;\n")
        for text, expected in CASES:
            if sample_prose.is_full_message(path, 1, text) != expected:
                sys.exit(f"sample_prose: wrong about {text!r}")
    style = [text for path, _, line, text in check_words.all_texts(["message"])
             if "{margin:" in text and
             sample_prose.is_full_message(path, line, text)]
    if style:
        sys.exit(f"sample_prose: a style sheet is a message: {style[0][:60]}")


if __name__ == "__main__":
    main()
