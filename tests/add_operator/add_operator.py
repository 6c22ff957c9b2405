#!/usr/bin/env python3
"""Adds an operator as docs/architecture.md says, and tests it.

    add_operator.py BUILD_FOLDER WORK_FOLDER

The table in the section "Adding an operator" is the script (tests/recipe.py):
each row names a file and what to add to it. The changed files go to the work
folder; only they and what depends on the number of operators are compiled, and
linked before the library of the build, whose objects of the same names are left
out then; so is the plug-in of the played card. Last, the rows added to the test
of gradients run: differences in float64, and training in float32 on every
backend.
"""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import recipe  # noqa: E402

# Tables with an entry per operator: the only objects that a new one changes.
PER_OPERATOR = ["src/graph/graph.c", "src/backend/onednn/backend.c",
                "src/backend/plugin.c"]
PLAYED = "tests/libhooke_cuda_played.so"
IN_PLUGIN = ["src/backend/cuda/backend.cu", "src/backend/plugin/cuda_plugin.c"]
TEST = "tests/test_gradients.c"
# The new operator inside a region of blocked images.
BLOCKED = """OP(between, hk_convolve(g, hk_softsign(g, hk_convolve(g, x[0], x[1],
   NULL, HK_ACT_NONE, NULL)), x[2], NULL, HK_ACT_NONE, NULL))"""
BLOCKED_CASE = """    {"between convolutions", between,
     .x = {"B,4,4,32", "3,3,32,32", "3,3,32,32"}, .flags = OPS_LARGE},"""


def add_to_family(text, lines):
    """To a list of makers of the CUDA backend, as its first one."""
    head = re.search(rf"^#define {lines[0]}\(X\) +\\\n", text, re.MULTILINE)
    return f"{text[:head.end()]}    {lines[1]} \\\n{text[head.end():]}"


def add_declaration(text, lines):
    """Before the end of a public header."""
    end = text.rindex("HK_END_C")
    return f"{text[:end]}{lines[0]}\n\n{text[end:]}"


def only_new_cases(text, lines):
    """The table of cases with the new row and one more, nothing else."""
    begin = text.index("static const ops_case cases[] = {")
    body = text.index("\n", begin) + 1
    end = text.index("\n};", body)
    return (f"{text[:begin]}{lines[0]}\n{BLOCKED}\n{text[begin:body]}"
            f"    {lines[1]}\n{BLOCKED_CASE}{text[end:]}")


def edit(file, what):
    if what[0].startswith("tests/add_operator/"):
        return recipe.source(what[0])
    text = recipe.source(file)
    if file == "src/backend/operators.h":
        return recipe.add_to_list(text, what)
    if file == "src/backend/cuda/cuda.h":
        return add_to_family(text, what)
    if file.startswith("include/"):
        return add_declaration(text, what)
    if file == TEST:
        return only_new_cases(text, what)
    raise SystemExit(f"add_operator: no rule for {file}")


def main(build, work):
    build, work = pathlib.Path(build), pathlib.Path(work)
    known = recipe.commands(build)
    sources = {}  # where it is compiled from -> whose command does it
    for file, what in recipe.rows("Adding an operator"):
        target = recipe.write(work, file, edit(file, what))
        if file.endswith((".c", ".cu")):
            like = IN_PLUGIN if file.endswith(".cu") else PER_OPERATOR
            sources[target] = file if file in known else like[0]
    for file in PER_OPERATOR + IN_PLUGIN:
        if file in known:
            sources[recipe.ROOT / file] = file

    objects = {True: [], False: []}
    made = recipe.compile_all(build, work, sources)
    for name, like in zip(made, sources.values()):
        objects[like in IN_PLUGIN].append(name)

    recipe.link(build, PLAYED, objects[True], IN_PLUGIN,
                work / pathlib.Path(PLAYED).name)
    program = work / "test_new_operator"
    recipe.link(build, "test_gradients", objects[False], [TEST], program)
    subprocess.run([str(program)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
