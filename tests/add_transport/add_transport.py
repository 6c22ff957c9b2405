#!/usr/bin/env python3
"""Adds a transport as docs/architecture.md says, and tests it.

    add_transport.py BUILD_FOLDER WORK_FOLDER

The table in the section "Adding a transport" is the script (tests/recipe.py).
Only the changed files and the table of transports are compiled, and linked
before the library of the build. Last, the suite of transports runs on the new
one.
"""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import recipe  # noqa: E402

TABLE = "src/transport/transports.c"
TEST = "tests/test_transport.c"


def add_row(text, lines):
    """To the transports that the suite runs on, as the only one."""
    begin = text.index("} transports[] = {\n")
    body = text.index("\n", begin) + 1
    end = text.index("};", body)
    return f"{text[:body]}    {lines[0]}\n{text[end:]}"


def edit(file, what):
    if what[0].startswith("tests/add_transport/"):
        return recipe.source(what[0])
    text = recipe.source(file)
    if file == "src/transport/conn.h":
        return recipe.add_to_list(text, what)
    if file == TEST:
        return add_row(text, what)
    raise SystemExit(f"add_transport: no rule for {file}")


def main(build, work):
    build, work = pathlib.Path(build), pathlib.Path(work)
    known = recipe.commands(build)
    sources = {recipe.ROOT / TABLE: TABLE}
    for file, what in recipe.rows("Adding a transport"):
        target = recipe.write(work, file, edit(file, what))
        if file.endswith(".c"):
            sources[target] = file if file in known else TABLE
    program = work / "test_new_transport"
    objects = recipe.compile_all(build, work, sources)
    recipe.link(build, "test_transport", objects, [TEST], program)
    subprocess.run([str(program)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
