#!/usr/bin/env python3
"""Checks what scripts/demo prints about its two runs, on made-up results."""
import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True

ALONE = {"examples": 96000, "seconds": 2.0,
         "weights": {"ema": {"accuracy": 0.9772},
                     "local": {"accuracy": 0.9512}}}
FOUR = {"examples": 384000, "seconds": 2.5,
        "weights": {"center": {"accuracy": 0.98}, "ema": {"accuracy": 0.9806},
                    "local/0": {"accuracy": 0.9798},
                    "local/1": {"accuracy": 0.98}}}
ONE = [(0.1, 0.12), (0.9, 0.971), (1.7, 0.9778)]
MANY = [(0.2, 0.11), (0.8, 0.975), (2.4, 0.9806)]

EXPECTED = """\
                            test accuracy
one worker alone                  95.12 %   1500 steps
its average (EMA)                 97.72 %
4 workers, on average             97.99 %   1500 steps each, from 97.98 to 98.00
their center                      98.00 %
the center's average (EMA)        98.06 %
One worker trained on 48,000 examples per second, 4 workers on 153,600.
97.78 %, by the model or its average in any evaluation: one worker after
1.7 s, 4 workers after 2.4 s.
"""


def main():
    loader = importlib.machinery.SourceFileLoader(
        "demo", str(ROOT / "scripts" / "demo"))
    demo = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("demo", loader))
    loader.exec_module(demo)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        demo.table(ALONE, FOUR)
        print(demo.speed(ALONE, FOUR))
        print(demo.times(ONE, MANY))
    if out.getvalue() != EXPECTED:
        sys.exit(f"scripts/demo prints\n{out.getvalue()}instead of\n{EXPECTED}")


if __name__ == "__main__":
    main()
