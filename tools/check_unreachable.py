#!/usr/bin/env python3
"""No statement is behind one that always leaves: gcc accepts -Wunreachable-code
and ignores it, so that clang looks at every C file of the build.

    check_unreachable.py BUILD_FOLDER [FILE...]
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("src", "cli", "tests", "examples", "bench", "fuzz")


def clang_command(entry):
    """The flags of gcc that clang needs for the syntax."""
    words = shlex.split(entry["command"])
    kept = [w for w in words if w.startswith(("-D", "-I", "-std=", "-m"))]
    kept += [w for i, x in enumerate(words) if x == "-isystem"
             for w in words[i:i + 2]]
    return ["clang", *kept, "-fsyntax-only", "-Wunreachable-code", "-Werror",
            entry["file"]]


def check(entry):
    done = subprocess.run(clang_command(entry), cwd=entry["directory"],
                          capture_output=True, text=True)
    return done.stderr if done.returncode != 0 else ""


def main():
    if shutil.which("clang") is None:
        print("unreachable: clang is not installed; not checked")
        return 0
    build = pathlib.Path(sys.argv[1])
    chosen = {str(pathlib.Path(f).resolve()) for f in sys.argv[2:]}
    entries = [e for e in json.loads((build / "compile_commands.json").read_text())
               if e["file"].endswith(".c")
               and pathlib.Path(e["file"]).relative_to(ROOT).parts[0] in FOLDERS
               and (not chosen or e["file"] in chosen)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = [r for r in pool.map(check, entries) if r]
    print(*reports, sep="\n", end="")
    print(f"unreachable: {len(entries)} compilations checked, "
          f"{len(reports)} with a fault")
    return 1 if reports or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
