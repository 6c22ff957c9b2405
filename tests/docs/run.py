#!/usr/bin/env python3
"""Runs what the documentation says.

    run.py [--update] [--only PAGE] PROGRAM BUILD_DIR

Every fenced block of README.md and docs/ is run, compiled, written to a file,
or skipped for a reason that stands in front of it:

    ```sh       run by bash, all commands have to succeed
    ```console  lines after "$ " are run, the others are the output: numbers
                may differ, a line of ... stands for any lines
    ```c        compiled; what it is has to be said (below)
    ```yaml, ```csv  written to a file that has to be named
    ```json     read, and written to a file if one is named
    ```python   compiled; bindings/python/tests/test_docs.py runs it
    ```text     neither

The blocks of a page share one private folder, in which examples/ and
experiments/ are those of the source, and an installed `hooke` is on the path.
Marks are comments right in front of a block:

    <!-- test: skip: REASON -->        not here; counted and listed
    <!-- test: needs COMMAND -->       skipped where it is not installed
    <!-- test: file NAME -->           write the block to that file (C: and
                                       compile it)
    <!-- test: body DECLARATIONS -->   C: statements, with these parameters
    <!-- test: quick -->               fewer examples and steps (of digits)
    <!-- test: add COMMAND WORDS -->   words for every `hooke COMMAND`
    <!-- test: replace OLD => NEW -->  in the text of the block
    <!-- test: port NUMBER -->         a free port in its place
    <!-- test: prepare COMMAND -->     run before the block
    <!-- test: then COMMAND -->        what a reader would look at next; has to
                                       succeed
    <!-- test: fails CODE -->          the block ends with this code
    <!-- test: dry-run -->             make targets are looked up, not made

Besides: links lead somewhere, options that are named exist, generated pages
are up to date (--update writes them), formats agree with the headers
(check_formats.py), messages with the sources (check_messages.py), and the files
that pages and comments name are there (check_paths.py).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import check_formats
import check_messages
import check_paths
import pages

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from free_port import free_port  # noqa: E402

ROOT = pages.ROOT
LIMIT = 120  # seconds for a block
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "CC")
DIGITS = "--set data.train.count=400 --set data.eval.count=100"
STEPS = DIGITS + " --set run.steps=20 --set run.eval_steps=0"
QUICK = {"train": STEPS, "sweep": STEPS, "center": STEPS, "worker": STEPS,
         "evaluator": STEPS, "evaluate": DIGITS, "predict": DIGITS}
GENERATED = {"docs/commands.md": ["help", "--format", "markdown"],
             "docs/experiment.md": ["help", "experiment", "--format",
                                    "markdown"]}
# Its commands take hours and other machines; they are looked at, not run.
MEASURED = "docs/results.md"
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused"]


class Failure(Exception):
    pass


# ---- a place to run in ------------------------------------------------------

WRAPPER = """#!/bin/sh
# The installed hooke, with the words that the test adds to a command.
command=$1
[ $# -eq 0 ] || shift
eval "more=\\${{HOOKE_ADD_$command:-}}" 2>/dev/null || more=
# shellcheck disable=SC2086
exec '{program}' $command "$@" $more
"""


class Place:
    """An installed Hooke, and folders to use it in."""

    def __init__(self, program, build, folder):
        self.folder = pathlib.Path(folder)
        self.prefix = self.folder / "prefix"
        done = subprocess.run(
            ["cmake", "--install", build, "--prefix", self.prefix],
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure("cmake --install: " + done.stderr)
        installed = self.prefix / "bin" / "hooke"
        shutil.copy2(program, installed)  # the one that is to be tested
        tools = self.folder / "bin"
        tools.mkdir()
        wrapper = tools / "hooke"
        wrapper.write_text(WRAPPER.format(program=installed))
        wrapper.chmod(0o755)
        lib = next(self.prefix.rglob("libhooke.so")).parent
        env = {k: v for k, v in os.environ.items() if k in KEPT}
        env["PATH"] = f"{tools}:{env['PATH']}"
        env["LD_LIBRARY_PATH"] = f"{lib}:{env.get('LD_LIBRARY_PATH', '')}"
        env["PKG_CONFIG_PATH"] = str(lib / "pkgconfig")
        env["CMAKE_PREFIX_PATH"] = str(self.prefix)
        env["TMPDIR"] = str(self.folder)
        env["LC_ALL"] = "C.UTF-8"
        env["HOOKE"] = "hooke"
        env["ROOT"] = str(ROOT)
        env["PREFIX"] = str(self.prefix)
        # Threads that wait must not take the processor from other tests.
        env["OMP_WAIT_POLICY"] = "passive"
        env["NO_COLOR"] = "1"
        self.env = env
        self.include = self.prefix / "include"

    def work_folder(self, page):
        name = str(page.relative_to(ROOT)).replace("/", "_")
        work = self.folder / "work" / name
        work.mkdir(parents=True)
        for shared in ("examples", "experiments"):
            (work / shared).symlink_to(ROOT / shared)
        return work


def run_bash(script, work, env):
    """(exit code, output); nothing that was started stays."""
    child = subprocess.Popen(["bash", "-c", script], cwd=work, env=env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    late = ""
    try:
        out, _ = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        late = f"killed after {LIMIT} seconds\n"
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if late:
        out, _ = child.communicate()
    return child.returncode, out.decode("utf-8", "backslashreplace") + late


# ---- blocks -----------------------------------------------------------------

# Commands in the background have to succeed as well.
TAIL = """
for job in $(jobs -p); do wait "$job"; done
"""


def settings(block, env):
    """The environment of a block: words for its commands."""
    env = dict(env)
    more = dict(QUICK) if block.mark("quick") is not None else {}
    for mark in block.marks:
        if mark.startswith("add "):
            _, command, words = mark.split(" ", 2)
            more[command] = (more.get(command, "") + " " + words).strip()
    for command, words in more.items():
        env["HOOKE_ADD_" + command] = words
    return env


def text_of(block):
    text = block.text
    for mark in block.marks:
        if mark.startswith("replace "):
            old, _, new = mark[len("replace "):].partition(" => ")
            if old not in text:
                raise Failure(f"nothing to replace: {old}")
            text = text.replace(old, new)
        if mark.startswith("port "):
            text = re.sub(rf"\b{mark[5:]}\b", str(free_port()), text)
    return text


def dry_run(text):
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] != "make":
            raise Failure(f"a dry run of {words[0]}")
        done = subprocess.run(["make", "-n"] + words[1:], cwd=ROOT,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"{line}: {done.stderr}")


def run_shell(block, work, env):
    script = text_of(block)
    if block.mark("dry-run") is not None:
        dry_run(script)
        return
    before = block.mark("prepare")
    if before:
        code, out = run_bash("set -eu\n" + before, work, env)
        if code:
            raise Failure(f"prepare: code {code}\n{out}")
    code, out = run_bash("set -eu\n" + script + TAIL, work,
                         settings(block, env))
    wanted = int(block.mark("fails") or 0)
    if code != wanted:
        raise Failure(f"code {code}, expected {wanted}\n{out}")
    after = block.mark("then")
    if after:
        code, seen = run_bash("set -euo pipefail\n" + after, work,
                              settings(block, env))
        if code:
            raise Failure(f"then: code {code}\n{seen}\nafter\n{out}")


def pattern(lines):
    """Expected output: numbers and the blanks around them may differ."""
    parts = []
    for line in lines:
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
            continue
        text = re.escape(line.rstrip())
        text = re.sub(r"(\\ )+", r"[ \\t]+", text)
        text = re.sub(r"\d[\d.:]*(\\\.\d+)*(?:e\\?-?\d+)?",
                      r"[-\\d.:e+]+", text)
        parts.append(text + r"[ \t]*\n")
    return re.compile("".join(parts))


def run_console(block, work, env):
    steps = []
    for line in text_of(block).splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif not steps:
            raise Failure("output before the first command")
        elif steps and not steps[-1][1] and steps[-1][0].endswith("\\"):
            steps[-1] = (steps[-1][0] + "\n" + line, [])
        else:
            steps[-1][1].append(line)
    env = settings(block, env)
    for command, expected in steps:
        code, out = run_bash("set -eu\n" + command, work, env)
        if code != int(block.mark("fails") or 0):
            raise Failure(f"{command}\ncode {code}\n{out}")
        if not pattern(expected).fullmatch(out):
            raise Failure(f"{command}\nexpected:\n" + "\n".join(expected) +
                          f"\ngot:\n{out}")


def compile_c(block, work, place):
    text = block.text
    name = block.mark("file")
    parameters = block.mark("body")
    if name is None and parameters is None:
        raise Failure("a C block needs a mark: file NAME, body DECLARATIONS "
                      "or skip: REASON")
    if parameters is not None:
        text = ("#include <hooke/hooke.h>\n#include <stdio.h>\n"
                f"void body({parameters or 'void'});\n"
                f"void body({parameters or 'void'}) {{\n{text}}}\n")
    path = work / (name or f"body{block.line}.c")
    path.write_text(text)
    cc = os.environ.get("CC", "cc")
    done = subprocess.run(
        [cc, *FLAGS, "-I", place.include, "-fsyntax-only", path],
        capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failure(done.stderr)


def write_file(block, work):
    name = block.mark("file")
    if name is None:
        raise Failure(f"a {block.language} block needs the mark file NAME, or "
                      "skip: REASON")
    path = work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(block))


def do_block(block, work, place):
    if block.language == "sh":
        run_shell(block, work, place.env)
    elif block.language == "console":
        run_console(block, work, place.env)
    elif block.language == "c":
        compile_c(block, work, place)
    elif block.language in ("yaml", "csv"):
        write_file(block, work)
    elif block.language == "json":
        json.loads(block.text)
        if block.mark("file") is not None:
            write_file(block, work)
    elif block.language == "python":  # run by bindings/python/tests/test_docs.py
        compile(block.text, str(work), "exec")
    elif block.language != "text":
        raise Failure(f"a block of kind '{block.language}' is neither run nor "
                      "skipped; text is for what is neither")


class Result:
    def __init__(self):
        self.problems, self.skipped = [], []
        self.run = 0
        self.seconds = 0.0


def run_page(page, place):
    """Runs the blocks of a page in order; the first that fails ends it."""
    result = Result()
    begin = time.monotonic()
    work = None
    for block in pages.blocks(page):
        reason = block.mark("skip")
        needs = block.mark("needs")
        if reason is None and needs and not shutil.which(needs):
            reason = f"{needs} is not installed here"
        if reason is not None:
            result.skipped.append(f"{block.place}: {reason or 'no reason'}")
            if not reason:
                result.problems.append(f"{block.place}: skipped without a "
                                       "reason")
            continue
        work = work or place.work_folder(page)
        try:
            do_block(block, work, place)
            result.run += block.language != "text"
        except (Failure, ValueError) as e:
            result.problems.append(f"{block.place}: {e}")
            break
    if str(page.relative_to(ROOT)) == MEASURED:
        result.skipped += [f"{MEASURED}:{n}: a measurement: {text}"
                           for n, text in pages.indented_commands(page)]
    result.seconds = time.monotonic() - begin
    return result


# ---- what is not run --------------------------------------------------------

def known_options(program):
    """{command: options} from the program's own reference."""
    text = subprocess.run([program, "help", "--format", "markdown"],
                          capture_output=True, text=True, check=True).stdout
    head, *parts = re.split(r"^## hooke ", text, flags=re.M)
    common = set(re.findall(r"`(--?[a-z-]+)", head))
    out = {}
    for part in parts:
        options = re.findall(r"^- (?:`(-\w)`, )?`(--[a-z-]+)", part, re.M)
        out[part.split()[0]] = common | {o for pair in options for o in pair}
    return out


def check_words(words, options):
    """A problem with `hooke COMMAND --option...`, or None."""
    if len(words) < 2 or not re.fullmatch(r"[a-z]+", words[1]):
        return None
    if words[1] not in options:
        return f"no command {words[1]}"
    for word in words[2:]:
        if word in ("|", "&", "&&", ";", ">"):
            break
        name = re.match(r"--[a-z][a-z-]*", word)
        if name and name.group() not in options[words[1]]:
            return f"hooke {words[1]} has no option {name.group()}"
    return None


def check_options(page, options):
    problems = []
    place = page.relative_to(ROOT)
    texts = [(n, t) for n, t in pages.spans(page)]
    texts += list(pages.indented_commands(page))
    for block in pages.blocks(page):
        joined = block.text.replace("\\\n", " ")
        if block.language in ("sh", "console"):
            texts += [(block.line, t.lstrip("$ ")) for t in joined.split("\n")]
    for n, text in texts:
        words = text.split()
        if words[:1] == ["hooke"]:
            bad = check_words(words, options)
            if bad:
                problems.append(f"{place}:{n}: {bad}: {text}")
        tool = re.match(r"(tools|tests|bench|scripts|examples)/\S+",
                        words[0] if words else "")
        if tool and tool.group() not in check_paths.NO_NAMES and not (
                list(ROOT.glob(tool.group())) or
                (ROOT / (tool.group() + ".c")).exists()):
            problems.append(f"{place}:{n}: no {tool.group()}")
        if words[:1] == ["make"] and len(words) > 1:
            if not re.search(rf"(^|\s){re.escape(words[1])}(\s|:)",
                             (ROOT / "Makefile").read_text()):
                if not words[1].startswith("test-"):
                    problems.append(f"{place}:{n}: no target: {text}")
    return problems


def check_links(page):
    problems = []
    for n, target in pages.links(page):
        path = target.split("#")[0]
        if re.match(r"[a-z]+:", target) or not path:
            continue
        if not (page.parent / path).exists():
            problems.append(f"{page.relative_to(ROOT)}:{n}: no {target}")
    return problems


# A build option.
NO_NAMES = {"HK_IMAGES",
            # Made by tests/add_operator and tests/add_method.
            "hk_softsign", "HK_METHOD_BOUNDED"}


def former_names(page):
    """Names in the first column of the table of what 0.1 called otherwise."""
    _, _, table = page.read_text().partition("\n## From Hooke 0.1\n")
    cells = [line.split("|")[1] for line in table.splitlines()
             if line.startswith("|")]
    return set(re.findall(r"\b(?:hk|HK)_\w+", " ".join(cells)))


def check_names(page, headers):
    """Names of the interface that a page speaks of."""
    place = page.relative_to(ROOT)
    problems = []
    known = NO_NAMES | former_names(page)
    for n, text in pages.spans(page):
        for name in re.findall(r"\b(?:hk|HK)_\w+", text):
            if (name not in headers and not name.endswith("_") and
                    name not in known):
                problems.append(f"{place}:{n}: {name} is in no header")
    return problems


def check_indented(page):
    name = str(page.relative_to(ROOT))
    if name in GENERATED or name == MEASURED:
        return []
    return [f"{name}:{n}: code that no test sees; fence it: {text}"
            for n, text in pages.indented_code(page)]


# The examples of commands.md come from the program. Each is run as this file
# says: "command", and below it "  COMMANDS" or "  skip: REASON".
def examples_plan():
    plan, key = {}, None
    for line in (HERE / "examples.txt").read_text().splitlines():
        if line.startswith("  ") and key:
            plan[key] += line.strip() + "\n"
        elif line.strip() and not line.startswith("#"):
            key = line
            plan[key] = ""
    return plan


def run_examples(place):
    """The examples of docs/commands.md."""
    result = Result()
    begin = time.monotonic()
    page = ROOT / "docs" / "commands.md"
    work = place.work_folder(HERE / "examples.txt")
    plan = examples_plan()
    env = dict(place.env)
    for command, words in QUICK.items():
        env["HOOKE_ADD_" + command] = words
    seen = set()
    for n, command in pages.indented_commands(page):
        where = f"docs/commands.md:{n}"
        seen.add(command)
        script = plan.get(command)
        if script is None:
            result.problems.append(f"{where}: not in tests/docs/examples.txt: "
                                   f"{command}")
        elif script.startswith("skip: "):
            result.skipped.append(f"{where}: {script[6:].strip()}")
        else:
            script = script.replace("PORT", str(free_port()))
            code, out = run_bash("set -eu\n" + (script or command) + TAIL,
                                 work, env)
            result.run += 1
            if code:
                result.problems.append(f"{where}: {command}: code {code}\n"
                                       f"{out}")
    for command in sorted(set(plan) - seen):
        result.problems.append("tests/docs/examples.txt: not an example any "
                               f"more: {command}")
    result.seconds = time.monotonic() - begin
    return result


def check_generated(program, update):
    problems = []
    for name, words in GENERATED.items():
        fresh = subprocess.run([program, *words], capture_output=True,
                               text=True, check=True).stdout
        path = ROOT / name
        if path.exists() and path.read_text() == fresh:
            continue
        if update:
            path.write_text(fresh)
        else:
            problems.append(f"{name}: not what hooke {' '.join(words)} gives; "
                            "tests/docs/run.py --update PROGRAM BUILD_DIR")
    return problems


def check_api(folder):
    """The reference of the C interface can be made of the headers."""
    out = pathlib.Path(folder, "api")
    done = subprocess.run([ROOT / "tools" / "make_api.py", out],
                          capture_output=True, text=True, check=False)
    pages_made = {p.stem for p in out.glob("*.md")}
    headers = {p.stem for p in (ROOT / "include/hooke").glob("*.h")}
    if done.returncode or not headers <= pages_made:
        return [f"tools/make_api.py: code {done.returncode}: {done.stderr} no "
                f"page for {sorted(headers - pages_made)}"]
    return []


def report(name, result):
    print(f"{'FAILED' if result.problems else 'ok    '} {name}: "
          f"{result.run} blocks, {result.seconds:.1f} s")
    for line in result.problems:
        print("  " + line.replace("\n", "\n    "))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--only", help="pages whose path holds this text")
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    a = parser.parse_args()
    program = a.program.resolve()
    problems = check_generated(program, a.update)
    options = known_options(program)
    headers = "".join(h.read_text() for h in
                      (ROOT / "include/hooke").glob("*.h"))
    chosen = [p for p in pages.all_pages()
              if not a.only or a.only in str(p.relative_to(ROOT))]
    for page in chosen:
        problems += check_options(page, options) + check_links(page)
        problems += check_indented(page) + check_names(page, headers)
    problems += check_formats.problems() + check_messages.problems()
    problems += check_paths.problems()
    results = []
    with tempfile.TemporaryDirectory(prefix="hooke-docs-") as folder:
        problems += check_api(folder)
        place = Place(program, a.build.resolve(), folder)
        jobs = {}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for page in chosen:
                name = str(page.relative_to(ROOT))
                if name in GENERATED:
                    continue
                jobs[name] = pool.submit(run_page, page, place)
            if not a.only or a.only in "docs/commands.md":
                jobs["docs/commands.md"] = pool.submit(run_examples, place)
        for name, job in jobs.items():
            results.append((name, job.result()))
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
    for name, result in results:
        report(name, result)
    for line in problems:
        print("FAILED " + line)
    skipped = [s for _, r in results for s in r.skipped]
    for line in skipped:
        print("skip   " + line)
    failed = sum(bool(r.problems) for _, r in results) + len(problems)
    print(f"{sum(r.run for _, r in results)} blocks ran, {len(skipped)} "
          f"skipped, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
