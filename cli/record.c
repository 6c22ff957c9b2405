// record.c - experiment.json and run.json of a model_dir; see record.h.
#include "record.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void make_folders(const char *path) {
    char *copy = cli_strdup(path);
    for (char *p = copy + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(copy, 0777);
            *p = '/';
        }
    mkdir(copy, 0777);
    free(copy);
}

int write_whole(const char *path, const char *text, size_t size) {
    char *tmp = cli_printf("%s.tmp", path);
    FILE *f = fopen(tmp, "wb");
    bool good = f && fwrite(text, 1, size, f) == size;
    int why = errno;
    if (f && fclose(f) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && rename(tmp, path) != 0) {
        good = false;
        why = errno;
    }
    if (!good && f)
        unlink(tmp);
    const int failed = good ? 0 : cli_fail("%s: %s", path, strerror(why));
    free(tmp);
    return failed;
}

// ---- experiment.json --------------------------------------------------------

int record_experiment(const job *j) {
    char *path = cli_printf("%s/experiment.json", j->s.model_dir);
    char *json = tree_json(j->x->root);
    char *text = cli_printf("%s\n", json);
    const int failed = write_whole(path, text, strlen(text));
    free(path);
    free(json);
    free(text);
    return failed;
}

static hk_status keep_experiment(void *user, hk_run *run) {
    (void)run;
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

// ---- run.json ---------------------------------------------------------------

void record_read(const char *model_dir, record *out) {
    *out = (record){0};
    char *path = cli_printf("%s/run.json", model_dir), *latest;
    int64_t step = -1;
    if (access(path, R_OK) == 0 &&
        hk_latest_checkpoint(model_dir, &latest, &step) == HK_OK) {
        hk_ckpt_free_path(latest);
        tree *t = tree_read(path);
        const record r = {
            .global_step = tree_int(tree_get(t, "global_step"), -1),
            .examples = tree_int(tree_get(t, "examples"), 0),
            .exchanges = (uint64_t)tree_int(tree_get(t, "exchanges"), 0),
            .seconds = tree_float(tree_get(t, "seconds"), 0),
            .epochs = tree_int(tree_get(t, "epochs"), 0),
            .workers = tree_int(tree_get(t, "workers"), 0)};
        if (r.global_step == step)
            *out = r;
        tree_free(t);
    }
    free(path);
}

int record_add(const settings *s, const record *before,
               const hk_train_result *t) {
    record r = *before;
    if (t->reason == HK_STOP_DATA && s->epochs)
        r.epochs = s->epochs;
    char *path = cli_printf("%s/run.json", s->model_dir);
    char *text = cli_printf(
        "{\"version\":\"%s\",\"workers\":%u,\"global_step\":%lld,"
        "\"examples\":%lld,\"exchanges\":%llu,\"seconds\":%.3f,"
        "\"epochs\":%lld,\"stopped_by\":\"%s\"}\n",
        hk_version(),
        s->config.all_workers ? s->config.all_workers : s->config.workers,
        (long long)t->global_step, (long long)(r.examples + t->examples),
        (unsigned long long)(r.exchanges + t->exchanges),
        r.seconds + t->seconds, (long long)r.epochs,
        hk_stop_reason_name(t->reason));
    const int failed = write_whole(path, text, strlen(text));
    free(path);
    free(text);
    return failed;
}
