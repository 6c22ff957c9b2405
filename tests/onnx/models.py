#!/usr/bin/env python3
"""Models of many kinds, trained, exported as ONNX and run by onnxruntime.

models.py HOOKE FOLDER: every export passes ONNX's own checker, and what
onnxruntime predicts for raw inputs is what `hooke predict` says, within 1e-5.
"""
import csv
import datetime
import json
import pathlib
import random
import struct
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-5
ROWS = 300


# ---- data --------------------------------------------------------------------


def write_idx(path, array):
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim)
    dims = struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + dims + array.astype(np.uint8).tobytes())


def pictures(folder, shape):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (ROWS, *shape))
    write_idx(folder / "x.idx", images)
    write_idx(folder / "y.idx", images.reshape(ROWS, -1).sum(1) % 3)
    return {"image": images.astype(np.uint8)}


def table(folder, label):
    """A table with numbers, words, missing cells of both, and odd values."""
    rng = random.Random(2)
    kinds = ["red", "green", "blue, dark", "grün", ""]
    rows = []
    for i in range(ROWS):
        size, kind = rng.gauss(0, 1), rng.choice(kinds)
        number = 2 * size + len(kind)
        rows.append({
            "size": f"{size:.6g}" if rng.random() > 0.1 else "",
            "year": f"{1990 + 30 * rng.random():.4f}",
            "money": f"{rng.choice([-1, 1]) * 10 ** (6 * rng.random()):.3f}",
            "kind": kind,
            "place": rng.choice("abcdefgh"),
            "code": str(rng.randrange(6)),
            "y": label(number, i),
        })
    write_rows(folder, rows)
    return rows[200:]


def write_rows(folder, rows):
    for name, part in (("train", rows[:200]), ("new", rows[200:])):
        with open(folder / f"{name}.csv", "w", encoding="utf-8",
                  newline="") as f:
            out = csv.DictWriter(f, rows[0])
            out.writeheader()
            out.writerows(part)


DATES = {
    "iso": lambda d: d.strftime("%Y-%m-%d") if d.second % 2 else d.isoformat(),
    "slashes": lambda d: f"{d.year}/{d.month}/{d.day}",
    "dots": lambda d: f"{d.day}.{d.month}.{d.year} {d.hour}:{d.minute:02}",
    "american": lambda d: d.strftime("%m/%d/%Y %H:%M:%S"),
    "british": lambda d: d.strftime("%d/%m/%Y %H:%M:%S.25Z"),
}


def dates(folder):
    """Dates of every form, from 1804 on, some of them missing."""
    rng = random.Random(4)
    first = datetime.datetime(1804, 2, 27)
    rows = []
    for i in range(ROWS):
        cells = {name: first + datetime.timedelta(
            days=rng.randrange(150000), seconds=rng.randrange(86400))
                 for name in DATES}
        number = cells["iso"].year / 10 + cells["dots"].hour
        row = {name: make(cells[name]) if rng.random() > 0.1 else ""
               for name, make in DATES.items()}
        rows.append({**row, "y": f"{number:.3f}"})
    rows[0]["american"] = "02/29/2000"
    rows[250]["iso"], rows[251]["dots"] = "2000-02-29", "29.2.1904 23:59:60"
    write_rows(folder, rows)
    (folder / "m.yaml").write_text(TABLE.format(kind="dnn", model="", more=""))
    return rows[200:]


def binary(number, _):
    return "yes" if number > 3 else "no"


def many(number, _):
    return ["low", "middle", "high"][0 if number < 1 else 1 if number < 4 else 2]


def amount(number, _):
    return f"{1000 + 50 * number:.3f}"


# ---- models ------------------------------------------------------------------

IMAGES = """
data:
  train: {{source: idx, files: x.idx, labels: y.idx{more}}}
  eval: {{files: x.idx, labels: y.idx}}
  predict: {{files: x.idx}}
run: {{steps: 20}}
model:
  layers: [{layers}]
"""

TABLE = """
data:
  train: {{source: csv, files: train.csv, label: y{more}}}
  predict: {{files: new.csv}}
run: {{steps: 40}}
model: {{canned: {kind}, hidden: [16, 8]{model}}}
"""

OWN_MODEL = """
#include <hooke/hooke.h>

// Operators that layers do not use.
hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *x = hk_flatten(g, hk_feature(m, "image"));
    hk_node *a = hk_slice(g, x, (int64_t[]){0, 2}, (int64_t[]){-1, 8});
    hk_node *b = hk_pad(g, hk_clip(g, a, 0.2, 0.7), (int64_t[]){0, 1},
                        (int64_t[]){0, 1});
    hk_node *c = hk_leaky_relu(g, hk_dense(g, x, 10, HK_ACT_NONE, NULL), 0.1);
    hk_node *d = hk_where(g, hk_compare(g, b, HK_GREATER, c), b,
                          hk_sub(g, c, hk_square(g, b)));
    hk_node *e = hk_mul(g, hk_exp(g, hk_neg(g, hk_abs(g, d))),
                        hk_rsqrt(g, hk_add(g, hk_square(g, c),
                                           hk_constant_float(g, 1))));
    hk_node *top, *at;
    hk_top_k(g, e, 4, &top, &at);
    hk_node *hot = hk_reduce_sum(g, hk_one_hot(g, at, 10, HK_F32),
                                 (int[]){1}, 1, 0);
    hk_node *mean = hk_reduce_mean(g, e, (int[]){1}, 1, 1);
    hk_node *wide = hk_broadcast_to(
        g, hk_reduce_max(g, e, (int[]){1}, 1, 1),
        hk_shape_make(2, (int64_t[]){HK_BATCH, 10}));
    hk_node *parts[] = {top, hot, mean, hk_maximum(g, wide, e),
                        hk_transpose(g, hk_transpose(g, d, (int[]){1, 0}),
                                     (int[]){1, 0})};
    hk_node *all = hk_concat(g, parts, 5, 1);
    hk_node *z = hk_dense(g, hk_normalize_layer(
        g, all, hk_variable(g, "gamma", hk_shape_make(1, (int64_t[]){35}),
                            HK_TRAINABLE, hk_init_make(HK_INIT_ONES, 0, 0), 0),
        hk_variable(g, "beta", hk_shape_make(1, (int64_t[]){35}), HK_TRAINABLE,
                    hk_init_make(HK_INIT_ZEROS, 0, 0), 0), 1e-3),
        3, HK_ACT_NONE, NULL);
    hk_spec_prediction(m, "log", hk_log_softmax(g, z));
    hk_spec_prediction(m, "norm", hk_sqrt(g, hk_reduce_max(
        g, hk_matmul(g, z, z, 0, 1), (int[]){1}, 1, 0)));
    if (mode == HK_PREDICT) return HK_OK;
    hk_spec_loss(m, hk_sparse_softmax_cross_entropy(g, hk_label(m, NULL), z,
                                                    NULL, NULL));
    return hk_spec_optimizer(m, HK_OPT_ADAM, 1e-3);
}
"""


def image_model(shape, layers, more=""):
    def make(folder):
        inputs = pictures(folder, shape)
        (folder / "m.yaml").write_text(IMAGES.format(layers=layers, more=more))
        return inputs
    return make


def table_model(label, kind, model="", more=""):
    def make(folder):
        rows = table(folder, label)
        (folder / "m.yaml").write_text(
            TABLE.format(kind=kind, model=model, more=more))
        return rows
    return make


def own_model(folder):
    inputs = pictures(folder, (4, 4, 1))
    (folder / "own.c").write_text(OWN_MODEL)
    text = IMAGES.format(layers="dense: 3", more="")
    (folder / "m.yaml").write_text(
        text[:text.index("model:")] + "model: {library: own.c}\n")
    return inputs


def sentence_model(folder):
    ids = np.random.default_rng(3).integers(0, 50, (ROWS, 7))
    ids[::3, 5:] = -1
    np.savez(folder / "x.npz", ids=ids, label=ids[:, 0] % 3)
    (folder / "m.yaml").write_text("""
data:
  train: {source: npz, files: x.npz}
  predict: {files: x.npz}
run: {steps: 20}
model:
  input: ids
  layers:
    - embedding: {rows: 50, dimension: 6, combiner: mean}
    - dense: 3
""")
    return {"ids": ids}


COLUMNS = """, columns: [
  {numeric: {feature: [size, money], normalize: minmax}},
  {bucketized: {feature: year, boundaries: [1995, 2000, 2010], use: both}},
  {vocabulary: {feature: kind, dimension: 4}},
  {vocabulary: {feature: place, values: [a, b, c], dimension: 0}}]"""
QUANTILES = """, columns: [
  {numeric: {feature: [size, year, money, code], normalize: quantile}}]"""
HASHED = """, columns: [
  {numeric: size}, {hash: {feature: place, buckets: 20, dimension: 3}},
  {bucketized: {feature: year, boundaries: [2000]}},
  {cross: {features: [kind, year], buckets: 30}}]"""
IDENTITY = """, columns: [
  {numeric: {feature: size, normalize: none}},
  {identity: {feature: code, buckets: 6, dimension: 3}}]"""
TYPES = """,
          columns: {size: float, year: float, money: float, kind: text,
                    place: text, code: int, y: text}, header: true"""

MODELS = {
    "mlp": image_model((6, 6, 1), "flatten, dense: {units: 20, activation: "
                       "relu}, dropout: 0.3, dense: 3"),
    "cnn": image_model(
        (9, 8, 3), "conv2d: {filters: 4, kernel: 3, activation: tanh}, "
        "batch_norm: {}, max_pool: {size: 2, padding: same}, "
        "conv2d: {filters: 6, kernel: [3, 2], stride: 2, padding: valid}, "
        "flatten, dense: 3", ", mean: [0.4, 0.5, 0.6], std: [0.2, 0.3, 0.25]"),
    "residual": image_model(
        (8, 8, 1), "residual: {filters: 4, blocks: 2, stride: 2}, "
        "avg_pool: {size: 3, stride: 1, padding: same}, global_avg_pool, "
        "dense: 3"),
    "activations": image_model(
        (4, 4, 1), "dense: {units: 8, activation: gelu}, layer_norm: {}, "
        "dense: {units: 8, activation: elu}, activation: softplus, "
        "reshape: [2, 4], flatten, dense: {units: 8, activation: sigmoid}, "
        "dense: 3"),
    "own": own_model,
    "sentence": sentence_model,
    "words": table_model(many, "dnn"),
    "linear": table_model(binary, "linear"),
    "regression": table_model(amount, "dnn", COLUMNS),
    "quantiles": table_model(amount, "dnn", QUANTILES),
    "wide_and_deep": table_model(binary, "wide_deep", COLUMNS),
    "hashed": table_model(many, "wide_deep", HASHED),
    "identity": table_model(binary, "dnn", IDENTITY, TYPES),
    "dates": dates,
}

# ---- running -----------------------------------------------------------------


def hooke(program, folder, *args):
    done = subprocess.run([program, *args], cwd=folder, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"hooke {' '.join(args)}: {done.stderr}")
    return done.stdout


# Hashed and crossed columns are inputs: their ids are made here, by FarmHash's
# Fingerprint64 of up to 16 bytes and by TensorFlow's way of joining them.
WORD = (1 << 64) - 1
K0, K2 = 0xC3A5C85C97CB3127, 0x9AE16A3B2F90404F


def fold(v):
    return v ^ v >> 47


def turn(v, bits):
    return (v >> bits | v << (64 - bits)) & WORD


def fingerprint(text):
    p = text.encode()
    n = len(p)
    mul = K2 + 2 * n & WORD

    def join(u, v):
        a = fold((u ^ v) * mul & WORD)
        return fold((v ^ a) * mul & WORD) * mul & WORD

    def word(at, size):
        return int.from_bytes(p[at:at + size], "little")

    if n >= 8:
        a, b = word(0, 8) + K2 & WORD, word(n - 8, 8)
        return join(turn(b, 37) * mul + a & WORD,
                    (turn(a, 25) + b) * mul & WORD)
    if n >= 4:
        return join(n + (word(0, 4) << 3), word(n - 4, 4))
    if n > 0:
        y = p[0] + (p[n // 2] << 8)
        z = n + (p[n - 1] << 2)
        return fold(y * K2 & WORD ^ z * K0 & WORD) * K2 & WORD
    return K2


def crossed(*values):
    mul, h = 0xC6A4A7935BD1E995, 0xDECAFCAFFE
    for b in values:
        h = (h ^ mul ^ fold(b * mul & WORD) * mul & WORD) * mul & WORD
        h = fold(fold(h) * mul & WORD)
    return h


HASHES = {
    "place_id": lambda row: fingerprint(row["place"]) % 20,
    "kind_X_year_bucketized_id": lambda row: crossed(
        int(float(row["year"]) >= 2000), fingerprint(row["kind"])) % 30,
}


def feed(session, inputs):
    if isinstance(inputs, dict):
        return {i.name: inputs[i.name] for i in session.get_inputs()}
    out = {}
    for i in session.get_inputs():
        make = HASHES.get(i.name, lambda row, key=i.name: row[key])
        cells = [make(row) for row in inputs]
        if i.type == "tensor(string)":
            out[i.name] = np.array(cells, dtype=object).reshape(-1, 1)
        else:
            kind = np.int64 if i.type == "tensor(int64)" else np.float32
            out[i.name] = np.array([str(c) or "nan" for c in cells]).astype(
                np.float64).astype(kind).reshape(-1, 1)
    return out


def compare(name, lines, outputs):
    """The largest difference between predictions; exits where words differ."""
    shown = {"class_ids": "class", "probabilities": "probability"}
    worst, compared = 0.0, 0
    for output, values in outputs.items():
        key = shown.get(output, output)
        if output == "class_name":
            expected = [line["class"] for line in lines]
            if [v for v in values.reshape(-1)] != expected:
                sys.exit(f"{name}: {output} differs")
            compared += 1
        elif key in lines[0] and not isinstance(lines[0][key], str):
            expected = np.array([line[key] for line in lines])
            difference = np.abs(values.reshape(expected.shape) - expected)
            scale = np.maximum(1, np.abs(expected))
            worst = max(worst, float((difference / scale).max()))
            compared += 1
            if values.dtype == np.float32 and np.ptp(expected) < 1e-3:
                sys.exit(f"{name}: {output} is the same for all")
    if compared == 0:
        sys.exit(f"{name}: nothing to compare")
    return worst


def check(program, folder, name, make):
    folder.mkdir(parents=True)
    inputs = make(folder)
    hooke(program, folder, "train", "m.yaml", "--quiet")
    hooke(program, folder, "export", "m.yaml", "-f", "onnx", "-o", "m.onnx")
    lines = [json.loads(line) for line in hooke(
        program, folder, "predict", "m.yaml", "-f", "jsonl",
        "--all").splitlines()]
    onnx.checker.check_model(onnx.load(folder / "m.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    values = session.run(None, feed(session, inputs))
    outputs = {o.name: v for o, v in zip(session.get_outputs(), values)}
    worst = compare(name, lines, outputs)
    print(f"{name}: {len(lines)} predictions, largest difference {worst:.1e}")
    if not worst <= TOLERANCE:
        sys.exit(f"{name}: differs by {worst}, more than {TOLERANCE}")


def check_bad_dates(folder):
    """Texts that are no dates are errors."""
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    session = onnxruntime.InferenceSession(folder / "m.onnx", quiet)
    good = {"iso": "2001-03-04", "slashes": "2001/3/4", "dots": "4.3.2001",
            "american": "3/4/2001", "british": "4/3/2001"}
    bad = {"iso": ["2001-02-29", "1900-02-29", "2001-13-01", "2001-04-31",
                   "yesterday", "2001-03-04x", "2001-03-04 24:00", "3/4/2001",
                   "2001-03/04", "20010304", " ", "2001-03-04 1:2"],
           "american": ["13/1/2001", "2001-03-04"],
           "british": ["1/13/2001", "31/6/2001"]}
    for name, texts in {"": [""], **bad}.items():
        for text in texts:
            row = {**good, name: text}
            try:
                session.run(None, feed(session, [row]))
            except Exception as error:  # pylint: disable=broad-except
                if name and f"'{name}: a string is not a date'" in str(error):
                    continue
                raise
            if name:
                sys.exit(f"dates: '{text}' passes for a date")
    print("what is no date is an error")


def check_example(program, folder):
    """examples/onnx_predict.py says what `hooke predict` says."""
    example = HERE.parent.parent / "examples" / "onnx_predict.py"
    done = subprocess.run([sys.executable, example, "m.onnx", "new.csv"],
                          cwd=folder, capture_output=True, text=True,
                          check=True)
    ours = list(csv.DictReader(hooke(program, folder, "predict",
                                     "m.yaml").splitlines()))
    rows = list(csv.DictReader(done.stdout.splitlines()))
    if not rows or [r["class_name"] for r in rows] != [
            r["class"] for r in ours]:
        sys.exit("onnx_predict.py: differs from hooke predict")
    print(f"onnx_predict.py: {len(rows)} predictions agree")


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    chosen = sys.argv[3:] or MODELS
    for name in chosen:
        check(program, folder / name, name, MODELS[name])
    if "words" in chosen:
        check_example(program, folder / "words")
    if "dates" in chosen:
        check_bad_dates(folder / "dates")
    print(f"{len(chosen)} models agree")


main()
