#!/usr/bin/env python3
"""handed_on.py HOOKE SOURCES: every option of `hooke train` is one that
`--processes` hands on to its children, or stands in processes.c among those
that speak of the whole."""
import pathlib
import re
import subprocess
import sys


def options(program, command):
    text = subprocess.run([program, command, "--help"], check=True,
                          capture_output=True, text=True).stdout
    return set(re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text, re.M))


def main():
    program, root = sys.argv[1:]
    source = pathlib.Path(root, "cli/run/processes.c").read_text()
    listed = re.search(r"ours\[\] = \{(.*?)\}", source, re.S).group(1)
    ours = set(re.findall(r'"([a-z-]+)"', listed))
    train = options(program, "train")
    told = options(program, "worker") | options(program, "center")
    for name in sorted(train - told - ours):
        print(f"--{name}: no child knows it, and processes.c does not say why")
    for name in sorted(ours - train):
        print(f"--{name}: in processes.c, but no option of hooke train")
    print(f"{len(train & told - ours) > 5} {len(train & ours) > 5}")


if __name__ == "__main__":
    main()
