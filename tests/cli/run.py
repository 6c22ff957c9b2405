#!/usr/bin/env python3
"""Runs the command-line cases and compares their exact output.

    run.py [--update] PROGRAM [CASE.txt...]

A case is a file of steps:

    $ command line          run by sh in a private folder, PROGRAM as `hooke`
    expected stdout
    > expected stderr line  (after the stdout lines)
    ? 2                     expected exit code, 0 if absent

A line of `...` stands for any lines; inside a line `[...]` stands for any
text. Lines that begin with # are comments; a backslash in front makes such a
line, or one with another mark, part of stdout. `# needs: WORD...` skips the case
when a command, or a folder of the data, is not there; `# slow` leaves it out
where HOOKE_SLOW_PROGRAM is set, as it is for programs with sanitizers.
--update writes what was printed into steps that did not match, for a person to
look at. Exit code 77: everything was skipped.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS",
        "TSAN_OPTIONS", "UBSAN_OPTIONS", "CC", "CUDA_VISIBLE_DEVICES")
LIMIT = 240  # seconds for a step, on a loaded machine
SKIPPED = 77  # what CTest takes as skipped
PLACES = ("CASES", "ROOT", "DATA", "TMPDIR")
MARKS = ("#", "$ ", ">", "? ", "\\")


class Step:
    def __init__(self, number, command):
        self.number = number
        self.command = command
        self.before = []  # comments and blank lines above
        self.out = []
        self.err = []
        self.code = 0

    def lines(self):
        yield from self.before
        yield "$ " + self.command
        for x in self.out:
            yield "\\" + x if x.startswith(MARKS) else x
        yield from ("> " + x if x else ">" for x in self.err)
        if self.code:
            yield f"? {self.code}"


def parse(path):
    """Steps, and the comments after the last one."""
    steps, waiting = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("\\") and steps:
            steps[-1].out.append(line[1:])
        elif line.startswith("#"):
            waiting.append(line)
        elif line.startswith("$ "):
            step = Step(number, line[2:])
            # Blank lines between steps belong to the next one.
            while steps and steps[-1].out and steps[-1].out[-1] == "":
                waiting.insert(0, steps[-1].out.pop())
            step.before, waiting = waiting, []
            steps.append(step)
        elif not steps:
            waiting.append(line)
        elif line.startswith("? "):
            steps[-1].code = int(line[2:])
        elif line == ">" or line.startswith("> "):
            steps[-1].err.append(line[2:])
        elif line == "" and (steps[-1].err or steps[-1].code):
            waiting.append(line)
        else:
            steps[-1].out.append(line)
    while steps and steps[-1].out and steps[-1].out[-1] == "":
        steps[-1].out.pop()
    return steps, waiting


def pattern(lines):
    """A regular expression for the expected lines."""
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            text = "[^\n]*".join(re.escape(p) for p in line.split("[...]"))
            parts.append(text + r"\n")
    return re.compile("".join(parts))


def matches(expected, got):
    if got and not got.endswith("\n"):
        got += "\n"
    return pattern(expected).fullmatch(got) is not None


def check(what, expected, got):
    if matches(expected, got):
        return []
    return [f"  {what}, expected:"] + [f"    {x}" for x in expected] + [
        f"  {what}, got:"] + [f"    {x}" for x in got.splitlines()]


def environment(folder, program):
    tools = pathlib.Path(folder, "bin")
    tools.mkdir()
    (tools / "hooke").symlink_to(program)
    env = {k: v for k, v in os.environ.items() if k in KEPT}
    env["PATH"] = f"{tools}:{env['PATH']}"
    env["ROOT"] = str(ROOT)
    env["CASES"] = str(HERE)
    env["DATA"] = str(ROOT.parent / "shared" / "data")
    env["TMPDIR"] = str(pathlib.Path(folder))
    env["LC_ALL"] = "C.UTF-8"
    # Threads that wait must not take the processor from other tests.
    env["OMP_WAIT_POLICY"] = "passive"
    return env


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def who_hangs(session):
    """The processes of a session, and what each of their threads does."""
    lines = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        after_name = read(process / "stat").rpartition(")")[2].split()
        if len(after_name) < 4 or after_name[3] != str(session):
            continue
        command = read(process / "cmdline").replace("\0", " ")
        lines.append(f"{process.name} {command}")
        signals = [line for line in read(process / "status").splitlines()
                   if line.startswith(("State", "Sig", "Shd"))]
        lines.append("  " + ", ".join(signals).replace("\t", " "))
        lines += [f"  {read(thread / 'comm').strip()}: "
                  f"{read(thread / 'wchan')} {read(thread / 'syscall').strip()}"
                  for thread in sorted((process / "task").glob("*"))]
    return "\n".join(lines) + "\n"


def run_step(step, work, env):
    child = subprocess.Popen(["sh", "-c", step.command], cwd=work, env=env,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, start_new_session=True)
    late = b""
    try:
        out, err = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        late = (f"killed after {LIMIT} seconds\n" +
                who_hangs(child.pid)).encode()
    try:  # whatever it has left running
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if late:
        out, err = child.communicate()
    # Paths of this machine are not part of the expected text.
    texts = []
    for raw in (out, late + err):
        text = raw.decode("utf-8", "backslashreplace")
        for name in sorted(PLACES, key=lambda x: -len(env[x])):
            text = text.replace(env[name], "$" + name)
        texts.append(text)
    return texts[0], texts[1], child.returncode


def needs(path):
    words = []
    for line in path.read_text().splitlines():
        if line.startswith("# needs:"):
            words += line.split(":", 1)[1].split()
    return [w for w in words if not (ROOT.parent / "shared" / w).exists()
            and not shutil.which(w)]


def run_case(program, path, update):
    """(problems, reason to skip)"""
    missing = needs(path)
    if missing:
        return [], "needs " + " ".join(missing)
    if os.environ.get("HOOKE_SLOW_PROGRAM") and "# slow\n" in path.read_text():
        return [], "too slow for this build"
    steps, rest = parse(path)
    problems = []
    with tempfile.TemporaryDirectory(prefix="hooke-cli-") as folder:
        env = environment(folder, program)
        work = pathlib.Path(folder, "work")
        work.mkdir()
        for step in steps:
            out, err, code = run_step(step, work, env)
            bad = check("stdout", step.out, out) + check("stderr", step.err,
                                                         err)
            if code != step.code:
                bad.append(f"  exit code {code}, expected {step.code}")
            if not bad:
                continue
            problems.append(f"{path.name}:{step.number}: {step.command}")
            problems += bad
            if update:
                if not matches(step.out, out):
                    step.out = out.splitlines()
                if not matches(step.err, err):
                    step.err = err.splitlines()
                step.code = code
        subprocess.run(["chmod", "-R", "u+rwX", folder], check=False)
    if update and problems:
        lines = [x for step in steps for x in step.lines()] + rest
        path.write_text("\n".join(lines) + "\n")
    return problems, None


def main():
    words = sys.argv[1:]
    update = words[:1] == ["--update"]
    words = words[update:]
    program = pathlib.Path(words[0]).resolve()
    cases = [pathlib.Path(p).resolve() for p in words[1:]]
    cases = cases or sorted(HERE.glob("*.txt"))
    failed = skipped = 0
    jobs = 1 if update else max(2, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        results = pool.map(lambda c: run_case(program, c, update), cases)
        for case, (problems, skip) in zip(cases, results):
            failed += bool(problems)
            skipped += skip is not None
            state = "FAILED" if problems else "skip  " if skip else "ok    "
            print(f"{state} {case.stem}{': ' + skip if skip else ''}",
                  flush=True)
            for line in problems:
                print(line)
    print(f"{len(cases) - failed - skipped} of {len(cases)} cases passed, "
          f"{skipped} skipped")
    if failed or not cases:
        return 1
    return SKIPPED if skipped == len(cases) else 0


if __name__ == "__main__":
    sys.exit(main())
