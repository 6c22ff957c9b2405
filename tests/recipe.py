"""Carries out a table of docs/architecture.md: each row names a file and what
to add to it. The changed files go to a work folder; they are compiled with the
commands of a build, and linked before the objects of the same names.
"""
import json
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def rows(title):
    """[(file, [what to add])] of the table in the section of this title."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([^`]+)` \| (.*) \|$", section, re.MULTILINE)
    return [(file, re.findall(r"`([^`]+)`", what)) for file, what in found]


def source(file):
    return (ROOT / file).read_text(encoding="utf-8")


def add_to_list(text, lines):
    """Behind the last X(...) of a list that a macro holds."""
    last = list(re.finditer(r"^    X\(\w+\)$", text, re.MULTILINE))[-1]
    return f"{text[:last.end()]} \\\n    {lines[0]}{text[last.end():]}"


def write(work, file, text):
    """The changed file in the work folder."""
    target = work / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def commands(build):
    """The compiler's call for each source of a build."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = pathlib.Path(entry["file"])
        if name.is_relative_to(ROOT):
            found.setdefault(str(name.relative_to(ROOT)), entry)
    return found


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


def compile_one(entry, file, work, out):
    """Starts the compiler on a file, with the command of another one."""
    words = shlex.split(entry["command"])
    for option in ("-o", "-MT", "-MF"):
        if option in words:
            del words[words.index(option):words.index(option) + 2]
    words = [w for w in words if w not in ("-MD", "-c", entry["file"])
             and not w.startswith("-O")]
    first = next(i for i, w in enumerate(words) if w.startswith("-I"))
    words[first:first] = [f"-I{work}/src", f"-I{work}/include"]
    return subprocess.Popen(
        words + ["-O1", "-Wno-unused-function", "-c", str(file), "-o", out],
        cwd=entry["directory"])


def compile_all(build, work, sources):
    """The objects of {source: whose command compiles it}, in their order."""
    entries, running, objects = commands(build), [], []
    for n, (file, like) in enumerate(sources.items()):
        objects.append(str(work / f"{file.stem}_{n}.o"))
        running.append(compile_one(entries[like], file, work, objects[-1]))
    if any([process.wait() for process in running]):
        raise SystemExit(f"{work.name}: a file does not compile")
    return objects
