#!/usr/bin/env python3
"""Adds an operator as docs/architecture.md says, and tests it.

    add_operator.py BUILD_FOLDER WORK_FOLDER

The table in the section "Adding an operator" is the script: each row names a
file and what to add to it. The changed files go to the work folder; only they
and what depends on the number of operators are compiled, and linked before the
library of the build, whose objects of the same names are left out then; so is
the plug-in of the played card. Last, the rows added to the test of gradients
run: differences in float64, and training in float32 on every backend.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
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


def recipe():
    """[(file, [what to add])] of the table."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split("## Adding an operator")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    return [(file, re.findall(r"`([^`]+)`", what)) for file, what in rows]


def add_to_list(text, lines):
    """Behind the last X(...) of the list of operators."""
    last = list(re.finditer(r"^    X\(\w+\)$", text, re.MULTILINE))[-1]
    return f"{text[:last.end()]} \\\n    {lines[0]}{text[last.end():]}"


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
        return (ROOT / what[0]).read_text(encoding="utf-8")
    text = (ROOT / file).read_text(encoding="utf-8")
    if file == "src/backend/operators.h":
        return add_to_list(text, what)
    if file == "src/backend/cuda/cuda.h":
        return add_to_family(text, what)
    if file.startswith("include/"):
        return add_declaration(text, what)
    if file == TEST:
        return only_new_cases(text, what)
    raise SystemExit(f"add_operator: no rule for {file}")


def link_command(build, target):
    """How the build links a program or a library."""
    if (build / "build.ninja").exists():
        listed = subprocess.run(
            ["ninja", "-C", str(build), "-t", "commands", target],
            check=True, capture_output=True, text=True).stdout
        return listed.strip().splitlines()[-1]
    name = pathlib.Path(target).stem.removeprefix("lib")
    return (build / f"CMakeFiles/{name}.dir/link.txt").read_text()


def link(build, target, objects, replaced, out):
    """Links a target with the new objects in place of those of `replaced`."""
    command = link_command(build, target)
    for name in replaced:
        command = re.sub(rf"\S*/{re.escape(name)}\.o\b", "", command)
    command = re.sub(r"-o \S+", f"-o {out} {' '.join(objects)}", command)
    subprocess.run(command, check=True, cwd=build, shell=True)


def compile_one(entry, source, work, out):
    """Starts the compiler on a source, with the command of another one."""
    words = shlex.split(entry["command"])
    for option in ("-o", "-MT", "-MF"):
        if option in words:
            del words[words.index(option):words.index(option) + 2]
    words = [w for w in words if w not in ("-MD", "-c", entry["file"])
             and not w.startswith("-O")]
    first = next(i for i, w in enumerate(words) if w.startswith("-I"))
    words[first:first] = [f"-I{work}/src", f"-I{work}/include"]
    return subprocess.Popen(
        words + ["-O1", "-Wno-unused-function", "-c", str(source), "-o", out],
        cwd=entry["directory"])


def main(build, work):
    build, work = pathlib.Path(build), pathlib.Path(work)
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = pathlib.Path(entry["file"])
        if name.is_relative_to(ROOT):
            commands.setdefault(str(name.relative_to(ROOT)), entry)

    sources = {}  # where it is compiled from -> whose command does it
    for file, what in recipe():
        target = work / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(edit(file, what), encoding="utf-8")
        if file.endswith((".c", ".cu")):
            like = IN_PLUGIN if file.endswith(".cu") else PER_OPERATOR
            sources[target] = file if file in commands else like[0]
    for file in PER_OPERATOR + IN_PLUGIN:
        if file in commands:
            sources[ROOT / file] = file

    running, objects = [], {True: [], False: []}
    for n, (source, like) in enumerate(sources.items()):
        out = str(work / f"{source.stem}_{n}.o")
        objects[like in IN_PLUGIN].append(out)
        running.append(compile_one(commands[like], source, work, out))
    if any([process.wait() for process in running]):
        raise SystemExit("add_operator: a file does not compile")

    link(build, PLAYED, objects[True], IN_PLUGIN,
         work / pathlib.Path(PLAYED).name)
    program = work / "test_new_operator"
    link(build, "test_gradients", objects[False], [TEST], program)
    subprocess.run([str(program)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
