// cluster.c - the roles of a cluster over hooke/roles.h.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "experiment/resume.h"
#include "run/processes.h"
#include "run/progress.h"
#include "experiment/run_record.h"
#include "run/show.h"

enum {
    MOST_WORKERS = 65536 // of a cluster
};

int cluster_config(const cli_args *a, const char *role,
                   hk_cluster_config **out) {
    hk_cluster_options o;
    hk_cluster_options_init(&o, sizeof o);
    const int64_t workers = cli_int(a, "workers", 0);
    if (workers > MOST_WORKERS)
        return cli_usage_error(cli_command_of(a),
                               "--workers is at most %d, not %lld",
                               MOST_WORKERS, (long long)workers);
    o.getenv = cli_getenv;
    o.role = role;
    o.center = cli_string(a, "center", NULL);
    o.center_dns = cli_string(a, "center-dns", NULL);
    o.center_count = cli_u32(a, "center-count", 0);
    o.index = cli_string(a, "index", NULL);
    o.listen = cli_string(a, "listen", NULL);
    o.hostfile = cli_string(a, "hostfile", NULL);
    o.launcher = cli_string(a, "launcher", NULL);
    o.port = cli_u32(a, "port", 0);
    o.workers = (uint32_t)workers;
    const hk_status s = hk_cluster_config_create(&o, out);
    cli_status(s);
    return s == HK_OK ? 0 : CLI_USAGE; // a description that makes no sense
}

static int read_key(const cli_args *a, hk_key *key, bool *has) {
    const char *path = cli_string(a, "key", getenv("HOOKE_KEY"));
    *has = path && *path;
    return *has ? cli_status(hk_key_load(path, key)) : 0;
}

// Steps of all workers together after which the run is over. `train` counts
// the steps of one worker, as it does without a cluster; the roles' own
// commands count all.
static int64_t all_steps(const cli_args *a, const settings *s,
                         uint32_t workers) {
    const bool is_train = strcmp(cli_command_of(a)->name, "train") == 0;
    if (cli_has(a, "steps") && !is_train)
        return cli_int(a, "steps", 0);
    return s->steps * (int64_t)(workers ? workers : 1);
}

// ---- a center ---------------------------------------------------------------

static int start_context(const cli_args *a, hk_context **ctx) {
    hk_context_options c;
    hk_context_options_init(&c, sizeof c);
    c.log = cli_log;
    c.log_level = cli_log_level();
    c.threads = cli_u32(a, "threads", 0);
    const hk_status s = hk_context_create(&c, ctx);
    if (s == HK_OK)
        signals_watch(*ctx);
    return cli_status(s);
}

// What the experiment says about a center; a center needs none.
typedef struct center_plan {
    hk_center_options center;
    hk_optimizer_options outer; // the center's, if it has one
    hk_run_limits limits;
    hk_saver_options saver; // of the final checkpoint
    const char *model_dir;  // NULL: none
    const char *file;       // center file; NULL: none
    job *asked;             // the experiment; NULL: none
} center_plan;

// As the estimator's own checkpoints are.
static void plan_saver(const hk_run_config *c, hk_saver_options *o) {
    o->basename = c->basename;
    o->format = c->ckpt_format;
    o->keep_max = c->keep_checkpoint_max;
    o->keep_every_n_hours = c->keep_checkpoint_every_n_hours;
    o->keep_best = c->keep_best;
    o->best_is_max = c->best_is_max;
    o->no_fsync = c->no_fsync;
}

// Where the center lives. A launcher's model_dir is often shared by all hosts:
// there the center does with memory, which a center by hand has to ask for.
static int plan_file(const cli_args *a, const hk_cluster_info *info,
                     center_plan *p) {
    static char path[4096];
    const bool is_train = strcmp(cli_command_of(a)->name, "train") == 0;
    p->file = cli_string(a, "center-file", NULL);
    if (p->file && strcmp(p->file, "none") == 0)
        p->file = NULL;
    else if (!p->file && p->model_dir) {
        const hk_status s =
            hk_center_file_of(p->model_dir, (uint32_t)info->center_index,
                              info->n_centers, path, sizeof path);
        if (s == HK_E_UNSUPPORTED && is_train)
            cli_note("center: %s", hk_last_error());
        else if (s != HK_OK)
            return cli_status(s);
        else
            p->file = path;
    }
    return 0;
}

static int plan_center(const cli_args *a, const hk_cluster_info *info,
                       center_plan *p) {
    *p = (center_plan){.model_dir = cli_string(a, "model-dir", NULL)};
    hk_run_limits_init(&p->limits, sizeof p->limits);
    hk_saver_options_init(&p->saver, sizeof p->saver);
    hk_center_options_init(&p->center, sizeof p->center);
    const bool is_train = strcmp(cli_command_of(a)->name, "train") == 0;
    if (cli_operand(a, 0) || is_train) {
        experiment *x;
        settings s;
        CLI_TRY(experiment_open(a, cli_operand(a, 0), &x));
        CLI_TRY(settings_read(x, a, &s));
        CLI_TRY(info->center_index == 0 ? resume_check(a, x, &s) : 0);
        settings_tell(&s);
        CLI_TRY(
            settings_method(tree_get(x->root, "elastic"), info->n_workers, &s));
        s.config.all_workers = info->n_workers;
        p->asked = cli_alloc(sizeof *p->asked);
        *p->asked = (job){.x = x, .s = s};
        p->center = s.center;
        p->outer = s.outer;
        if (s.center.outer)
            p->center.outer = &p->outer;
        p->model_dir = s.model_dir;
        plan_saver(&s.config, &p->saver);
        p->limits.seconds = s.seconds;
        if (info->n_workers || (cli_has(a, "steps") && !is_train))
            p->limits.steps = all_steps(a, &s, info->n_workers);
    } else {
        p->limits.steps = cli_int(a, "steps", 0);
        p->limits.seconds = cli_float(a, "seconds", 0);
    }
    const char *method = cli_string(a, "method", NULL);
    if (method)
        CLI_TRY(cli_status(hk_method_find(method, &p->center.method)));
    return plan_file(a, info, p);
}

static int start_center(const cli_args *a, const hk_cluster_config *config,
                        hk_context *ctx, hk_role_center **out) {
    hk_cluster_info info;
    hk_cluster_config_get_info(config, &info);
    hk_key key;
    bool has_key;
    center_plan plan;
    CLI_TRY(read_key(a, &key, &has_key));
    CLI_TRY(plan_center(a, &info, &plan));
    hk_center_server_options server;
    hk_role_center_options o;
    hk_center_server_options_init(&server, sizeof server);
    hk_role_center_options_init(&o, sizeof o);
    plan.center.workers = info.n_workers;
    server.context = ctx;
    server.key = has_key ? &key : NULL;
    server.center = &plan.center;
    server.path = plan.file;
    server.durability = cli_string(a, "durability", "process");
    server.insecure = cli_has(a, "insecure");
    server.reset_worker = cli_int(a, "reset-worker", -1);
    o.config = config;
    o.server = &server;
    o.limits = &plan.limits;
    o.metrics = cli_string(a, "metrics", NULL);
    o.directory = plan.model_dir;
    o.saver = &plan.saver;
    o.linger_ms = cli_ms(a, "linger", 300);
    struct stat st;
    const bool came_back = plan.file && stat(plan.file, &st) == 0;
    if (plan.file)
        signals_mapped(plan.file);
    int failed = cli_status(hk_role_center_start(&o, out));
    if (!failed && plan.asked && info.center_index == 0) {
        failed = make_folders(plan.model_dir);
        if (!failed)
            failed = record_experiment(plan.asked);
        if (failed && came_back) { // a full disk
            cli_note(
                "center: continues from %s with the earlier experiment.json",
                plan.file);
            failed = 0;
        }
    }
    free(plan.asked);
    if (!failed && !plan.file && !plan.model_dir)
        cli_note("center: nothing is saved when it ends; give an experiment, "
                 "--model-dir or --center-file to keep the result");
    return failed;
}

static void announce(hk_role_center *c) {
    hk_role_center_info info;
    hk_role_center_get_info(c, &info);
    for (size_t i = 0; hk_center_server_address(info.server, i); i++)
        cli_note("center at %s", hk_center_server_address(info.server, i));
    if (info.metrics)
        cli_note("metrics at http://%s/metrics", info.metrics);
}

static void show_final(const char *checkpoint, int64_t step) {
    char *dir = cli_strdup(checkpoint);
    char *slash = strrchr(dir, '/');
    cli_note("center: %s", checkpoint);
    if (slash) {
        *slash = '\0';
        record_advance(dir, step);
    }
    free(dir);
}

// Why a run or this process has ended. The signal is known only here.
static const char *end_reason(const hk_role_result *r, char *out, size_t size) {
    if (r->end == HK_END_STOPPED && signals_name())
        snprintf(out, size, "stopped by %s", signals_name());
    else
        snprintf(out, size, "%s",
                 *r->reason ? r->reason : hk_run_end_name(r->end));
    return out;
}

int role_center(const cli_args *a, const hk_cluster_config *config) {
    hk_context *ctx;
    hk_cluster_info info;
    hk_cluster_config_get_info(config, &info);
    cli_set_role("center", info.center_index);
    hk_role_center *c = NULL;
    CLI_TRY(start_context(a, &ctx));
    CLI_TRY(start_center(a, config, ctx, &c));
    announce(c);
    hk_role_result r = {0};
    const hk_status s = hk_role_center_wait(c, -1, &r);
    int failed = s == HK_E_CANCELLED ? signals_code() : cli_status(s);
    char why[sizeof r.reason];
    if (s == HK_OK || s == HK_E_CANCELLED)
        cli_note("center: %s; %lld steps", end_reason(&r, why, sizeof why),
                 (long long)r.global_step);
    hk_role_center_info about;
    hk_role_center_get_info(c, &about);
    if (about.checkpoint)
        show_final(about.checkpoint, r.global_step);
    if (cli_has(a, "json"))
        printf("{\"global_step\":%lld,\"end\":\"%s\"}\n",
               (long long)r.global_step, hk_run_end_name(r.end));
    hk_role_center_stop(c);
    hk_context_destroy(ctx);
    return failed;
}

// ---- a worker ---------------------------------------------------------------

typedef struct link {
    hk_role_worker *w;
    hk_run_end end;
    int64_t steps; // of the run, over all workers; 0: no bound
} link;

// Tells the center how it goes, and hears when the run is over.
static hk_status after_step(void *self, hk_run *run) {
    link *l = self;
    hk_run_info i;
    hk_run_get_info(run, &i);
    hk_progress p = {.local_step = i.local_step,
                     .examples = (double)i.examples,
                     .loss = (double)i.loss,
                     .worker = (int32_t)i.worker};
    if (i.elastic)
        hk_progress_of(i.elastic, &p);
    const hk_status s = hk_role_worker_step(l->w, &p, &l->end);
    if (s == HK_OK && l->end != HK_END_NONE)
        hk_run_request_stop(run);
    return s;
}

static void connection(const cli_args *a, const job *j, const hk_key *key,
                       hk_connect_options *o) {
    hk_connect_options_init(o, sizeof *o);
    o->context = j->ctx;
    o->key = key;
    o->insecure = cli_has(a, "insecure");
    o->connect_ms = cli_ms(a, "connect", 60);
    const char *coding =
        tree_text(tree_path(j->x->root, "elastic.compress"), "none");
    o->compression = strcmp(coding, "bf16") == 0   ? HK_COMPRESS_BF16
                     : strcmp(coding, "int8") == 0 ? HK_COMPRESS_INT8
                                                   : HK_COMPRESS_NONE;
    o->center_bf16 = j->s.center_bf16;
    o->row_period = j->s.row_period;
}

// The layout comes from the model, so graph and center meet here.
static int join(const cli_args *a, job *j, const hk_cluster_config *config,
                const hk_source *data, link *l) {
    hk_key key;
    bool has_key;
    int failed = read_key(a, &key, &has_key);
    hk_layout *layout;
    if (!failed)
        failed = cli_status(hk_estimator_layout(j->e, data, &layout));
    if (failed)
        return failed;
    hk_connect_options connect;
    connection(a, j, has_key ? &key : NULL, &connect);
    hk_run_limits limits;
    hk_run_limits_init(&limits, sizeof limits);
    limits.steps = l->steps;
    limits.seconds = j->s.seconds;
    hk_role_worker_options o;
    hk_role_worker_options_init(&o, sizeof o);
    o.config = config;
    o.connect = &connect;
    o.limits = limits.steps || limits.seconds > 0 ? &limits : NULL;
    o.metrics = cli_string(a, "metrics", NULL);
    failed = cli_status(hk_role_worker_open(&o, layout, &l->w));
    hk_layout_release(layout);
    if (failed)
        return failed;
    l->steps = hk_role_worker_steps(l->w);
    return cli_status(
        hk_estimator_set_center(j->e, hk_role_worker_center(l->w)));
}

static int train_linked(const cli_args *a, job *j, const hk_source *data,
                        link *l, hk_train_result *t) {
    hk_hook_calls calls;
    hk_hook_calls_init(&calls, sizeof calls);
    calls.name = "cluster";
    calls.user = l;
    calls.after_run = after_step;
    hk_hook *hooks[4] = {NULL, NULL, NULL, NULL};
    size_t n = 0;
    const bool evaluates =
        cli_has(a, "evaluate") && j->s.eval_steps > 0 && !j->s.config.not_chief;
    const progress_plan plan = {.steps = l->steps,
                                .epochs = j->s.epochs,
                                .seconds = j->s.seconds,
                                .metric = evaluates ? "accuracy" : NULL};
    progress *p = progress_create(cli_string(a, "progress", "auto"), &plan);
    hk_status s = hk_hook_create(&calls, &hooks[n++]);
    if (s == HK_OK && !j->s.config.not_chief)
        s = record_hook(j, &hooks[n++]);
    data_user eval_set = {.x = j->x, .set = "eval"};
    const hk_source held = data_source(&eval_set);
    if (s == HK_OK && evaluates)
        s = record_evaluations(&j->s, &held, &hooks[n++]);
    if (s == HK_OK) // after them: its last line has the last score
        s = progress_hook(p, &hooks[n++]);
    hk_train_options o;
    hk_train_options_init(&o, sizeof o);
    // The center counts steps and time of the whole cluster, and
    // hk_role_worker_step says when it is over.
    o.epochs = j->s.epochs;
    o.hooks = hooks;
    o.n_hooks = n;
    if (s == HK_OK)
        s = hk_estimator_train(j->e, data, &o, t);
    progress_close(p);
    for (size_t i = 0; i < 4; i++)
        hk_hook_release(hooks[i]);
    return cli_status(s);
}

// How it went, in words and for programs.
static int report_worker(const cli_args *a, const job *j, const record *before,
                         const hk_train_result *t, const hk_role_result *r) {
    char why[sizeof r->reason];
    cli_note("worker: %lld steps in %s, %llu exchanges; %s",
             (long long)t->steps, cli_duration(t->seconds),
             (unsigned long long)t->exchanges, end_reason(r, why, sizeof why));
    if (cli_has(a, "json")) {
        printf("{");
        result_train_json(stdout, t);
        printf("}\n");
    }
    if (j->s.config.not_chief)
        return 0;
    const int failed = record_add(&j->s, before, t);
    if (!failed && strcmp(cli_command_of(a)->name, "train") == 0)
        result_directions(j);
    return failed;
}

static hk_run_end end_of(link *l, const hk_train_result *t) {
    const hk_progress none = {.worker = -1};
    // The run was over before the first step.
    if (t->reason == HK_STOP_CENTER && l->end == HK_END_NONE)
        (void)hk_role_worker_step(l->w, &none, &l->end);
    if (l->end != HK_END_NONE)
        return l->end;
    if (signals_code())
        return HK_END_STOPPED;
    switch (t->reason) {
    case HK_STOP_STEPS:
    case HK_STOP_DONE:
        return HK_END_STEPS;
    case HK_STOP_DATA:
        return HK_END_EPOCHS;
    default: // the run goes on without this worker
        return HK_END_STOPPED;
    }
}

static void greet(const job *j, const hk_cluster_info *info,
                  const hk_role_worker *w) {
    if (info->worker_id >= 0)
        cli_note("worker %d of %u: training %s", info->worker_id,
                 info->n_workers, j->x->name);
    else
        cli_note("worker: training %s", j->x->name);
    settings_tell(&j->s);
    if (!info->n_workers)
        cli_note("the number of workers is unknown: each worker moves the "
                 "center as if it were the only one; set --workers");
    if (!j->s.config.not_chief && (j->s.early_stop_steps || j->s.stop_metric))
        cli_note("run.stop_metric and run.early_stop_steps are for runs of one "
                 "process; this run ends at its steps, epochs or seconds");
    if (hk_role_worker_metrics(w))
        cli_note("metrics at http://%s/metrics", hk_role_worker_metrics(w));
}

static int work(const cli_args *a, job *j, const hk_cluster_config *config,
                const hk_cluster_info *info) {
    data_user set = {.x = j->x,
                     .set = "train",
                     .repeat = !j->s.epochs,
                     .stranger = info->worker_id < 0};
    const hk_source data = data_source(&set);
    link l = {.steps = all_steps(a, &j->s, info->n_workers)};
    hk_train_result t = {0};
    CLI_TRY(join(a, j, config, &data, &l));
    record before;
    record_read(j->s.model_dir, &before);
    greet(j, info, l.w);
    int failed = train_linked(a, j, &data, &l, &t);
    hk_role_result r = {0};
    const hk_status s = hk_role_worker_leave(
        l.w, failed ? HK_END_FAILED : end_of(&l, &t), NULL, NULL, &r);
    if (!failed)
        failed = cli_status(s);
    if (!failed)
        failed = report_worker(a, j, &before, &t, &r);
    job_stop(j); // before the center that its estimator is tied to
    hk_role_worker_close(l.w);
    return failed ? failed : signals_code();
}

int role_worker(const cli_args *a, const hk_cluster_config *config) {
    hk_cluster_info info;
    hk_cluster_config_get_info(config, &info);
    cli_set_role(info.task_type, info.task_index);
    job *j;
    settings_cluster(config);
    int failed = job_open(a, cli_operand(a, 0), true, &j);
    if (failed)
        return failed;
    // Under Slurm and torchrun the centers are threads of the first ranks.
    hk_role_center *c = NULL;
    if (info.center_index >= 0)
        failed = start_center(a, config, j->ctx, &c);
    if (!failed)
        failed = work(a, j, config, &info);
    hk_role_result r;
    if (c && !failed) // the others may need it longer
        failed = cli_status(hk_role_center_wait(c, 60000, &r));
    hk_role_center_stop(c);
    job_close(j);
    return failed;
}

// ---- an evaluator -----------------------------------------------------------

typedef struct judge {
    job *j;
    const hk_source *held, *data;
} judge;

static hk_status judge_one(void *user, const hk_evaluation *what,
                           hk_measure *out, size_t capacity, size_t *n) {
    const judge *g = user;
    hk_evaluate_options o;
    hk_evaluate_options_init(&o, sizeof o);
    o.checkpoint_path = what->path;
    hk_eval_result *r;
    hk_status s = HK_OK;
    if (what->values)
        s = hk_estimator_assign(g->j->e, g->data, what->values, what->side,
                                what->global_step);
    if (s == HK_OK)
        s = hk_estimator_evaluate(g->j->e, g->held, &o, &r);
    if (s != HK_OK)
        return s;
    *n = 0;
    char *line = cli_printf("step %lld", (long long)what->global_step);
    for (size_t i = 0; i < r->item_count && *n < capacity; i++) {
        const hk_eval_item *it = &r->items[i];
        snprintf(out[*n].name, sizeof out[*n].name, "%s", it->name);
        out[(*n)++].value = it->value;
        if (strcmp(it->name, "global_step") == 0)
            continue;
        char *longer = cli_printf("%s  %s %.5g", line, it->name, it->value);
        free(line);
        line = longer;
    }
    cli_note("evaluator: %s%s", line, what->is_final ? "  final" : "");
    free(line);
    hk_eval_result_destroy(r);
    return HK_OK;
}

static int observe(const cli_args *a, job *j, const hk_cluster_config *config) {
    hk_key key;
    bool has_key;
    data_user set = {.x = j->x, .set = "eval"};
    data_user train_set = {.x = j->x, .set = "train"};
    const hk_source held = data_source(&set);
    const hk_source data = data_source(&train_set);
    hk_role_evaluator_options o;
    hk_role_evaluator_options_init(&o, sizeof o);
    CLI_TRY(read_key(a, &key, &has_key));
    CLI_TRY(cli_status(hk_estimator_layout(j->e, &data, &o.layout)));
    hk_connect_options connect;
    connection(a, j, has_key ? &key : NULL, &connect);
    judge g = {j, &held, &data};
    o.config = config;
    o.connect = &connect;
    o.directory = j->s.model_dir;
    o.evaluate = judge_one;
    o.user = &g;
    o.metrics = cli_string(a, "metrics", NULL);
    o.throttle_ms = cli_ms(a, "throttle", 10);
    if (cli_has(a, "connect"))
        o.lost_ms = connect.connect_ms;
    hk_role_result r = {0};
    const hk_status s = hk_role_evaluator_run(&o, &r);
    hk_layout_release(o.layout);
    int failed = s == HK_E_CANCELLED ? signals_code() : cli_status(s);
    if (!failed)
        cli_note("evaluator: the run is over at step %lld; %s",
                 (long long)r.global_step, r.reason);
    return failed;
}

int role_evaluator(const cli_args *a, const hk_cluster_config *config) {
    hk_cluster_info info;
    hk_cluster_config_get_info(config, &info);
    cli_set_role("evaluator", info.task_index);
    settings_cluster(config);
    CLI_SCOPED(job_close_at) job *j = NULL;
    CLI_TRY(job_open(a, cli_operand(a, 0), true, &j));
    return observe(a, j, config);
}

// ---- by environment ---------------------------------------------------------

int run_as(const cli_args *a, const hk_cluster_config *c) {
    hk_cluster_info info;
    hk_cluster_config_get_info(c, &info);
    switch (info.task) {
    case HK_TASK_CENTER:
        return role_center(a, c);
    case HK_TASK_EVALUATOR:
        return role_evaluator(a, c);
    case HK_TASK_WORKER:
    case HK_TASK_CHIEF:
        return role_worker(a, c);
    default:
        return cli_fail("the task type '%s' of %s is not a role of Hooke "
                        "(center, chief, worker, evaluator)",
                        info.task_type, hk_launcher_name(info.launcher));
    }
}

// One line per process: which part of the cluster the launcher made it.
static void tell_role(const hk_cluster_config *c, const hk_cluster_info *info) {
    const char *launcher = hk_launcher_name(info->launcher);
    const bool runs_center = info->center_index >= 0;
    const int32_t center = runs_center ? info->center_index : 0;
    const char *at = hk_cluster_config_address(c, "ps", (uint32_t)center);
    char *who =
        info->worker_id >= 0 && info->n_workers > 0
            ? cli_printf("worker %d of %u", info->worker_id, info->n_workers)
            : cli_printf("a task of type %s", info->task_type);
    if (info->task == HK_TASK_CENTER)
        cli_note("%s: this process is center %d of %u, at %s", launcher, center,
                 info->n_centers, at ? at : info->listen);
    else if (at)
        cli_note("%s: this process is %s; center %d of %u is %s %s", launcher,
                 who, center, info->n_centers,
                 runs_center ? "a thread of this process, at" : "at", at);
    else
        cli_note("%s: this process is %s", launcher, who);
    free(who);
}

int run_cluster(const cli_args *a, bool *is_cluster) {
    CLI_SCOPED(hk_cluster_config_destroy_at) hk_cluster_config *c = NULL;
    CLI_TRY(cluster_config(a, NULL, &c));
    hk_cluster_info info;
    hk_cluster_config_get_info(c, &info);
    *is_cluster = !info.is_local;
    if (!*is_cluster)
        return 0;
    if (info.task != HK_TASK_OTHER)
        tell_role(c, &info);
    return run_as(a, c);
}
