#!/usr/bin/env python3
"""Keeps the last ratios of every bench, and finds what fell.

    compare.py compare [--least PERCENT] [--machine NAME] [FILE...]
    compare.py record [--note TEXT] [FILE...]

FILE are results of run_*.py (all of build/bench). `compare` prints what is
worse by more than PERCENT (10) than docs/bench.json has it for this machine,
and ends with 1 if there is such a figure, with 2 if nothing could be compared.
--machine takes the figures of another machine. `record` puts the results into
docs/bench.json; cases that were not run keep what they have.

docs/bench.json is {machine: {bench/case: figure}}; a figure says by which
command it was found, when, and at which load of the machine.
"""

import argparse
import glob
import json
import os
import sys

import ratios

KEPT = os.path.join(ratios.ROOT, "docs", "bench.json")


def load_runs(paths):
    """The results of benches; other files are passed over."""
    for path in paths or sorted(glob.glob(
            os.path.join(ratios.ROOT, "build", "bench", "*.json"))):
        with open(path, encoding="utf-8") as f:
            run = json.load(f)
        if isinstance(run, dict) and "ratios" in run:
            yield run
        else:
            print("%s: no ratios in it, passed over" % path)


def load_kept(path):
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def figures(run, note):
    """{bench/case: figure} of a run."""
    more = {key: run[key] for key in ("command", "date", "load")}
    if note:
        more["note"] = note
    return {run["bench"] + "/" + r["case"]: {
        "ratio": float("%.4g" % r["ratio"]), "unit": r["unit"],
        "better": r["better"], **more} for r in run["ratios"]}


def save(path, kept):
    """One figure a line, so that a change can be read."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("{")
        for i, (machine, cases) in enumerate(sorted(kept.items())):
            f.write("%s\n %s: {" % ("," if i else "", json.dumps(machine)))
            for k, (case, figure) in enumerate(sorted(cases.items())):
                f.write("%s\n  %s: %s" % ("," if k else "", json.dumps(case),
                                          json.dumps(figure)))
            f.write("\n }")
        f.write("\n}\n")


def record(args):
    kept = load_kept(args.kept)
    for run in load_runs(args.files):
        found = figures(run, args.note)
        kept.setdefault(run["machine"], {}).update(found)
        print("%s: %d figures of %s" % (run["bench"], len(found),
                                        run["machine"]))
    save(args.kept, kept)
    return 0


def change(old, new):
    """How many times as good as before."""
    if new["better"] == "higher":
        return new["ratio"] / old["ratio"] if old["ratio"] else 1.0
    return old["ratio"] / new["ratio"] if new["ratio"] else 1.0


def compare(args):
    kept = load_kept(args.kept)
    seen, fell = 0, 0
    for run in load_runs(args.files):
        machine = args.machine or run["machine"]
        before = kept.get(machine)
        if before is None:
            print("%s: nothing is kept of '%s'; there are: %s" % (
                run["bench"], machine, "; ".join(sorted(kept)) or "none"))
            continue
        for case, new in sorted(figures(run, None).items()):
            old = before.get(case)
            if old is None or old["unit"] != new["unit"]:
                continue
            seen += 1
            times = change(old, new)
            if times < 1 - args.least / 100:
                fell += 1
                print("%-32s %8.4g, was %8.4g %s (%s, %s): %.0f %% worse" % (
                    case, new["ratio"], old["ratio"], old["unit"],
                    old["date"], "load %s" % old["load"],
                    100 * (1 - times)))
    print("%d figures compared, %d fell by more than %g %%" % (
        seen, fell, args.least))
    return 1 if fell else 0 if seen else 2


def main():
    parser = argparse.ArgumentParser(description="ratios of the benches")
    parser.add_argument("--kept", default=KEPT, help="docs/bench.json")
    commands = parser.add_subparsers(dest="command", required=True)
    p = commands.add_parser("compare")
    p.add_argument("--least", type=float, default=10.0)
    p.add_argument("--machine")
    p.add_argument("files", nargs="*")
    p.set_defaults(run=compare)
    p = commands.add_parser("record")
    p.add_argument("--note")
    p.add_argument("files", nargs="*")
    p.set_defaults(run=record)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
