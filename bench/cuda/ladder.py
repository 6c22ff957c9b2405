"""The ladder of kernels: each by itself, beside what this card can do.

A rung is a kernel of a network's training step, or a pass over vectors. It has
its microseconds, the bytes and flop that it cannot do without, and the share of
a floor that was measured in the same run: a copy that moves as many bytes, or
the flop of a large product in the same precision, whichever takes longer. 100 %
is a kernel that is as fast as that.
"""

import json
import math

FIELDS = ("op", "name", "note", "us", "bytes", "flop", "in", "out", "attr",
          "why")
# Networks whose steps have all the shapes that matter, and their vectors: the
# parameters of the MLP, and many; rows of tables in a batch of the recommender.
SIZES = {"cases": ["mlp64", "mlp1024", "rec8192", "lenet512", "resnet20_128"],
         "vectors": [535818, 25000000], "rows": [2048, 30000],
         "bytes": 2 ** 30, "side": 4096, "ms": 6}
PLAYED = {"cases": ["mlp2", "rec2"], "vectors": [1000], "rows": [10],
          "bytes": 2 ** 16, "side": 16, "ms": 1e-3}


def rungs(done):
    """The lines of bench_ladder; one more where it ended over them."""
    found = []
    for line in done.stdout.splitlines():
        fields = line.split("\t")
        if len(fields) == len(FIELDS):
            rung = dict(zip(FIELDS, fields))
            for key in "us", "bytes", "flop":
                rung[key] = float(rung[key]) if rung[key] else None
            found.append(rung)
    if done.returncode != 0:
        told = (done.stderr or "").strip().splitlines()
        found.append({**dict.fromkeys(FIELDS, ""), "us": None, "bytes": 0,
                      "flop": 0, "why": told[-1] if told else "ended with %d" %
                      done.returncode})
    return found


def different(found):
    """Of kernels that are alike the first, and how many there are."""
    out = {}
    for rung in found:
        key = tuple(rung[k] for k in ("op", "note", "in", "out", "attr", "why"))
        if key in out and rung["in"]:
            out[key]["count"] += 1
        else:
            out[key if rung["in"] else (key, len(out))] = {**rung, "count": 1}
    return list(out.values())


class Floors:
    """What the card does: copies by their bytes, and a product."""

    def __init__(self, found):
        good = [r for r in found if r["us"]]
        self.copies = sorted((r["bytes"], r["us"]) for r in good
                             if r["op"] == "copy")
        products = [r["flop"] / r["us"] for r in good if r["op"] == "product"]
        self.flop_per_us = max(products, default=None)

    def copy_us(self, n):
        """Between two lengths of copies on a line of logarithms."""
        if not self.copies:
            return None
        if n <= self.copies[0][0]:
            return self.copies[0][1]
        if n >= self.copies[-1][0]:
            return self.copies[-1][1] * n / self.copies[-1][0]
        for (a, ta), (b, tb) in zip(self.copies, self.copies[1:]):
            if n <= b:
                part = math.log(n / a) / math.log(b / a)
                return math.exp(math.log(ta) + part * math.log(tb / ta))
        return None

    def of(self, rung):
        """(microseconds, name) of the floor under a rung."""
        below = [(self.copy_us(rung["bytes"]), "copy")]
        if rung["flop"] and self.flop_per_us:
            below.append((rung["flop"] / self.flop_per_us, "product"))
        return max((b for b in below if b[0]), default=(None, ""))

    def text(self):
        lines = ["copy of %11.0f bytes %9.2f us %8.1f GB/s" % (
            n, us, n / us * 1e-3) for n, us in self.copies]
        if self.flop_per_us:
            lines.append("product %.1f TFLOP/s" % (self.flop_per_us * 1e-6))
        return "\n".join(lines) or "no floor"


class Peer:
    """Asks the other side, until it has ended over two rungs."""

    def __init__(self, program):
        self.program, self.left = program, 2

    def us(self, rung):
        """(microseconds, None) or (None, reason); no reason where PyTorch has
        no such operator."""
        if self.left == 0:
            return None, None
        answer, wrong = self.program.ask(json.dumps(rung))
        if wrong is None:
            return float(answer), None
        self.left -= not wrong.startswith("error")
        return None, wrong if wrong != "error: no peer" else None


def measure(rung, floors, peer, precision, ms):
    """Adds rates, the share of the floor, and the peer's time."""
    us = rung["us"]
    if not us:
        return rung
    floor, rung["floor"] = floors.of(rung)
    rung["percent"] = 100 * floor / us if floor else None
    rung["gb_s"] = rung["bytes"] / us * 1e-3
    rung["tflop_s"] = rung["flop"] / us * 1e-6 if rung["flop"] else None
    rung["peer_us"], rung["peer_why"] = peer.us(
        {**rung, "precision": precision, "ms": ms})
    rung["ratio"] = rung["peer_us"] / us if rung["peer_us"] else None
    return rung


def label(rung):
    """The operator; of those with many functions, which one."""
    if rung["op"] not in ("unary", "unary_grad", "binary"):
        return rung["op"]
    return rung["name"].rpartition("/")[2].rstrip("0123456789").rstrip("_")


def shapes(rung):
    """The first inputs and the first output: 64x784 784x512 > 64x512."""
    def short(t):
        return "x".join(t.partition("[")[2].rstrip("]").split(",")) or "1"
    if not rung["in"]:
        return rung["name"]
    ins = [short(t) for t in rung["in"].split() if t != "-"][:2]
    return "%s > %s" % (" ".join(ins), short(rung["out"].split()[0]))


def cell(value, form):
    return form % value if value is not None else "-"


def line(rung):
    head = "  %-19s %-38s" % (label(rung), shapes(rung))
    if rung["why"] or not rung["us"]:
        return "%s %s" % (head, rung["why"] or "took no time")
    note = " ".join(filter(None, (
        rung["note"], "x%d" % rung["count"] if rung["count"] > 1 else "",
        "(%s)" % rung["peer_why"] if rung["peer_why"] else "")))
    return "%s %9.2f us %9.3f MB %8s GFLOP %7.0f GB/s %6s TFLOP/s %4s %% of " \
        "%-7s  torch %9s us %6s  %s" % (
            head, rung["us"], rung["bytes"] * 1e-6,
            cell(rung["flop"] and rung["flop"] * 1e-9 or None, "%.3f"),
            rung["gb_s"], cell(rung["tflop_s"], "%.1f"),
            cell(rung["percent"], "%.0f"), rung["floor"],
            cell(rung["peer_us"], "%.2f"), cell(rung["ratio"], "%.2f"), note)


def groups(o, kit, precision, size):
    """(title, rungs) one after the other."""
    for case in o.chosen or size["cases"]:
        done = kit.run("bench_ladder", o.backend, "steps", case, precision,
                       str(size["ms"]))
        yield case, different(rungs(done))
    for what in "vectors", "rows":
        for n in size[what]:
            done = kit.run("bench_ladder", o.backend, what, str(n),
                           str(size["ms"]))
            yield "%s %d" % (what, n), different(rungs(done))


def failed(found):
    """Rungs and floors that could not be timed."""
    return [r for r in found.get("floors", []) + found.get("rungs", [])
            if r["why"] or not r["us"]]


def run(o, kit, program):
    """Of one precision, printed line by line; for the file of results."""
    precision, peer = o.precisions[0], Peer(program)
    size = PLAYED if o.played else SIZES
    found = rungs(kit.run("bench_ladder", o.backend, "floors", precision,
                          str(size["bytes"]), str(size["side"]),
                          str(size["ms"])))
    floors = Floors(found)
    print("ladder, %s\n%s" % (precision, floors.text()))
    for rung in found:
        if rung["why"]:
            print("  %s: %s" % (rung["op"], rung["why"]))
    out = {"precision": precision, "floors": found, "rungs": []}
    for title, group in groups(o, kit, precision, size):
        print("%s: %d kernels, %.1f us one after the other" % (
            title, sum(r["count"] for r in group),
            sum(r["count"] * (r["us"] or 0) for r in group)))
        for rung in group:
            measure(rung, floors, peer, precision, size["ms"])
            print(line(rung), flush=True)
            out["rungs"].append({"of": title, **rung})
    program.close()
    return out
