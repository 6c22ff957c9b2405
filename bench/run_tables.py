#!/usr/bin/env python3
"""Hooke's defaults on tables against scikit-learn's, 5-fold.

    run_tables.py [--only NAME...] [--set tuned|checked|further]
                  [--extra KEY=VALUE...] [--peers-only] [--hooke-only]
                  [--label TEXT] [--hooke PROGRAM] [--workers N]

Every fold is written as train.csv and test.csv. Hooke sees them as a user's
files: `hooke train` with the label's name and nothing else, `hooke predict` on
the test rows. Linear models and the MLP of scikit-learn get scaled and one-hot
encoded inputs with missing ones filled, boosted trees and forests the columns
as they are; of tables with more than 30000 rows two of the five folds are run.
RMSE for numbers, accuracy for classes. Results of scikit-learn
are kept in build/bench/tables/peers.json.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tables  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "bench" / "tables"
FOLDS = 5
LARGE, FOLDS_OF_LARGE = 30000, 2  # an MLP takes minutes for each of them


def frame_of(entry):
    make, label, is_class = entry
    frame = make().copy()
    frame = frame[frame[label].notna()].reset_index(drop=True)
    if is_class:
        frame[label] = frame[label].astype(str)
        frame[label] = [x if not x.replace(".", "").isdigit() else
                        str(int(float(x))) for x in frame[label]]
    for c in frame:
        if c != label and not pd.api.types.is_numeric_dtype(frame[c]):
            frame[c] = frame[c].astype(object).where(frame[c].notna(), None)
    return frame, label, is_class


def folds_of(frame, label, is_class):
    from sklearn.model_selection import KFold, StratifiedKFold
    kind = StratifiedKFold if is_class else KFold
    cut = kind(n_splits=FOLDS, shuffle=True, random_state=0)
    parts = list(cut.split(frame, frame[label] if is_class else None))
    return parts[:FOLDS_OF_LARGE] if len(frame) > LARGE else parts


def score(is_class, truth, guess):
    if is_class:
        return float(np.mean(np.asarray(truth) == np.asarray(guess)))
    gap = np.asarray(truth, float) - np.asarray(guess, float)
    return float(math.sqrt(np.mean(gap * gap)))


# ---- scikit-learn -----------------------------------------------------------

def columns_of(frame, label):
    numbers = [c for c in frame if c != label and
               pd.api.types.is_numeric_dtype(frame[c])]
    words = [c for c in frame if c != label and c not in numbers]
    return numbers, words


def prepared(frame, label):
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler
    numbers, words = columns_of(frame, label)
    return ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        ("words", make_pipeline(
            SimpleImputer(strategy="constant", fill_value="missing",
                          missing_values=None),
            OneHotEncoder(handle_unknown="ignore", min_frequency=2)), words)])


def as_numbers(frame, label):
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OrdinalEncoder
    numbers, words = columns_of(frame, label)
    return ColumnTransformer([
        ("numbers", "passthrough", numbers),
        ("words", OrdinalEncoder(handle_unknown="use_encoded_value",
                                 unknown_value=-1), words)])


def peers(frame, label, is_class):
    from sklearn import ensemble, linear_model, neural_network
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    net, raw = prepared(frame, label), as_numbers(frame, label)
    if is_class:
        return {
            "majority": DummyClassifier(),
            "linear": make_pipeline(net, linear_model.LogisticRegression(
                max_iter=1000)),
            "mlp": make_pipeline(net, neural_network.MLPClassifier(
                random_state=0)),
            "boosted": make_pipeline(
                raw, ensemble.HistGradientBoostingClassifier(random_state=0)),
            "forest": make_pipeline(
                raw, ensemble.RandomForestClassifier(random_state=0)),
        }
    mlp = neural_network.MLPRegressor(random_state=0)
    return {
        "mean": DummyRegressor(),
        "linear": make_pipeline(net, linear_model.LinearRegression()),
        "mlp": make_pipeline(net, mlp),
        "mlp scaled": make_pipeline(net, TransformedTargetRegressor(
            neural_network.MLPRegressor(random_state=0),
            transformer=StandardScaler())),
        "boosted": make_pipeline(
            raw, ensemble.HistGradientBoostingRegressor(random_state=0)),
        "forest": make_pipeline(
            raw, ensemble.RandomForestRegressor(random_state=0)),
    }


def keep(kept):
    part = WORK / f"peers.{os.getpid()}"
    part.write_text(json.dumps(kept))
    part.replace(WORK / "peers.json")


def run_peers(name, entry, kept):
    frame, label, is_class = frame_of(entry)
    for fold, (train, test) in enumerate(folds_of(frame, label, is_class)):
        for peer, model in peers(frame, label, is_class).items():
            if peer == "mlp scaled" and len(frame) > 10000:
                continue  # a quarter of an hour that says nothing new
            scores = kept.setdefault(name, {}).setdefault(peer, [])
            if len(scores) > fold:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(frame.iloc[train].drop(columns=label),
                          frame[label].iloc[train])
                guess = model.predict(frame.iloc[test].drop(columns=label))
            scores.append(score(is_class, frame[label].iloc[test], guess))
        keep(kept)


# ---- Hooke ------------------------------------------------------------------

def run_hooke(name, entry, a):
    frame, label, is_class = frame_of(entry)
    scores, seconds = [], 0.0
    place = WORK / a.label / name.replace(" ", "_")
    extra, workers, program = a.extra, a.workers, str(a.hooke)
    for fold, (train, test) in enumerate(folds_of(frame, label, is_class)):
        here = place / f"fold{fold}"
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        frame.iloc[train].to_csv(here / "train.csv", index=False)
        frame.iloc[test].drop(columns=label).to_csv(here / "test.csv",
                                                    index=False)
        (here / "t.yaml").write_text(json.dumps({
            "model": {"canned": "dnn"},
            "data": {"train": {"source": "csv", "files": "train.csv",
                               "label": label}}}), encoding="utf-8")
        sets = [w for e in extra for w in ("--set", e)]
        if not is_class and frame[label].nunique() <= 100:
            sets += ["--set", "model.classes=0"]
        began = time.monotonic()
        subprocess.run([program, "train", "t.yaml", "-q", "--workers",
                        str(workers), *sets], cwd=here, check=True,
                       stdout=subprocess.DEVNULL)
        seconds += time.monotonic() - began
        subprocess.run([program, "predict", "t.yaml", "--data", "test.csv",
                        "-q", "-o", "guess.csv", *sets], cwd=here, check=True)
        guess = pd.read_csv(here / "guess.csv",
                            dtype=str if is_class else None)
        column = "class" if is_class else "value"
        scores.append(score(is_class, frame[label].iloc[test], guess[column]))
        shutil.rmtree(here / "runs")
    return scores, seconds


# ---- results ----------------------------------------------------------------

def mean_se(scores):
    return np.mean(scores), np.std(scores, ddof=1) / math.sqrt(len(scores))


def rank_of(rows, name, who, is_class):
    mine = np.mean(rows[who])
    others = [np.mean(v) for k, v in rows.items()
              if k in ("hooke", "linear", "mlp", "boosted", "forest")]
    return 1 + sum(o > mine if is_class else o < mine for o in others)


def show(results, entries):
    peers_shown = ("hooke", "mlp", "mlp scaled", "linear", "boosted", "forest",
                   "mean")
    print("| table | rows | " + " | ".join(peers_shown) + " |")
    print("| --- " * (len(peers_shown) + 2) + "|")
    ranks, behind, below = {}, [], []
    for name, rows in results.items():
        is_class = entries[name][2]
        base = rows.get("majority" if is_class else "mean")
        line = []
        for who in peers_shown:
            scores = base if who == "mean" else rows.get(who)
            if not scores:
                line.append("")
                continue
            m, se = mean_se(scores)
            line.append(f"{m:.3f}" if is_class else f"{m:.4g}")
            if who == "hooke":
                line[-1] += f" ± {se:.3f}" if is_class else f" ± {se:.2g}"
        print(f"| {name} | {rows['rows']} | " + " | ".join(line) + " |")
        if "hooke" not in rows or "mlp" not in rows:
            continue
        for who in ("hooke", "mlp", "linear", "boosted", "forest"):
            ranks.setdefault(who, []).append(
                rank_of({k: v for k, v in rows.items() if k != "rows"}, name,
                        who, is_class))
        h, se = mean_se(rows["hooke"])
        p = np.mean(rows["mlp"])
        worse = (p - h - se) / p if is_class else (h - se - p) / p
        if worse > 0.05:
            behind.append(f"{name} ({100 * worse:.1f} %)")
        if (h < np.mean(base)) if is_class else (h > np.mean(base)):
            below.append(name)
    print("\nmean rank: " + ", ".join(
        f"{k} {np.mean(v):.2f}" for k, v in ranks.items()))
    print("more than 5 % behind the MLP beyond one standard error: " +
          (", ".join(behind) or "none"))
    print("below the mean or the majority: " + (", ".join(below) or "none"))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--only", nargs="*", default=[])
    p.add_argument("--set", choices=("all", "tuned", "checked", "further"),
                   default="all")
    p.add_argument("--extra", nargs="*", default=[])
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--peers-only", action="store_true")
    p.add_argument("--hooke-only", action="store_true")
    p.add_argument("--label", default="hooke")
    p.add_argument("--hooke", type=pathlib.Path,
                   default=ROOT / "build" / "release" / "hooke")
    a = p.parse_args()
    entries = {"all": {**tables.TUNED, **tables.CHECKED},
               "tuned": tables.TUNED, "checked": tables.CHECKED,
               "further": tables.FURTHER}[a.set]
    WORK.mkdir(parents=True, exist_ok=True)
    kept_at = WORK / "peers.json"
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    results = {}
    # Small ones first: what takes long comes last.
    order = sorted(entries, key=lambda x: len(frame_of(entries[x])[0]))
    for name in order:
        entry = entries[name]
        if a.only and name not in a.only:
            continue
        rows = {"rows": len(frame_of(entry)[0])}
        if not a.hooke_only:
            run_peers(name, entry, kept)
        rows.update(kept.get(name, {}))
        if not a.peers_only:
            rows["hooke"], seconds = run_hooke(name, entry, a)
            m, se = mean_se(rows["hooke"])
            mlp = np.mean(rows["mlp"]) if "mlp" in rows else float("nan")
            print(f"{name}: hooke {m:.5g} +- {se:.2g} mlp {mlp:.5g} "
                  f"{seconds:.0f} s", file=sys.stderr, flush=True)
        results[name] = rows
    (WORK / f"{a.label}.json").write_text(json.dumps(results))
    show(results, entries)


if __name__ == "__main__":
    main()
