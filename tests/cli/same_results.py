#!/usr/bin/env python3
"""Compares a report with what the terminal said.

    same_results.py REPORT.html RESULT.json

RESULT is the output of `hooke train --json`. The report's first table is to
have the scores of every set of weights that it names, the second one those of
the test rows, or the mean and its standard error over folds. Prints the rows
that were compared.
"""
import html
import json
import re
import sys

NAMES = {"model": "local", "center": "center", "average (EMA)": "ema"}


def tables(text):
    """[{row name: {column: value}}] of the report."""
    found = []
    for part in re.findall(r"<thead>(.*?)</table>", text, re.S):
        columns = re.findall(r'<th scope="col">([^<]*)', part)
        rows = {}
        for name, cells in re.findall(
                r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', part):
            values = re.findall(r"<td>([^<]*)</td>", cells)
            rows[html.unescape(name)] = dict(zip(columns[-len(values):],
                                                 values))
        found.append(rows)
    return found


def compare(where, row, result):
    for column, value in row.items():
        if column == "step":
            continue
        if abs(float(value) - result[column]) > 1e-4 + 1e-3 * abs(
                result[column]):
            print(f"{where}: {column} is {value}, not {result[column]}")


def main():
    with open(sys.argv[2], encoding="utf-8") as f:
        result = json.loads(f.readlines()[-1])
    with open(sys.argv[1], encoding="utf-8") as f:
        found = tables(f.read())
    if "mean" in result:
        for name, row in found[0].items():
            compare(name, row, result[name.replace(" ", "_")])
        print("folds:", *found[0])
        return
    for rows, part in zip(found, (result, result.get("test"))):
        if not part:
            break
        for name, row in rows.items():
            compare(name, row, part["weights"][NAMES[name]])
            if int(row["step"]) != part["evaluated_step"]:
                print(f"{name}: step {row['step']}, not "
                      f"{part['evaluated_step']}")
        print("compared:", *rows)


if __name__ == "__main__":
    main()
