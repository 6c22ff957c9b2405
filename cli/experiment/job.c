// job.c - an experiment at work: its settings, its table and its estimator.
#include "experiment/experiment.h"
#include <stdlib.h>
#include <string.h>
#include "experiment/csv_table.h"
#include "experiment/resume.h"
#include "experiment/run_record.h"
#include "experiment/schema.h"
#include "experiment/table_recipe.h"

static int make_canned(job *j) {
    const tree *t = tree_get(j->x->root, "model");
    const char *kind = tree_text(tree_get(t, "canned"), NULL);
    const table *rows = table_of(j->x);
    if (!kind)
        return 0;
    hk_canned_options o;
    hk_canned_options_init(&o, sizeof o,
                           strcmp(kind, "linear") == 0 ? HK_CANNED_LINEAR
                           : strcmp(kind, "dnn") == 0  ? HK_CANNED_DNN
                                                       : HK_CANNED_DNN_LINEAR);
    // The labels say how many classes there are.
    const int64_t words = (int64_t)rows->n_words;
    o.n_classes =
        tree_int(tree_get(t, "classes"), words ? words : rows->classes);
    o.features = rows->features;
    o.target = o.n_classes ? HK_TARGET_RAW : rows->target;
    o.target_mean = rows->target_mean;
    o.target_scale = rows->target_scale;
    o.weight = rows->weight;
    o.class_weights = rows->class_weight;
    o.n_class_weights = rows->n_class_weights;
    o.label = j->x->label_name;
    o.histograms = tree_bool(tree_path(j->x->root, "run.histograms"), false);
    table_recipe r = recipe_of(rows->rows);
    const bool ours = rows->rows && !tree_get(t, "hidden");
    o.dropout = tree_float(tree_get(t, "dropout"), ours ? r.dropout : 0);
    int64_t hidden[32] = {r.hidden[0], r.hidden[1]};
    const tree *list = tree_get(t, "hidden");
    o.n_hidden = list ? 0 : 2;
    for (const tree *c = tree_first(list); c && o.n_hidden < 32;
         c = tree_next(list, c))
        hidden[o.n_hidden++] = tree_int(c, 0);
    o.hidden = hidden;
    o.optimizer = &j->s.optimizer;
    o.gradproc = j->s.has_gradproc ? &j->s.gradproc : NULL;
    hk_optimizer_options ftrl;
    hk_optimizer_options_init(&ftrl, sizeof ftrl, HK_OPT_FTRL);
    ftrl.learning_rate = tree_float(tree_get(t, "linear_rate"), 0.05);
    const char *wide = tree_text(tree_get(t, "linear_optimizer"), "ftrl");
    o.linear_optimizer = strcmp(wide, "ftrl") == 0 ? &ftrl : &j->s.optimizer;
    return cli_status(hk_canned_model_create(&o, &j->canned));
}

void job_estimator_options(job *j, hk_estimator_options *o) {
    hk_estimator_options_init(o, sizeof *o);
    o->model_fn = j->x->model_fn ? j->x->model_fn : model_fn;
    o->user = &j->model;
    o->tag = j->x->tag;
    if (j->canned)
        hk_canned_fill(j->canned, o);
    o->params = j->s.params;
    o->config = &j->s.config;
    o->warm_start = j->s.warm_start.checkpoint ? &j->s.warm_start : NULL;
}

hk_status job_context(const cli_args *a, hk_context **out) {
    hk_context_options c;
    hk_context_options_init(&c, sizeof c);
    c.log = cli_log;
    c.log_level = cli_log_level();
    c.threads = cli_u32(a, "threads", 0);
    return hk_context_create(&c, out);
}

int job_open(const cli_args *a, const char *operand, bool learn, job **out) {
    job *j = cli_alloc(sizeof *j);
    int failed = experiment_open(a, operand, &j->x);
    if (!failed)
        failed = settings_read(j->x, a, &j->s);
    if (!failed)
        failed = resume_check_owner(j->x, &j->s);
    if (!failed && learn && !j->s.config.not_chief)
        failed = resume_check(a, j->x, &j->s);
    else if (!failed && !learn)
        failed = resume_check_model(a, j->x, &j->s);
    if (!failed)
        data_index_folder(j->s.model_dir);
    if (!failed)
        failed = table_open(j->x, &j->s, learn);
    if (failed)
        return failed;
    if (learn)
        failed = recipe_apply(j->x, a, &j->s);
    if (failed)
        return failed;
    if (learn)
        settings_fit_period(j->x, a, &j->s);
    hk_status s = job_context(a, &j->ctx);
    if (s != HK_OK)
        return cli_status(s);
    signals_watch(j->ctx);
    j->model = (model_user){.x = j->x, .s = &j->s};
    failed = make_canned(j);
    if (failed)
        return failed;
    settings_join(&j->s);
    hk_estimator_options o;
    job_estimator_options(j, &o);
    failed = cli_status(hk_estimator_create(j->ctx, &o, &j->e));
    if (!failed)
        *out = j;
    return failed;
}

// Graphs are found by the tag, and a graph's spec holds the optimizer.
static char *variant_tag(const tree *root) {
    const tree *model = tree_get(root, "model");
    const tree *optimizer = tree_get(root, "optimizer");
    CLI_FREED char *a = model ? tree_json(model) : cli_strdup("");
    CLI_FREED char *b = optimizer ? tree_json(optimizer) : cli_strdup("");
    return cli_printf("%s%s", a, b);
}

int job_variant(const cli_args *a, const job *j, tree *root, job **out) {
    job *v = cli_alloc(sizeof *v);
    v->x = cli_alloc(sizeof *v->x);
    *v->x = *j->x;
    v->x->root = root;
    v->ctx = j->ctx;
    if (!schema_check(root))
        return CLI_FAILED;
    v->x->tag = variant_tag(root);
    CLI_TRY(settings_read(v->x, a, &v->s));
    CLI_TRY(recipe_apply(v->x, a, &v->s));
    settings_fit_period(v->x, a, &v->s);
    v->model = (model_user){.x = v->x, .s = &v->s};
    int failed = make_canned(v);
    if (!failed)
        *out = v;
    return failed;
}

// Is there a checkpoint, and does --data make sense?
static int check_trained(const cli_args *a, const job *j) {
    const char *source =
        tree_text(tree_path(j->x->root, "data.train.source"), "digits");
    if (cli_has(a, "data") && strcmp(source, "digits") == 0)
        return cli_usage_error(cli_command_of(a),
                               "--data: the source digits generates its "
                               "examples and reads no files");
    if (cli_has(a, "checkpoint"))
        return 0;
    const hk_status s = hk_latest_checkpoint(j->s.model_dir, NULL, 0, NULL);
    if (s == HK_E_NOT_FOUND || s == HK_E_IO)
        return cli_fail("%s: no trained model; train first, or give the "
                        "--model-dir of one",
                        j->s.model_dir);
    return cli_status(s);
}

int job_open_trained(const cli_args *a, job **out) {
    const int failed = job_open(a, cli_operand(a, 0), false, out);
    return failed ? failed : check_trained(a, *out);
}

hk_status chosen_weights(const cli_args *a, hk_weights *out) {
    const char *name = cli_string(a, "weights", NULL);
    return name ? hk_weights_find(name, out) : HK_OK;
}

void job_stop(job *j) {
    hk_estimator_destroy(j->e);
    j->e = NULL;
}

void job_close(job *j) {
    signals_watch(NULL);
    hk_estimator_destroy(j->e);
    hk_context_destroy(j->ctx);
    hk_canned_model_destroy(j->canned);
}
