// cmd_export.c - the weights, or the whole model, as a file for other programs.
#include <stdlib.h>
#include <string.h>
#include "commands/copy_tensors.h"
#include "experiment/csv_table.h"
#include "experiment/experiment.h"
#include "experiment/resume.h"
#include "experiment/run_record.h"

// ---- which tensors ----------------------------------------------------------

static bool has_section(const hk_ckpt *c, const char *section) {
    const hk_ckpt_entry *e;
    for (size_t i = 0; (e = hk_ckpt_item(c, i)) != NULL; i++)
        if (cli_begins(e->name, section))
            return true;
    return false;
}

static const char *path_of(const hk_ckpt *c) {
    hk_ckpt_info info;
    hk_ckpt_get_info(c, &info);
    return info.path;
}

// The section of the checkpoint that holds the weights, "" for plain names:
// the center, or the only model. NULL after a message.
static const char *section_of(const hk_ckpt *c, const char *weights) {
    static const char own[] = "hooke/worker/0/x/";
    const char *method = hk_ckpt_meta(c, "hooke.method");
    const bool elastic =
        has_section(c, own) || (method && strcmp(method, "none") != 0);
    if (!weights || (strcmp(weights, "center") == 0 && elastic) ||
        (strcmp(weights, "local") == 0 && !elastic))
        return "";
    if (strcmp(weights, "local") == 0 && has_section(c, own))
        return own;
    if (strcmp(weights, "local") == 0) {
        cli_fail("%s: has the center's weights only, none of a worker; use "
                 "--weights center",
                 path_of(c));
        return NULL;
    }
    if (strcmp(weights, "ema") == 0 && has_section(c, HK_SECTION_EMA))
        return HK_SECTION_EMA;
    if (strcmp(weights, "ema") == 0)
        cli_fail(
            "%s: has no averages; train with ema.decay, or use other --weights",
            path_of(c));
    else
        cli_fail("%s: has no center, because the run was not elastic; use "
                 "--weights local",
                 path_of(c));
    return NULL;
}

// Names of the section, without it.
static const char *choose(void *user, const hk_ckpt_entry *e) {
    const char *section = user;
    if (!*section)
        return cli_begins(e->name, HK_SECTION) ? NULL : e->name;
    return cli_begins(e->name, section) ? e->name + strlen(section) : NULL;
}

// ---- files ------------------------------------------------------------------

static int make_folder_of(const char *path) {
    CLI_FREED char *folder = cli_strdup(path);
    char *slash = strrchr(folder, '/');
    if (!slash || slash == folder)
        return 0;
    *slash = '\0';
    return make_folders(folder);
}

static int write_weights(const cli_args *a, hk_ckpt *c, const char *path,
                         const char *format, size_t *n) {
    const char *section = section_of(c, cli_string(a, "weights", NULL));
    if (!section)
        return CLI_FAILED;
    weights_copy copy = {.from = c,
                         .path = path,
                         .format = copy_format(format),
                         .name = choose,
                         .user = (void *)(uintptr_t)section};
    CLI_TRY(make_folder_of(path));
    const int code = copy_weights(&copy);
    *n = copy.taken;
    return code;
}

// The checkpoint that was asked for, or the newest; NULL after a message.
static hk_ckpt *open_checkpoint(const cli_args *a, const char *model_dir) {
    const char *path = cli_string(a, "checkpoint", NULL);
    hk_context *log = NULL;
    hk_ckpt *c = NULL;
    hk_status s = job_context(a, &log);
    if (s == HK_OK)
        s = path ? hk_weights_open(path, &c)
                 : hk_ckpt_open_latest(log, model_dir, &c, NULL);
    if (!path && (s == HK_E_NOT_FOUND || s == HK_E_IO))
        cli_fail("%s: no trained model; train first, or give the --model-dir "
                 "of one",
                 model_dir);
    else
        cli_status(s);
    hk_context_destroy(log);
    return c;
}

static void tell(const cli_args *a, const char *path, const char *format,
                 size_t n, const char *checkpoint) {
    if (cli_has(a, "json")) {
        printf("{\"path\":");
        cli_json_string(stdout, path);
        printf(",\"format\":\"%s\"", format);
        if (n)
            printf(",\"tensors\":%zu", n);
        printf(",\"checkpoint\":");
        cli_json_string(stdout, checkpoint);
        printf("}\n");
    } else if (n) {
        printf("%s: %zu tensors of %s\n", path, n, checkpoint);
    } else {
        printf("%s: the model of %s\n", path, checkpoint);
    }
}

// ---- whole models -------------------------------------------------------------------

typedef struct raw_inputs {
    hk_raw_inputs in;
    hk_scaling scale;
    scaling kept;
    hk_date_column *dates;
    hk_dataset *data;
} raw_inputs;

// What comes before the model: feature columns, or the scale of pictures.
static hk_status raw_open(const data_user *set, raw_inputs *r) {
    const table *t = table_of(set->x);
    r->data = data_examples(set);
    if (hk_dataset_status(r->data) != HK_OK)
        return hk_dataset_status(r->data);
    r->in.values = hk_dataset_spec(r->data);
    if (t) {
        r->in.features = t->features;
        r->in.classes = (const char *const *)t->words;
        r->in.n_classes = t->n_words;
        r->in.n_dates = table_dates(t, &r->dates);
        r->in.dates = r->dates;
    }
    if (!data_scaling(set, r->data, &r->kept))
        return HK_OK;
    const hk_value *v = hk_element_find(r->in.values, r->kept.feature);
    r->scale = (hk_scaling){.feature = r->kept.feature,
                            .dtype = v ? v->dtype : HK_F32,
                            .scale = r->kept.scale,
                            .mean = r->kept.mean,
                            .std = r->kept.std,
                            .channels = r->kept.channels};
    r->in.scaling = &r->scale;
    return HK_OK;
}

static void raw_close(raw_inputs *r) {
    data_scaling_free(&r->kept);
    free(r->dates);
    hk_dataset_release(r->data);
}

static hk_status write_onnx(const cli_args *a, job *j, const hk_source *input,
                            const raw_inputs *r, const char *path) {
    hk_onnx_options o;
    hk_onnx_options_init(&o, sizeof o);
    o.checkpoint_path = cli_string(a, "checkpoint", NULL);
    o.raw = &r->in;
    hk_status s = chosen_weights(a, &o.weights);
    return s == HK_OK ? hk_estimator_export_onnx(j->e, input, path, &o) : s;
}

static hk_status write_folder(const cli_args *a, job *j, const hk_source *input,
                              const raw_inputs *r, const char **path) {
    hk_export_options o;
    hk_export_options_init(&o, sizeof o);
    o.checkpoint_path = cli_string(a, "checkpoint", NULL);
    o.raw = &r->in;
    hk_status s = chosen_weights(a, &o.weights);
    return s == HK_OK ? hk_estimator_export(j->e, input, *path, &o, path) : s;
}

// The whole model, as a file or as a folder below the path.
static int export_model(const cli_args *a, const char *path,
                        const char *format) {
    const bool is_onnx = strcmp(format, "onnx") == 0;
    CLI_SCOPED(job_close_at) job *j = NULL;
    CLI_TRY(job_open_trained(a, &j));
    CLI_TRY(is_onnx ? make_folder_of(path) : make_folders(path));
    int failed = 0;
    data_user set = {
        .x = j->x, .set = "predict", .override = data_given(a, &failed)};
    if (failed)
        return failed;
    const hk_source input = data_source(&set);
    CLI_SCOPED(raw_close) raw_inputs r = {0};
    hk_status s = raw_open(&set, &r);
    if (s == HK_OK && is_onnx)
        s = write_onnx(a, j, &input, &r, path);
    else if (s == HK_OK)
        s = write_folder(a, j, &input, &r, &path);
    char from[4096];
    snprintf(from, sizeof from, "%s", cli_string(a, "checkpoint", ""));
    if (s == HK_OK && !from[0])
        s = hk_latest_checkpoint(j->s.model_dir, from, sizeof from, NULL);
    if (s == HK_OK)
        tell(a, path, format, 0, from);
    return cli_status(s);
}

// ---- the command ------------------------------------------------------------

static int run(const cli_args *a) {
    const char *path = cli_string(a, "output", NULL);
    const char *format = cli_string(a, "format", "safetensors");
    if (!path)
        return cli_usage_error(cli_command_of(a), "--output is missing");
    if (strcmp(format, "onnx") == 0 || strcmp(format, "folder") == 0)
        return export_model(a, path, format);
    experiment *x;
    settings s;
    CLI_TRY(experiment_open(a, cli_operand(a, 0), &x));
    CLI_TRY(settings_read(x, a, &s));
    CLI_TRY(resume_check_owner(x, &s));
    CLI_TRY(resume_check_model(a, x, &s));
    CLI_SCOPED(hk_ckpt_close_at) hk_ckpt *c = open_checkpoint(a, s.model_dir);
    if (!c)
        return CLI_FAILED;
    size_t n;
    CLI_TRY(write_weights(a, c, path, format, &n));
    tell(a, path, format, n, path_of(c));
    return 0;
}

static const cli_option options[] = {
    EXPERIMENT_OPTIONS,
    JSON_OPTION,
    CLI_CHOICES("weights", 'w', "center|ema|local",
                "weights to export; default: the center if there is one"),
    CLI_CHOICES("format", 'f', "safetensors|tf|npz|onnx|folder",
                "default safetensors"),
    CLI_OPTION("output", 'o', CLI_FILE, "PATH",
               "the file; tf: prefix of its files; folder: where to create the "
               "folder, whose name is the time"),
    CLI_OPTION("data", 0, CLI_FILE, "FILES",
               "for onnx and folder, if the training data no longer exists: "
               "files with the same columns; the first row determines the "
               "inputs of the model"),
    CHECKPOINT_OPTION,
    {0}};

const cli_command cmd_export = {
    .name = "export",
    .operands = "[EXPERIMENT]",
    .max_operands = 1,
    .summary = "write the weights or the model to a file for other programs",
    .about = "Writes the weights alone, under their plain names, as "
             "safetensors, as a TensorFlow checkpoint or as a NumPy archive; "
             "or, with --format onnx, the whole model with the preparation of "
             "its inputs, for onnxruntime and others. --format folder also "
             "writes the whole model with the preparation of its inputs: to a "
             "folder that a C program opens with hk_exported_open. EXPERIMENT "
             "may be the folder of a run.",
    .examples = "hooke export digits --format npz -o digits.npz\n"
                "hooke export my.yaml --format onnx -o my.onnx",
    .options = options,
    .run = run};
