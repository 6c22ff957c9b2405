#!/usr/bin/env python3
"""Every test file is run by .ci/run or `make ci-full`.

    check_run.py BUILD_FOLDER

Begins with the commands of ctest in BUILD_FOLDER, of .ci/run, of `make ci-full`
and of the documentation's test directives, and follows names: a file is run when one of these commands, or a file
that is run, mentions it. Files that the build or a runner finds by a pattern
(sources of a test program, fuzz targets, Python tests) are run with it.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ["tests", "fuzz", "bindings/python/tests"]
SOURCES = {".c", ".cc", ".h", ".py", ".sh", ".txt"}
EXEMPT = re.compile(r"^tests/data/|/corpus/|/(requirements|CMakeLists)\.txt$")
# (files found by a pattern, the mention that finds them); CMakeLists.txt puts
# the emulated GPU and an outdated plug-in beside the test programs, and
# add_operator.py, add_transport.py and add_method.py follow tables of
# docs/architecture.md.
PATTERNS = [(r"fuzz/fuzz_\w+\.c$", "tools/run_fuzz.sh"),
            (r"bindings/python/tests/(test_\w+|conftest)\.py$",
             "bindings/python/run_tests"),
            (r"tests/add_operator/\w+\.c$", "/add_operator.py "),
            (r"tests/add_transport/\w+\.c$", "/add_transport.py "),
            (r"tests/add_method/\w+\.c$", "/add_method.py "),
            (r"tests/cuda/card\.cc$", "/test_cuda "),
            (r"tests/plugin/old_build\.c$", "/test_plugin ")]

# Names that stand for a new file which nobody runs.
STRANGERS = ["fuzz/other.c", "tests/other.c", "tests/install/other.c",
             "tests/cli/other.py"]


def output(*command):
    return subprocess.run(command, cwd=ROOT, check=True, text=True,
                          capture_output=True).stdout


def commands(build):
    """The texts in which names are looked for first."""
    tests = json.loads(output("ctest", "--test-dir", build, "--show-only=json-v1"))
    words = [w for t in tests["tests"] for w in t.get("command", [])]
    script = (ROOT / ".ci/run").read_text()
    targets = re.findall(r"^make ([\w-]+)", script, re.M)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    directives = [x for page in pages for x in page.read_text().splitlines()
                  if x.startswith("<!-- test:")]
    return "\n".join([" ".join(words), script, *directives,
                      output("make", "-n", "ci-full", *targets)])


def mentions(text, name):
    """other.c is neither in other.csv nor in another.c."""
    return name in text and \
        re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def is_named(file, near):
    """Does a file of the same folder name it, include or import it?"""
    return mentions(near, file.name) or mentions(near, f"{file.stem}.h") or (
        file.suffix == ".py" and
        re.search(rf"^\s*(import|from) {file.stem}\b", near, re.M) is not None)


def is_run(path, text, near, run):
    """`text` is all that is run, `near` the part of it in the same folder."""
    for pattern, mention in PATTERNS:
        if re.search(pattern, path):
            return mention in text
    file = pathlib.Path(path)
    if mentions(text, f"{file.parent.name}/{file.name}") or \
            is_named(file, near):
        return True
    if file.suffix not in (".c", ".cc"):
        return file.suffix == ".h" and file.name in text
    if not path.startswith("tests/"):
        return False
    # A program, a further source of one, or of a suite.
    program = file.parent.name if file.name == "main.c" else file.stem
    suite = file.stem.rsplit("_", 1)[0] if file.stem.startswith("suite_") else "-"
    return re.search(rf"/{program}\s", text) is not None or \
        f"{file.parent}/main.c" in run or f"{suite}.h" in near


def main():
    files = [f for f in output("git", "ls-files", "--cached", "--others",
                               "--exclude-standard", *FOLDERS).splitlines()
             if pathlib.Path(f).suffix in SOURCES and not EXEMPT.search(f)]
    text, near, run = commands(sys.argv[1]) + "\n", {}, set()
    while True:
        found = [f for f in files if f not in run and
                 is_run(f, text, near.get(pathlib.Path(f).parent, ""), run)]
        if not found:
            break
        run.update(found)
        for file in found:
            more = (ROOT / file).read_text(errors="replace") + "\n"
            text += more
            folder = pathlib.Path(file).parent
            near[folder] = near.get(folder, "") + more
    for stranger in STRANGERS:
        if is_run(stranger, text, near.get(pathlib.Path(stranger).parent, ""),
                  run):
            print(f"{stranger}: would count as run")
            return 1
    missing = [f for f in files if f not in run]
    for file in missing:
        print(f"{file}: neither .ci/run nor `make ci-full` runs it")
    print(f"run: {len(files)} test files, {len(missing)} never run")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
