"""The common form of what the benches find.

Every run_*.py calls `write`: build/bench/NAME.json then holds

    {"bench": "optim", "machine": "2 cores, AMD EPYC, AVX-512", "cpu": "...",
     "command": "bench/run_optim.py --rounds 9", "date": "2026-01-31",
     "load": 0.1, "ratios": [{"case": "adam_25m/1", "ratio": 3.9,
     "unit": "x torch 1.13", "better": "higher"}, ...], "details": ...}

`unit` says what the ratio is of; figures of two units are not compared.
compare.py keeps the last ones in docs/bench.json and looks for what fell.
"""

import datetime
import json
import os
import re
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
FAMILY = re.compile(r"\b(Xeon|EPYC|Core|Ryzen|Threadripper|Neoverse)\b")
MAKER = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}


def higher(case, ratio, unit):
    """A figure that is better when it is larger."""
    return {"case": case, "ratio": ratio, "unit": unit, "better": "higher"}


def lower(case, ratio, unit):
    """A figure that is better when it is smaller: times, shares of a floor."""
    return {"case": case, "ratio": ratio, "unit": unit, "better": "lower"}


def cpu_facts():
    """The first processor's lines of /proc/cpuinfo."""
    facts = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            for line in f:
                key, _, value = line.partition(":")
                facts.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    return facts


def machine(facts, cores):
    """A name that machines share on which ratios can be compared."""
    model = facts.get("model name", "")
    maker = MAKER.get(facts.get("vendor_id"), facts.get("vendor_id", ""))
    family = FAMILY.search(model)
    kind = (maker + " " + (family.group(1) if family else model)).strip()
    flags = facts.get("flags", "").split()
    level = ("AVX-512" if "avx512f" in flags else
             "AVX2" if "avx2" in flags else "")
    return ", ".join(filter(None, ("%d cores" % cores, kind, level)))


def this_machine():
    return machine(cpu_facts(), len(os.sched_getaffinity(0)))


def peer_unit(info):
    """What a ratio against PyTorch is of: "torch 1.13.1, ..." and the like."""
    found = re.search(r"torch (\d+\.\d+)", info or "")
    return "x torch" + (" " + found.group(1) if found else "")


def command_line():
    words = [os.path.relpath(os.path.abspath(sys.argv[0]), ROOT)]
    return shlex.join(words + sys.argv[1:])


def write(path, bench, found, details):
    """Writes the figures of one bench; those that are None are left out."""
    result = {"bench": bench, "machine": this_machine(),
              "cpu": cpu_facts().get("model name", ""),
              "command": command_line(),
              "date": datetime.date.today().isoformat(),
              "load": round(os.getloadavg()[0], 2),
              "ratios": [r for r in found if r["ratio"] is not None],
              "details": details}
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
