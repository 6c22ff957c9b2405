// run_record.c - experiment.json and run.json of a model_dir; see run_record.h.
#include "experiment/run_record.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "experiment/resume.h"

int make_folders(const char *path) {
    CLI_FREED char *copy = cli_strdup(path);
    struct stat st;
    for (char *p = copy + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(copy, 0777);
            *p = '/';
        }
    if (mkdir(copy, 0777) == 0 || stat(copy, &st) == 0)
        return 0; // a file of that name is for those to tell who write into it
    return cli_fail("%s: cannot create the folder: %s", path, strerror(errno));
}

// A device, or a pipe, is written to; a rename would put a file in its place.

int write_whole(const char *path, const char *text, size_t size) {
    const bool special = cli_is_special(path);
    CLI_FREED char *tmp = special
                              ? cli_strdup(path)
                              : cli_printf("%s.%d.tmp", path, (int)getpid());
    FILE *f = fopen(tmp, "wb");
    bool good = f && fwrite(text, 1, size, f) == size;
    int why = errno;
    if (f && fclose(f) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && !special && rename(tmp, path) != 0) {
        good = false;
        why = errno;
    }
    if (!good && f && !special)
        unlink(tmp);
    return good ? 0 : cli_fail("%s: %s", path, strerror(why));
}

// ---- experiment.json --------------------------------------------------------

// What the command line said stands where the file would say it.
static void note_number(tree *root, const char *path, int64_t value,
                        int64_t dflt) {
    if (tree_int(tree_path(root, path), dflt) == value)
        return;
    char *text = cli_printf("%lld", (long long)value);
    tree_set(root, path, text, "--set");
    free(text);
}

static tree *as_it_runs(const job *j) {
    const settings *s = &j->s;
    const hk_run_config *c = &s->config;
    tree *root = tree_copy(j->x->root);
    const tree *data_dir = tree_path(root, "data.dir");
    char *dir = realpath(data_dir ? tree_text(data_dir, "") : j->x->dir, NULL);
    tree_set_text(root, "name", j->x->name);
    tree_set_text(root, "run.file", j->x->file);
    if (dir && tree_path(root, "data.train.files"))
        tree_set_text(root, data_dir ? "data.dir" : "run.dir", dir);
    free(dir);
    note_number(root, "elastic.workers",
                c->all_workers ? c->all_workers : c->workers, 1);
    if (c->center) // steps of a cluster are counted by its centers
        return root;
    note_number(root, "run.steps", s->steps, 0);
    note_number(root, "run.epochs", s->epochs, 0);
    return root;
}

// A copy of model.library, so that the folder is enough.
static int keep_library(const job *j) {
    const char *library =
        tree_text(tree_path(j->x->root, "model.library"), NULL);
    if (!library || j->x->run_dir)
        return 0;
    char *from = experiment_path(j->x, library), *text;
    const char *slash = strrchr(from, '/');
    char *to = cli_printf("%s/%s", j->s.model_dir, slash ? slash + 1 : from);
    size_t size;
    int failed = cli_read_file(from, &text, &size);
    if (!failed) {
        failed = write_whole(to, text, size);
        free(text);
    }
    free(from);
    free(to);
    return failed;
}

int record_experiment(const job *j) {
    CLI_TRY(keep_library(j));
    CLI_TRY(fingerprints_save(j->x, j->s.model_dir));
    CLI_FREED char *path = cli_printf("%s/experiment.json", j->s.model_dir);
    tree *root = as_it_runs(j);
    CLI_FREED char *json = tree_json(root);
    tree_free(root);
    CLI_FREED char *text = cli_printf("%s\n", json);
    return write_whole(path, text, strlen(text));
}

// What was worked out for this number of workers, in one line.
static void tell_rates(const job *j) {
    hk_estimator_info info;
    if (hk_estimator_get_info(j->e, &info) != HK_OK || !info.has_rates ||
        info.config->not_chief)
        return;
    const hk_rates *const r = &info.rates;
    if (info.config->rates >= HK_RATES_AUTO)
        cli_note("rates for %u workers: an exchange every %u step%s, moving "
                 "rate %g, learning rate x %.2g",
                 info.config->all_workers, r->period, r->period == 1 ? "" : "s",
                 r->moving_rate, r->rate_scale);
    else
        cli_note(
            "rates for %u workers: an exchange every %u step%s, moving rate "
            "%g; 'elastic: {rates: auto}' also fits the learning rate",
            info.config->all_workers, r->period, r->period == 1 ? "" : "s",
            r->moving_rate);
}

static hk_status keep_experiment(void *user, hk_run *run) {
    (void)run;
    tell_rates(user);
    return record_experiment(user) ? HK_E_IO : HK_OK;
}

hk_status record_hook(const job *j, hk_hook **out) {
    hk_hook_calls c;
    hk_hook_calls_init(&c, sizeof c);
    c.name = "record";
    c.user = (void *)(uintptr_t)j;
    c.begin = keep_experiment;
    return hk_hook_create(&c, out);
}

hk_status record_evaluations(const settings *s, const hk_source *held,
                             hk_hook **out) {
    *out = NULL;
    if (s->eval_steps <= 0)
        return HK_OK;
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.weights = s->eval_weights;
    return hk_hook_evaluator(held, &o, s->eval_steps, out);
}

// ---- run.json ---------------------------------------------------------------

void record_read(const char *model_dir, record *out) {
    *out = (record){0};
    char *path = cli_printf("%s/run.json", model_dir);
    int64_t step = -1;
    if (access(path, R_OK) == 0 &&
        hk_latest_checkpoint(model_dir, NULL, 0, &step) == HK_OK) {
        tree *t = tree_read(path);
        record r = {.global_step = tree_int(tree_get(t, "global_step"), -1),
                    .reached = tree_int(tree_get(t, "reached"), -1),
                    .examples = tree_int(tree_get(t, "examples"), 0),
                    .exchanges =
                        (uint64_t)tree_int(tree_get(t, "exchanges"), 0),
                    .seconds = tree_float(tree_get(t, "seconds"), 0),
                    .epochs = tree_int(tree_get(t, "epochs"), 0),
                    .workers = tree_int(tree_get(t, "workers"), 0)};
        // Version 0.2 did not keep them: a plateau comes before the data's end.
        const char *const by = tree_text(tree_get(t, "stopped_by"), "");
        const int64_t used = strcmp(by, "hook") == 0 ? 0 : r.epochs;
        r.used = tree_int(tree_get(t, "epochs_used"), used);
        if (r.global_step == step)
            *out = r;
        tree_free(t);
    }
    free(path);
}

// A model that has not gone back tells by its step.
bool record_is_done(const settings *s, const record *r) {
    const int64_t steps = s->steps * (int64_t)s->config.workers;
    if (s->epochs)
        return r->epochs >= s->epochs;
    return steps && r->reached >= steps && r->global_step < r->reached;
}

int64_t record_reached(const record *before, const hk_train_result *t) {
    const int64_t last = before->global_step + t->steps;
    const int64_t least = last > t->global_step ? last : t->global_step;
    return t->steps || before->reached < least ? least : before->reached;
}

int record_add(const settings *s, const record *before,
               const hk_train_result *t) {
    record r = *before;
    r.reached = record_reached(before, t);
    // A plateau ends a run as its last epoch does.
    const bool plateau = t->reason == HK_STOP_HOOK && s->early_stop_steps > 0;
    if ((t->reason == HK_STOP_DATA || plateau) && s->epochs)
        r.epochs = s->epochs;
    if (t->reason == HK_STOP_DATA && s->epochs)
        r.used = s->epochs;
    CLI_FREED char *used =
        r.epochs ? cli_printf(",\"epochs_used\":%lld", (long long)r.used)
                 : cli_strdup("");
    CLI_FREED char *path = cli_printf("%s/run.json", s->model_dir);
    CLI_FREED char *text = cli_printf(
        "{\"version\":\"%s\",\"workers\":%u,\"global_step\":%lld,"
        "\"reached\":%lld,"
        "\"examples\":%lld,\"exchanges\":%llu,\"seconds\":%.3f,"
        "\"epochs\":%lld%s,\"stopped_by\":\"%s\"}\n",
        hk_version(),
        s->config.all_workers ? s->config.all_workers : s->config.workers,
        (long long)t->global_step, (long long)r.reached,
        (long long)r.examples + t->examples,
        (unsigned long long)r.exchanges + t->exchanges, r.seconds + t->seconds,
        (long long)r.epochs, used, hk_stop_reason_name(t->reason));
    return write_whole(path, text, strlen(text));
}

void record_advance(const char *model_dir, int64_t global_step) {
    char *path = cli_printf("%s/run.json", model_dir);
    tree *t = access(path, R_OK) == 0 ? tree_read(path) : NULL;
    const int64_t before = t ? tree_int(tree_get(t, "global_step"), -1) : -1;
    if (before >= 0 && before < global_step) {
        char *step = cli_printf("%lld", (long long)global_step);
        tree_set(t, "global_step", step, "--set");
        char *json = tree_json(t), *text = cli_printf("%s\n", json);
        write_whole(path, text, strlen(text));
        free(step);
        free(json);
        free(text);
    }
    tree_free(t);
    free(path);
}
