#!/usr/bin/env python3
"""Makes the C API reference from the public headers.

    make_api.py OUT_DIR

One Markdown page per header: the text at its top, its sections, and every
declaration below the comment that explains it. Exits with 1 when a header
does not open with a comment or a page would be empty.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECTION = re.compile(r"^// -+ (.*?)( -+)?$")


def split(lines):
    """Yields ("text", lines) and ("code", lines) in turn."""
    kind, block = None, []
    for line in lines:
        now = "text" if line.startswith("//") else "code"
        if now != kind and block:
            yield kind, block
            block = []
        kind = now
        block.append(line)
    if block:
        yield kind, block


def body(path):
    """Lines of a header without guards, includes and extern "C"."""
    out = []
    skip = False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#ifdef __cplusplus"):
            skip = True
        if skip:
            skip = not line.startswith("#endif")
            continue
        if re.match(r"#(ifndef|define) HOOKE_\w+_H|#include|#endif|"
                    r"HK_(BEGIN|END)_C$", line):
            continue
        out.append(line)
    return out


def text(lines):
    words = [re.sub(r"^// ?", "", x) for x in lines]
    # Indented lines are examples.
    return "\n".join(f"    {w[4:]}" if w.startswith("    ") else w
                     for w in words)


def page(path):
    parts = [f"# hooke/{path.name}"]
    code = []

    def flush():
        joined = "\n".join(code).strip("\n")
        if joined:
            parts.append("```c\n" + joined + "\n```")
        code.clear()

    lines = body(path)
    top = next((i for i, x in enumerate(lines) if not x.startswith("//")),
               len(lines))
    if top == 0:
        raise SystemExit(f"make_api: {path.name} does not open with a comment")
    parts.append(text(lines[:top]))
    for kind, block in split(lines[top:]):
        if kind == "code":
            code += block
            continue
        heading = SECTION.match(block[0])
        if heading:
            flush()
            parts.append("## " + heading.group(1))
            rest = [x for x in block[1:] if not re.match(r"^// -+$", x)]
            if any(x.strip("/ ") for x in rest):
                parts.append(text(rest).strip())
        else:
            code += block
    flush()
    return "\n\n".join(parts) + "\n"


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    headers = sorted((ROOT / "include" / "hooke").glob("*.h"))
    index = ["# C API", ""]
    for header in headers:
        content = page(header)
        (out / f"{header.stem}.md").write_text(content, encoding="utf-8")
        first = content.split("\n\n")[1].split("\n")[0]
        what = first.split(" - ", 1)[-1]
        index.append(f"- [hooke/{header.name}]({header.stem}.md): {what}")
    (out / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")
    print(f"make_api: {len(headers)} pages in {out}")


if __name__ == "__main__":
    main()
