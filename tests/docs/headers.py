#!/usr/bin/env python3
"""The examples at the top of the public headers compile.

    headers.py [FOLDER]

An example is an indented paragraph of a header's first comment that calls
something of hk_. What it leaves to the reader is declared here; "..." stands
for statements of the reader's own.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused",
         "-Wno-empty-body"]
GIVEN = {
    "canned.h": "hk_context *ctx, hk_feature_set *columns, hk_estimator *e",
    "average.h": "hk_layout *layout, float *x, hk_ema *ema, hk_optimizer *opt, "
                 "hk_grad_view gradients, int64_t step",
    "center.h": "hk_layout *layout, hk_center *center, float *values",
    "ckpt.h": "hk_saver *saver, hk_name_map *map, int64_t step, "
              "hk_restore_report report",
    "center_server.h": "hk_center_server_options so, hk_center_server *server",
    "cluster.h": "hk_connect_options co, hk_layout *layout, hk_center *center,"
                 "hk_elastic_options eo, hk_optimizer *optimizer, "
                 "hk_elastic *e, hk_worker_options wo, float *x, size_t n, "
                 "hk_worker *w, int64_t steps",
    "context.h": "void",
    "data.h": "const char *const *files, size_t n_files, "
              "const hk_example_feature *features, size_t n_features, "
              "int64_t seed, hk_iter *it, const hk_element *e",
    "divide.h": "const char *const *files, size_t n_files, hk_dataset *d, "
                "const hk_input_call *call, int64_t seed",
    "elastic.h": "hk_layout *layout, hk_center *center, "
                 "hk_elastic_options opt, hk_optimizer *optimizer, "
                 "hk_elastic *e, float *x, int32_t task, "
                 "hk_grad_view gradients",
    "estimator.h": "hk_model_fn model_fn, hk_context *ctx, hk_estimator *e, "
                   "hk_dataset *d",
    "event.h": "int64_t step, double loss",
    "export.h": "hk_estimator *e, hk_tensor *w, const char *path",
    "feature.h": "hk_dataset *train, hk_dataset *d",
    "fetch.h": "void",
    "files.h": "const hk_example_feature *features, size_t n_features",
    "ranges.h": "hk_center *c, int32_t worker, hk_lent_set what, "
                "uint32_t set, uint64_t seed, hk_range r",
    "rates.h": "void",
    "gradproc.h": "hk_layout *layout, hk_gradproc *p, hk_grad_view gradients, "
                  "hk_grad_view processed, int ready",
    "backend.h": "hk_backend_info info",
    "graph.h": "hk_graph *g, hk_node *w",
    "metrics.h": "hk_metric *m, hk_tensor *labels, hk_tensor *predictions, "
                 "double accuracy",
    "ops.h": "hk_graph *g, hk_node *x, hk_node *w, hk_node *b",
    "session.h": "hk_graph *g, hk_plan *plan, hk_session *session, "
                 "hk_tensor *batch",
    "hooks.h": "void",
    "image.h": "hk_dataset *d, hk_images_options opt",
    "launch.h": "hk_getenv_fn my_getenv",
    "nn.h": "hk_graph *g, hk_node *x, hk_node *labels",
    "optim.h": "hk_layout *layout, hk_optimizer *opt, const float *grads, "
               "int64_t n, float *x, int64_t global_step",
    "roles.h": "hk_role_center_options co, "
               "hk_role_result result, hk_role_worker_options wo, "
               "hk_layout *layout, hk_role_worker *w, hk_elastic_options eo, "
               "hk_optimizer *opt, hk_elastic *e, hk_progress progress, "
               "hk_run_end end, float *x, hk_role_evaluator_options vo",
    "run_config.h": "hk_dataset *d",
    "schedule.h": "hk_schedule *schedule",
    "spec.h": "void",
    "sweep.h": "hk_context *ctx, hk_estimator_options e, hk_source train, "
               "hk_source eval, hk_sweep_result *result",
    "train.h": "hk_session *session, hk_optimizer *optimizer, hk_trainer *t, "
               "int more",
    "writers.h": "hk_dataset *d, uint64_t count",
    "train_and_evaluate.h": "hk_estimator *e, hk_source train, "
                            "hk_source held_out, hk_train_result result",
}
PROSE = {"status.h"}  # hk_something stands for any call


def example(header):
    """The paragraphs of the first comment that are C."""
    top = header.read_text().split("#ifndef", 1)[0]
    paragraphs, last = [[]], False
    for line in top.splitlines():
        code = line.startswith("//     ")
        if code:
            paragraphs[-1].append(line[7:])
        elif last:
            paragraphs.append([])
        last = code
    text = ["\n".join(p) for p in paragraphs]
    return [p for p in text if re.search(r"\bhk_\w+\(", p)]


def program(paragraphs, given):
    """Functions at file scope, statements in one function."""
    functions, statements = [], []
    for text in paragraphs:
        text = text.replace("...", ";")
        found = re.search(r"^static .*?^}\n?", text, re.M | re.S)
        if found:
            functions.append(found.group())
            text = text.replace(found.group(), "")
        statements.append(text)
    body = "\n".join(statements)
    return ("#include <stdio.h>\n#include <hooke/hooke.h>\n" +
            "\n".join(functions) +
            f"\nvoid body({given});\nvoid body({given}) {{\n{body}\n}}\n")


def check(header, folder, include):
    """The compiler's words about a header's example; None without one."""
    paragraphs = example(header)
    if header.name in PROSE or not paragraphs:
        return None
    if header.name not in GIVEN:
        return f"tests/docs/headers.py does not know {header.name}"
    path = pathlib.Path(folder) / (header.stem + ".c")
    path.write_text(program(paragraphs, GIVEN[header.name]))
    done = subprocess.run(
        [os.environ.get("CC", "cc"), *FLAGS, "-I", include, "-fsyntax-only",
         path], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main():
    include = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                           else ROOT / "include")
    seen, bad = set(), 0
    with tempfile.TemporaryDirectory() as folder:
        for header in sorted((include / "hooke").glob("*.h")):
            said = check(header, folder, include)
            if said is None:
                continue
            seen.add(header.name)
            if said:
                print(f"include/hooke/{header.name}:\n{said}")
                bad += 1
    for name in sorted(set(GIVEN) - seen):
        print(f"include/hooke/{name} has no example any more")
        bad += 1
    print(f"headers: {len(seen)} examples, {bad} do not compile")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
