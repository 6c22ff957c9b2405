#!/usr/bin/env python3
"""Predictions for a CSV file by an ONNX file of Hooke's (pip install
onnxruntime).

    hooke export my.yaml --format onnx -o my.onnx
    onnx_predict.py my.onnx new.csv
"""
import csv
import sys

import numpy as np
import onnxruntime

# Types of ONNX's inputs; an empty cell of a number is missing: NaN.
TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64,
         "tensor(int32)": np.int32, "tensor(int64)": np.int64}


def column(rows, wanted):
    cells = [row[wanted.name].strip() for row in rows]
    if wanted.type == "tensor(string)":
        return np.array(cells, dtype=object).reshape(-1, 1)
    kind = TYPES[wanted.type]
    return np.array([cell or "nan" for cell in cells], dtype=np.float64).astype(
        kind).reshape(-1, 1)


def main():
    model = onnxruntime.InferenceSession(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8", newline="") as f:
        rows = list(csv.DictReader(f))
    inputs = {i.name: column(rows, i) for i in model.get_inputs()}
    names = [o.name for o in model.get_outputs()]
    out = csv.writer(sys.stdout)
    values = [v.reshape(len(rows), -1) for v in model.run(None, inputs)]
    out.writerow([f"{name}_{k}" if v.shape[1] > 1 else name
                  for name, v in zip(names, values)
                  for k in range(v.shape[1])])
    for i in range(len(rows)):
        out.writerow([x for v in values for x in v[i]])


main()
