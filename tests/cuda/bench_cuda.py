#!/usr/bin/env python3
"""Checks how bench/cuda judges what it is told: gradients against PyTorch's, and
kernels against the floors of a card. Made-up figures; no card, no PyTorch.
"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "cuda"))
sys.dont_write_bytecode = True

import ladder  # noqa: E402
import run_cuda  # noqa: E402


def expect(what, got, want):
    if got != want:
        sys.exit("%s: %r, expected %r" % (what, got, want))


def gradients():
    def ok(precision, *lines):
        return run_cuda.judge(lines, precision)["ok"]
    expect("exact", ok("fp32", "loss 0 0", "grad/w 1e-7 1e-7"), True)
    expect("a wrong tensor", ok("fp32", "loss 0 0", "grad/w 2e-5 1e-7"), False)
    expect("as PyTorch", ok("tf32", "a 3e-2 2e-2", "b 1e-2 2e-2"), True)
    expect("further off", ok("tf32", "a 5e-2 2e-2", "b 1e-2 2e-2"), False)
    # One that PyTorch has by chance to the last bit.
    expect("as usual", ok("bf16", "a 3e-2 1e-4", "b 2e-2 2e-2", "c 1e-2 2e-2"),
           True)
    expect("not a number", ok("bf16", "a nan 1e-2", "b 0 0"), False)
    expect("missing", ok("fp32", "a missing"), False)
    expect("nothing", ok("fp32"), False)


def line(op, us, size, flop, name="", why=""):
    return "\t".join((op, name, "", us, size, flop, "", "", "", why))


def floors():
    told = [line("copy", "2", "4096", "0"), line("copy", "8", "65536", "0"),
            line("copy", "", "262144", "0", why="out of memory"),
            line("product", "10", "12", "1000000")]
    found = ladder.rungs(subprocess.CompletedProcess([], 0, "\n".join(told), ""))
    expect("lines", len(found), 4)
    expect("failed", [r["why"] for r in ladder.failed({"floors": found})],
           ["out of memory"])
    card = ladder.Floors(found)
    expect("a short copy", card.copy_us(4), 2)
    expect("between", round(card.copy_us(16384), 6), 4)
    expect("a long copy", card.copy_us(131072), 16)
    expect("by bytes", card.of({"bytes": 65536, "flop": 1000}), (8, "copy"))
    expect("by flop", card.of({"bytes": 8, "flop": 1e6}), (10, "product"))


def kernels():
    """Those that are alike are one line; a program that ends is one, too."""
    text = "\n".join("dense\t%s\t\t%s\t8\t16\tfloat32[2,2] \tfloat32[2] \t\t" % x
                     for x in (("a", "2"), ("b", "3")))
    done = subprocess.CompletedProcess([], 1, text, "no memory\n")
    found = ladder.different(ladder.rungs(done))
    expect("alike", [(r["name"], r["count"]) for r in found],
           [("a", 2), ("", 1)])
    expect("the end", found[1]["why"], "no memory")


gradients()
floors()
kernels()
