#!/usr/bin/env python3
"""Draws the curves of examples/paper as an SVG file.

    plot_paper.py CSV SVG [--workers 4]

One panel for every period tau: test error (log scale) by local step, the mean
over the seeds as a line and their range as a band. Sequential methods, which
have neither workers nor a period, appear in every panel.
"""
import argparse
import collections
import csv
import math
import sys

COLORS = {
    "sgd": "#7f7f7f",
    "momentum": "#222222",
    "easgd": "#1f77b4",
    "eamsgd": "#2ca02c",
    "downpour": "#d62728",
}
PANEL_W, PANEL_H = 300, 260
LEFT, TOP, GAP, BOTTOM = 56, 34, 26, 78


def read(path):
    """{(method, p, tau): {step: [error of each seed]}}"""
    curves = collections.defaultdict(lambda: collections.defaultdict(list))
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            key = row["method"], int(row["p"]), int(row["tau"])
            curves[key][int(row["step"])].append(float(row["test_error"]))
    return curves


def ticks(low, high):
    """1, 2, 5, 10, 20, ... within the range."""
    out = []
    for decade in range(math.floor(math.log10(low)), 3):
        out += [m * 10**decade for m in (1, 2, 5)]
    return [t for t in out if low <= t <= high]


class Panel:
    def __init__(self, x0, steps, low, high):
        self.x0, self.steps, self.low, self.high = x0, steps, low, high

    def x(self, step):
        return self.x0 + PANEL_W * step / self.steps

    def y(self, error):
        share = math.log(max(error, self.low) / self.low)
        return TOP + PANEL_H * (1 - share / math.log(self.high / self.low))

    def frame(self, title, first):
        bottom = TOP + PANEL_H
        yield (
            f'<rect x="{self.x0}" y="{TOP}" width="{PANEL_W}" '
            f'height="{PANEL_H}" fill="none" stroke="#999"/>'
        )
        yield (
            f'<text x="{self.x0 + PANEL_W / 2}" y="{TOP - 12}" '
            f'text-anchor="middle" font-weight="bold">{title}</text>'
        )
        for t in ticks(self.low, self.high):
            y = self.y(t)
            yield (
                f'<line x1="{self.x0}" x2="{self.x0 + PANEL_W}" y1="{y:.1f}" '
                f'y2="{y:.1f}" stroke="#ddd"/>'
            )
            if first:
                yield (
                    f'<text x="{self.x0 - 6}" y="{y + 4:.1f}" '
                    f'text-anchor="end">{t:g} %</text>'
                )
        for i in (0, 1, 2, 3, 4):
            step = self.steps * i // 4
            yield (
                f'<text x="{self.x(step):.1f}" y="{bottom + 16}" '
                f'text-anchor="middle">{step}</text>'
            )
        yield (
            f'<text x="{self.x0 + PANEL_W / 2}" y="{bottom + 34}" '
            f'text-anchor="middle">local steps</text>'
        )

    def curve(self, points, color):
        steps = sorted(points)
        band = [(s, max(points[s])) for s in steps]
        band += [(s, min(points[s])) for s in reversed(steps)]
        mean = [(s, sum(points[s]) / len(points[s])) for s in steps]

        def path(ps):
            return " ".join(f"{self.x(s):.1f},{self.y(e):.1f}" for s, e in ps)

        yield (
            f'<polygon points="{path(band)}" fill="{color}" '
            f'fill-opacity="0.15"/>'
        )
        yield (
            f'<polyline points="{path(mean)}" fill="none" stroke="{color}" '
            f'stroke-width="1.8"/>'
        )


def draw(curves, workers):
    chosen = {k: v for k, v in curves.items() if k[2] == 0 or k[1] == workers}
    periods = sorted({k[2] for k in chosen if k[2] > 0})
    if not periods:
        sys.exit(f"plot_paper: no curve with {workers} workers")
    errors = [e for c in chosen.values() for es in c.values() for e in es]
    steps = max(s for c in chosen.values() for s in c)
    low, high = max(min(errors), 0.01) * 0.9, max(errors) * 1.1
    width = LEFT + len(periods) * (PANEL_W + GAP)
    height = TOP + PANEL_H + BOTTOM
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    for i, tau in enumerate(periods):
        panel = Panel(LEFT + i * (PANEL_W + GAP), steps, low, high)
        yield from panel.frame(f"p = {workers}, tau = {tau}", i == 0)
        for method, color in COLORS.items():
            for key, points in chosen.items():
                if key[0] == method and key[2] in (0, tau):
                    yield from panel.curve(points, color)
    methods = [m for m in COLORS if any(k[0] == m for k in chosen)]
    for i, method in enumerate(methods):
        x, y = LEFT + 110 * i, height - 18
        yield (
            f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" '
            f'stroke="{COLORS[method]}" stroke-width="3"/>'
        )
        yield f'<text x="{x + 30}" y="{y + 4}">{method}</text>'
    yield "</svg>"


def main():
    parser = argparse.ArgumentParser(
        description="Draws the curves of examples/paper as an SVG file."
    )
    parser.add_argument("csv")
    parser.add_argument("svg")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    lines = list(draw(read(args.csv), args.workers))
    with open(args.svg, "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
