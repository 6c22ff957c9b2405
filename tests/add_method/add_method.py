#!/usr/bin/env python3
"""Adds a method as docs/architecture.md says, and tests it.

    add_method.py BUILD_FOLDER WORK_FOLDER

The table in the section "Adding a method" is the script (tests/recipe.py). The
table of methods and the tests are compiled again and linked with the rest of the
build. The new method then gives the same bits in this process and over every
transport (test_cluster_methods), and is exact while its centers and workers are
killed (test_exactly_once).
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import recipe  # noqa: E402

METHODS = "src/center/methods.c"
KILLS = "tests/test_exactly_once.c"
SAME_BITS = "tests/test_cluster_methods.c"


def add_to_enum(text, lines):
    """Behind the last value of hk_method."""
    end = text.index("} hk_method;")
    last = text.rindex("HK_METHOD_", 0, end)
    value = re.match(r"\w+ = \d+", text[last:]).end() + last
    return f"{text[:value]},\n    {lines[0]}\n{text[end:]}"


def add_row(text, lines):
    """The functions before the table, the row at its end."""
    functions = recipe.source(lines[0])
    table = text.index("// ---- the table ")
    end = text.index("\n};", text.index("static const hki_method methods[]"))
    return (f"{text[:table]}{functions}{text[table:end]}\n    {lines[1]}"
            f"{text[end:]}")


def only_new_cases(text, lines):
    """The kill test with the new method alone."""
    begin = text.index("} method_cases[] = {")
    body = text.index("\n", begin) + 1
    end = text.index("\n};", body)
    text = f"{text[:body]}    {lines[0]}{text[end:]}"
    main = text.index("int main(")
    return text[:main] + re.sub(
        r"cmocka_unit_test(_\w+)?\(\w+(, \w+)*\),?",
        lambda m: m.group(0) if "test_methods_" in m.group(0) else "",
        text[main:])


def edit(file, what):
    text = recipe.source(file)
    if file == METHODS:
        return add_row(text, what)
    if file == KILLS:
        return only_new_cases(text, what)
    if file.startswith("include/"):
        return add_to_enum(text, what)
    if file.startswith("docs/"):
        return text
    raise SystemExit(f"add_method: no rule for {file}")


def main(build, work):
    build, work = pathlib.Path(build), pathlib.Path(work)
    sources = {recipe.ROOT / SAME_BITS: SAME_BITS}
    for file, what in recipe.rows("Adding a method"):
        target = recipe.write(work, file, edit(file, what))
        if file.endswith(".c"):
            sources[target] = file
    objects = dict(zip(sources.values(),
                       recipe.compile_all(build, work, sources)))
    for test in (SAME_BITS, KILLS):
        program = work / pathlib.Path(test).stem
        recipe.link(build, program.name, [objects[METHODS], objects[test]],
                    [METHODS, test], program)
        done = subprocess.run([str(program)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        print(done.stdout, end="")
        if done.returncode != 0 or "[       OK ]" not in done.stdout:
            raise SystemExit(f"add_method: {program.name} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
