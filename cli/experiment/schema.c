// schema.c - the table of keys, and the check of a tree against it.
#include "experiment/schema.h"
#include <stdlib.h>
#include <string.h>
#include "core/cli.h"

#define ACTIVATIONS "none|relu|sigmoid|tanh|elu|gelu|softplus"

// In the order of the reference page. Below a SCHEMA_ITEMS key stand the
// items' names, below each its own keys.
static const schema_key keys[] = {
    {"name", SCHEMA_TEXT, "the file's name", "",
     "what the run is called in reports"},

    {"model", SCHEMA_MAP, "", "", "the network"},
    {"model.library", SCHEMA_FILE, "", "",
     "a shared object, or a C file to compile, with a model_fn; instead of "
     "layers"},
    {"model.canned", SCHEMA_CHOICE, "", "linear|dnn|wide_deep",
     "a ready model over columns; instead of layers"},
    {"model.input", SCHEMA_TEXT, "the only feature", "",
     "the feature that enters the first layer"},
    {"model.label", SCHEMA_TEXT, "the only label", "", "the value to learn"},
    {"model.classes", SCHEMA_INT, "what the labels look like", "",
     "number of classes of a canned classifier; 0 makes it a regressor"},
    {"model.hidden", SCHEMA_INTS, "128, 64", "",
     "units of the hidden layers of a canned dnn or wide_deep"},
    {"model.dropout", SCHEMA_FLOAT, "0", "",
     "dropout after each hidden layer of a canned model"},
    {"model.linear_optimizer", SCHEMA_CHOICE, "ftrl", "ftrl|same",
     "what trains the wide part of wide_deep; same: the optimizer below"},
    {"model.linear_rate", SCHEMA_FLOAT, "0.05", "",
     "learning rate of the wide part"},
    {"model.loss", SCHEMA_CHOICE, "softmax_cross_entropy",
     "softmax_cross_entropy|sigmoid_cross_entropy|mean_squared_error|"
     "absolute_difference|huber",
     "the loss; softmax_cross_entropy takes class numbers as labels"},
    {"model.metrics", SCHEMA_CHOICES, "accuracy, or mae and rmse",
     "accuracy|precision|recall|auc|top5|mse|rmse|mae|mean_per_class_accuracy",
     "of evaluations; canned models bring theirs"},
    {"model.l2", SCHEMA_FLOAT, "0", "",
     "penalty on every kernel: l2 sum(w^2) / 2"},
    {"model.params", SCHEMA_FREE, "", "",
     "structural parameters of a library's model_fn"},

    {"model.layers", SCHEMA_ITEMS, "", "", "layers from input to output"},
    {"model.layers.dense", SCHEMA_ITEM, "", "units", "fully connected"},
    {"model.layers.dense.units", SCHEMA_INT, "", "", "outputs"},
    {"model.layers.dense.activation", SCHEMA_CHOICE, "none", ACTIVATIONS, ""},
    {"model.layers.dense.bias", SCHEMA_BOOL, "true", "", ""},
    {"model.layers.conv2d", SCHEMA_ITEM, "", "filters",
     "convolution, channels last"},
    {"model.layers.conv2d.filters", SCHEMA_INT, "", "", "output channels"},
    {"model.layers.conv2d.kernel", SCHEMA_INTS, "3", "",
     "height and width, or one for both"},
    {"model.layers.conv2d.stride", SCHEMA_INTS, "1", "", ""},
    {"model.layers.conv2d.padding", SCHEMA_CHOICE, "same", "same|valid", ""},
    {"model.layers.conv2d.activation", SCHEMA_CHOICE, "none", ACTIVATIONS, ""},
    {"model.layers.conv2d.bias", SCHEMA_BOOL, "true", "", ""},
    {"model.layers.max_pool", SCHEMA_ITEM, "", "size", "largest of a window"},
    {"model.layers.max_pool.size", SCHEMA_INTS, "2", "", ""},
    {"model.layers.max_pool.stride", SCHEMA_INTS, "the size", "", ""},
    {"model.layers.max_pool.padding", SCHEMA_CHOICE, "valid", "same|valid", ""},
    {"model.layers.avg_pool", SCHEMA_ITEM, "", "size", "mean of a window"},
    {"model.layers.avg_pool.size", SCHEMA_INTS, "2", "", ""},
    {"model.layers.avg_pool.stride", SCHEMA_INTS, "the size", "", ""},
    {"model.layers.avg_pool.padding", SCHEMA_CHOICE, "valid", "same|valid", ""},
    {"model.layers.global_avg_pool", SCHEMA_ITEM, "", "",
     "mean over a picture"},
    {"model.layers.flatten", SCHEMA_ITEM, "", "", "everything but the batch"},
    {"model.layers.reshape", SCHEMA_ITEM, "", "shape", ""},
    {"model.layers.reshape.shape", SCHEMA_INTS, "", "", "without the batch"},
    {"model.layers.activation", SCHEMA_ITEM, "", "function", ""},
    {"model.layers.activation.function", SCHEMA_CHOICE, "relu", ACTIVATIONS,
     ""},
    {"model.layers.dropout", SCHEMA_ITEM, "", "rate", "in training only"},
    {"model.layers.dropout.rate", SCHEMA_FLOAT, "0.5", "",
     "share of values set to zero; a run-time scalar, may be swept"},
    {"model.layers.batch_norm", SCHEMA_ITEM, "", "momentum", ""},
    {"model.layers.batch_norm.momentum", SCHEMA_FLOAT, "0.99", "", ""},
    {"model.layers.batch_norm.epsilon", SCHEMA_FLOAT, "0.001", "", ""},
    {"model.layers.layer_norm", SCHEMA_ITEM, "", "epsilon", ""},
    {"model.layers.layer_norm.epsilon", SCHEMA_FLOAT, "1e-5", "", ""},
    {"model.layers.embedding", SCHEMA_ITEM, "", "rows",
     "rows of a table by integer inputs"},
    {"model.layers.embedding.rows", SCHEMA_INT, "", "", "size of the table"},
    {"model.layers.embedding.dimension", SCHEMA_INT, "16", "", ""},
    {"model.layers.embedding.combiner", SCHEMA_CHOICE, "none", "none|sum|mean",
     "how several ids become one row"},
    {"model.layers.residual", SCHEMA_ITEM, "", "filters",
     "blocks of two 3 x 3 convolutions with batch norm and a shortcut"},
    {"model.layers.residual.filters", SCHEMA_INT, "", "", ""},
    {"model.layers.residual.blocks", SCHEMA_INT, "1", "", ""},
    {"model.layers.residual.stride", SCHEMA_INT, "1", "", "of the first block"},

    {"model.columns", SCHEMA_ITEMS, "", "",
     "feature columns of a canned model"},
    {"model.columns.numeric", SCHEMA_ITEM, "", "feature",
     "numbers as they are"},
    {"model.columns.numeric.feature", SCHEMA_TEXTS, "", "", "one or several"},
    {"model.columns.numeric.normalize", SCHEMA_CHOICE, "standard",
     "none|standard|minmax", "fitted to the training data"},
    {"model.columns.bucketized", SCHEMA_ITEM, "", "feature",
     "a number by the range it falls into"},
    {"model.columns.bucketized.feature", SCHEMA_TEXT, "", "", ""},
    {"model.columns.bucketized.boundaries", SCHEMA_FLOATS, "", "", "rising"},
    {"model.columns.bucketized.use", SCHEMA_CHOICE, "wide", "wide|deep|both",
     ""},
    {"model.columns.vocabulary", SCHEMA_ITEM, "", "feature",
     "text by its place in a list"},
    {"model.columns.vocabulary.feature", SCHEMA_TEXTS, "", "", ""},
    {"model.columns.vocabulary.values", SCHEMA_TEXTS,
     "built from the training data", "", ""},
    {"model.columns.vocabulary.file", SCHEMA_FILE, "", "", "one value a line"},
    {"model.columns.vocabulary.min_count", SCHEMA_INT, "1", "",
     "rarer values are unknown ones"},
    {"model.columns.vocabulary.dimension", SCHEMA_INT, "0", "",
     "embedding of the deep part; 0: one-hot"},
    {"model.columns.vocabulary.most", SCHEMA_INT, "the longest in training", "",
     "of a list (text[]): values that count; further ones are cut off"},
    {"model.columns.vocabulary.use", SCHEMA_CHOICE, "both", "wide|deep|both",
     ""},
    {"model.columns.hash", SCHEMA_ITEM, "", "feature", "text by its hash"},
    {"model.columns.hash.feature", SCHEMA_TEXTS, "", "", ""},
    {"model.columns.hash.buckets", SCHEMA_INT, "1000", "", ""},
    {"model.columns.hash.dimension", SCHEMA_INT, "8", "",
     "embedding of the deep part; 0: one-hot"},
    {"model.columns.hash.most", SCHEMA_INT, "the longest in training", "",
     "as for vocabulary"},
    {"model.columns.hash.use", SCHEMA_CHOICE, "both", "wide|deep|both", ""},
    {"model.columns.identity", SCHEMA_ITEM, "", "feature",
     "integers that are ids already"},
    {"model.columns.identity.feature", SCHEMA_TEXTS, "", "", ""},
    {"model.columns.identity.buckets", SCHEMA_INT, "", "", ""},
    {"model.columns.identity.dimension", SCHEMA_INT, "8", "", ""},
    {"model.columns.identity.most", SCHEMA_INT, "the longest in training", "",
     "as for vocabulary"},
    {"model.columns.identity.use", SCHEMA_CHOICE, "both", "wide|deep|both", ""},
    {"model.columns.cross", SCHEMA_ITEM, "", "features",
     "combinations of several features"},
    {"model.columns.cross.features", SCHEMA_TEXTS, "", "", ""},
    {"model.columns.cross.buckets", SCHEMA_INT, "1000", "", ""},
    {"model.columns.cross.dimension", SCHEMA_INT, "8", "", ""},
    {"model.columns.cross.use", SCHEMA_CHOICE, "wide", "wide|deep|both", ""},

    {"optimizer", SCHEMA_MAP, "", "", "the workers' own optimizer"},
    {"optimizer.type", SCHEMA_CHOICE, "adam",
     "sgd|momentum|adagrad|adagrad_da|adadelta|adam|adamw|amsgrad|lazy_adam|"
     "rmsprop|ftrl|proximal_sgd|proximal_adagrad|lars|lamb|lion",
     "the rule; docs/optimizers.md has the formulas"},
    {"optimizer.learning_rate", SCHEMA_FLOAT, "the rule's", "",
     "may be swept without a new graph, as all numbers here"},
    {"optimizer.momentum", SCHEMA_FLOAT, "the rule's", "", ""},
    {"optimizer.nesterov", SCHEMA_BOOL, "false", "", ""},
    {"optimizer.beta1", SCHEMA_FLOAT, "the rule's", "", ""},
    {"optimizer.beta2", SCHEMA_FLOAT, "the rule's", "", ""},
    {"optimizer.epsilon", SCHEMA_FLOAT, "the rule's", "", ""},
    {"optimizer.rho", SCHEMA_FLOAT, "the rule's", "", ""},
    {"optimizer.l1", SCHEMA_FLOAT, "0", "", "ftrl and the proximal rules"},
    {"optimizer.l2", SCHEMA_FLOAT, "0", "", "ftrl and the proximal rules"},
    {"optimizer.weight_decay", SCHEMA_FLOAT, "the rule's", "", ""},
    {"optimizer.clip_norm", SCHEMA_FLOAT, "0", "",
     "gradients are scaled down to this global norm; 0: never"},
    {"optimizer.schedule", SCHEMA_MAP, "", "",
     "how the learning rate changes with the global step"},
    {"optimizer.schedule.type", SCHEMA_CHOICE, "constant",
     "constant|exponential|piecewise|polynomial|natural_exp|inverse_time|"
     "cosine|cosine_restarts|linear_cosine",
     ""},
    {"optimizer.schedule.decay_steps", SCHEMA_FLOAT, "", "", ""},
    {"optimizer.schedule.decay_rate", SCHEMA_FLOAT, "", "", ""},
    {"optimizer.schedule.end_learning_rate", SCHEMA_FLOAT, "0.0001", "", ""},
    {"optimizer.schedule.power", SCHEMA_FLOAT, "1", "", ""},
    {"optimizer.schedule.alpha", SCHEMA_FLOAT, "0", "", ""},
    {"optimizer.schedule.staircase", SCHEMA_BOOL, "false", "", ""},
    {"optimizer.schedule.boundaries", SCHEMA_FLOATS, "", "", "of piecewise"},
    {"optimizer.schedule.values", SCHEMA_FLOATS, "", "", "of piecewise"},
    {"optimizer.schedule.warmup_steps", SCHEMA_FLOAT, "0", "", ""},

    {"elastic", SCHEMA_MAP, "", "", "many workers and their center"},
    {"elastic.workers", SCHEMA_INT, "1", "",
     "local workers; --workers says the same"},
    {"elastic.method", SCHEMA_CHOICE, "elastic",
     "elastic|elastic_sync|downpour|downpour_averaged|downpour_moving|"
     "model_average|local_sgd|agn|drop_stale|slowmo|bmuf|diloco|diloco_async|"
     "diloco_delayed",
     "docs/elastic.md has them all"},
    {"elastic.preset", SCHEMA_CHOICE, "paper", "paper|tf",
     "paper: moving_rate 0.9 / workers, rho 0; tf: as TensorFlow's class"},
    {"elastic.communication_period", SCHEMA_INT, "10", "",
     "local steps between exchanges (tau); a tenth of a run's steps where "
     "those are fewer than ten periods"},
    {"elastic.moving_rate", SCHEMA_FLOAT, "the preset's", "",
     "share of the gap closed by an exchange (alpha)"},
    {"elastic.rho", SCHEMA_FLOAT, "the preset's", "", "pull inside the loss"},
    {"elastic.order", SCHEMA_CHOICE, "free", "free|round_robin",
     "round_robin: the same bits in every run"},
    {"elastic.synchronous", SCHEMA_BOOL, "false", "", "start barrier"},
    {"elastic.use_locking", SCHEMA_BOOL, "true", "", ""},
    {"elastic.compress", SCHEMA_CHOICE, "none", "none|bf16|int8",
     "differences on the wire"},

    {"ema", SCHEMA_MAP, "", "", "a moving average beside the weights"},
    {"ema.decay", SCHEMA_FLOAT, "0", "",
     "per local step of worker 0, whatever it follows: 0.99 looks back about "
     "100 steps; 0: no average is kept"},
    {"ema.follow", SCHEMA_CHOICE, "center", "center|worker",
     "the center, at every exchange, or worker 0, at every step"},
    {"ema.warm_up", SCHEMA_BOOL, "true", "",
     "smaller decay in the first steps: min(decay, (1 + n) / (10 + n))"},

    {"data", SCHEMA_MAP, "", "", "where examples come from"},
    {"data.dir", SCHEMA_TEXT, "the experiment's folder", "",
     "where relative paths start; --data-dir says the same"},
    {"data.holdout", SCHEMA_FLOAT, "0.1", "",
     "share of the training examples kept for evaluation when eval has no "
     "files of its own"},
    {"data.<set>", SCHEMA_MAP, "", "",
     "train, eval and predict; eval and predict take over what they do not "
     "say from train, but for files, shuffle and augment"},
    {"data.<set>.source", SCHEMA_CHOICE, "digits",
     "digits|idx|csv|tfrecord|npy|npz|cifar10|cifar100|tar",
     "kind of the files"},
    {"data.<set>.files", SCHEMA_FILES, "", "",
     "paths or patterns; idx and npy: the features"},
    {"data.<set>.labels", SCHEMA_FILES, "", "", "idx and npy: the labels"},
    {"data.<set>.count", SCHEMA_INT, "all; digits: 20000 and 5000", "",
     "examples to take"},
    {"data.<set>.skip", SCHEMA_INT, "0", "", "examples to leave out first"},
    {"data.<set>.batch", SCHEMA_INT, "64; eval and predict: 500", "",
     "examples a step and worker"},
    {"data.<set>.shuffle", SCHEMA_INT, "train: 10000; others: 0", "",
     "size of the shuffle buffer; 0: in order"},
    {"data.<set>.size", SCHEMA_INTS, "", "",
     "tar: height and width that every picture has"},
    {"data.<set>.scale", SCHEMA_FLOAT, "1/255 for pixels and bytes[n], else 1",
     "", "multiplies numbers of the input"},
    {"data.<set>.mean", SCHEMA_FLOATS, "0", "", "per channel, after scale"},
    {"data.<set>.std", SCHEMA_FLOATS, "1", "", "per channel, after scale"},
    {"data.<set>.crop", SCHEMA_INTS, "augment.crop of train", "",
     "height and width of the middle that evaluation and prediction see"},
    {"data.<set>.augment", SCHEMA_MAP, "", "", "random changes of pictures"},
    {"data.<set>.augment.pad", SCHEMA_INT, "0", "", "zeros around, then crop"},
    {"data.<set>.augment.crop", SCHEMA_INTS, "", "", "height and width"},
    {"data.<set>.augment.flip", SCHEMA_BOOL, "false", "", "left and right"},
    {"data.<set>.augment.cutout", SCHEMA_INT, "0", "", "side of a grey square"},
    {"data.<set>.columns", SCHEMA_FREE, "", "",
     "csv and tfrecord: name: type (int, float, text; tfrecord also "
     "float[39], text[] for any number of values, bytes[784]), in the file's "
     "order"},
    {"data.<set>.label", SCHEMA_TEXT, "label", "", "the column to learn"},
    {"data.<set>.label_values", SCHEMA_TEXTS, "", "",
     "texts that become 0, 1, ..."},
    {"data.<set>.label_strip", SCHEMA_TEXT, "", "",
     "characters cut off the end of a label in text"},
    {"data.<set>.header", SCHEMA_BOOL, "true unless columns are given", "",
     "csv: the first line has the names"},
    {"data.<set>.delimiter", SCHEMA_TEXT, "a comma", "", ""},
    {"data.<set>.missing", SCHEMA_TEXTS, "empty", "",
     "texts that stand for a missing value"},
    {"data.<set>.skip_lines", SCHEMA_INT, "0", "", "csv: lines to leave out"},
    {"data.<set>.compression", SCHEMA_CHOICE, "auto", "auto|none|gzip|zlib",
     ""},
    {"data.<set>.on_error", SCHEMA_CHOICE, "fail", "fail|skip",
     "damaged records"},
    {"data.<set>.cache", SCHEMA_TEXT, "none", "",
     "memory, or the path of a cache file"},

    {"run", SCHEMA_MAP, "", "", "the run itself"},
    {"run.model_dir", SCHEMA_TEXT, "runs/<name>", "",
     "checkpoints and event files"},
    {"run.steps", SCHEMA_INT, "0", "", "local steps of a worker; 0: no bound"},
    {"run.epochs", SCHEMA_INT, "0", "",
     "passes over the training data, all workers together; 0: no bound"},
    {"run.seconds", SCHEMA_FLOAT, "0", "", "0: no bound"},
    {"run.stop_metric", SCHEMA_TEXT, "", "",
     "accuracy>0.98 or loss<0.1: ends the run at an evaluation"},
    {"run.seed", SCHEMA_INT, "1", "", "of values, data order and dropout"},
    {"run.threads", SCHEMA_INT, "0", "",
     "library threads of a worker; 0: cores / workers"},
    {"run.backend", SCHEMA_TEXT, "the best", "", "reference or onednn"},
    {"run.save_steps", SCHEMA_INT, "0", "", "checkpoint every n global steps"},
    {"run.save_seconds", SCHEMA_FLOAT, "600", "", "or every n seconds"},
    {"run.keep_max", SCHEMA_INT, "5", "", "checkpoints kept; 0: all"},
    {"run.keep_every_n_hours", SCHEMA_FLOAT, "10000", "", ""},
    {"run.keep_best", SCHEMA_INT, "0", "",
     "further ones kept by metric, saved when they are scored"},
    {"run.best_metric", SCHEMA_TEXT, "loss", "", "metric of keep_best"},
    {"run.best_is_max", SCHEMA_BOOL, "false", "",
     "true: larger values are better"},
    {"run.summary_steps", SCHEMA_INT, "100", "", "0: no summaries"},
    {"run.log_steps", SCHEMA_INT, "100", "", ""},
    {"run.eval_steps", SCHEMA_INT, "0", "",
     "evaluates every n local steps, in memory; 0: only at the end"},
    {"run.eval_seconds", SCHEMA_FLOAT, "0", "",
     "or at checkpoints, at least n seconds apart"},
    {"run.early_stop_steps", SCHEMA_INT, "0", "",
     "ends when best_metric has not improved for so many global steps, and "
     "goes back to the best model"},
    {"run.warm_start", SCHEMA_TEXT, "", "",
     "a checkpoint or model_dir that gives the first values: what fits is "
     "taken over"},
    {"run.warm_start_vars", SCHEMA_TEXT, "all", "",
     "a regular expression: only trainable variables whose whole name fits"},
    {"run.warm_start_rename", SCHEMA_FREE, "", "",
     "variable: its name in that checkpoint; one * stands for any text"},
    {"run.file", SCHEMA_TEXT, "", "",
     "written to experiment.json: where the experiment was read from"},
};

enum {
    N_KEYS = sizeof keys / sizeof keys[0],
    MOST_PATH = 256
};

// ---- paths -----------------------------------------------------------------

// The path of t in the table's notation.
static void path_of(const tree *t, char *out) {
    if (!t->parent) {
        out[0] = '\0';
        return;
    }
    path_of(t->parent, out);
    if (!t->key) // an item of a list has its parent's path
        return;
    const char *word = t->key;
    if (strcmp(out, "data") == 0 &&
        (strcmp(word, "train") == 0 || strcmp(word, "eval") == 0 ||
         strcmp(word, "predict") == 0))
        word = "<set>";
    const size_t n = strlen(out);
    if (n + strlen(word) + 2 < MOST_PATH)
        snprintf(out + n, MOST_PATH - n, "%s%s", n ? "." : "", word);
}

static const schema_key *find(const char *path) {
    for (size_t i = 0; i < N_KEYS; i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

// The last word of a key's path if the key is right below `parent`.
static const char *child_name(const schema_key *k, const char *parent) {
    const size_t n = strlen(parent);
    const char *rest = k->path;
    if (n) {
        if (strncmp(rest, parent, n) != 0 || rest[n] != '.')
            return NULL;
        rest += n + 1;
    }
    return strchr(rest, '.') ? NULL : rest;
}

static bool unknown(const tree *t) {
    char path[MOST_PATH];
    const char *names[64];
    size_t n = 0;
    path_of(t->parent, path);
    for (size_t i = 0; i < N_KEYS && n < 61; i++) {
        const char *name = child_name(&keys[i], path);
        if (name && strcmp(name, "<set>") != 0)
            names[n++] = name;
    }
    if (strcmp(path, "data") == 0) {
        names[n++] = "train";
        names[n++] = "eval";
        names[n++] = "predict";
    }
    const char *near = cli_nearest(t->key, names, n);
    const char *below = *path ? path : "the file";
    if (near)
        cli_fail("%sunknown key '%s' in %s; did you mean '%s'?", tree_where(t),
                 t->key, below, near);
    else
        cli_fail("%sunknown key '%s' in %s", tree_where(t), t->key, below);
    return false;
}

// ---- types -----------------------------------------------------------------

static bool wrong(const tree *t, const char *expected) {
    if (t->kind == TREE_SCALAR)
        cli_fail("%s'%s' wants %s, not '%s'", tree_where(t),
                 t->key ? t->key : "item", expected, t->text);
    else
        cli_fail("%s'%s' wants %s", tree_where(t), t->key ? t->key : "item",
                 expected);
    return false;
}

static bool is_choice(const char *values, const char *v) {
    const size_t size = strlen(v);
    for (const char *p = values; *p;) {
        const size_t n = strcspn(p, "|");
        if (n == size && memcmp(p, v, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static bool check_choice(const tree *t, const schema_key *k) {
    const char *names[32];
    size_t n = 0;
    if (t->kind == TREE_SCALAR && is_choice(k->values, t->text))
        return true;
    char *copy = cli_strdup(k->values), *rest = copy;
    for (char *word; n < 32 && (word = strsep(&rest, "|"));)
        names[n++] = word;
    const char *near =
        t->kind == TREE_SCALAR ? cli_nearest(t->text, names, n) : NULL;
    if (near) {
        cli_fail("%s'%s' cannot be '%s'; did you mean '%s'?", tree_where(t),
                 t->key ? t->key : t->parent->key, t->text, near);
    } else {
        char *const expected = cli_printf("one of %s", k->values);
        wrong(t, expected);
        free(expected);
    }
    free(copy);
    return false;
}

static bool check_choices(const tree *t, const schema_key *k) {
    bool good = t->kind != TREE_MAP || wrong(t, "one name or a list");
    if (t->kind == TREE_SCALAR)
        return check_choice(t, k);
    for (const tree *c = t->child; good && c; c = c->next)
        good = check_choice(c, k);
    return good;
}

static bool check_scalar(const tree *t, schema_type type) {
    int64_t i;
    double f;
    if (t->kind != TREE_SCALAR)
        return wrong(t, "one value");
    switch (type) {
    case SCHEMA_INT:
    case SCHEMA_INTS:
        return cli_parse_int(t->text, &i) || wrong(t, "a whole number");
    case SCHEMA_FLOAT:
    case SCHEMA_FLOATS:
        return cli_parse_float(t->text, &f) || wrong(t, "a number");
    case SCHEMA_BOOL:
        return tree_is_bool(t) || wrong(t, "true or false");
    default:
        return true;
    }
}

static bool check_list(const tree *t, schema_type type) {
    if (t->kind == TREE_SCALAR)
        return check_scalar(t, type);
    if (t->kind != TREE_LIST)
        return wrong(t, "one value or a list");
    for (const tree *c = t->child; c; c = c->next)
        if (!check_scalar(c, type))
            return false;
    return true;
}

// ---- short forms -----------------------------------------------------------

// `- flatten` becomes `- flatten: {}`.
static void widen_item(tree *item) {
    if (item->kind != TREE_SCALAR)
        return;
    tree *value = cli_alloc(sizeof *value);
    value->kind = TREE_MAP;
    value->key = item->text;
    value->line = item->line;
    value->file = item->file;
    value->parent = item;
    item->kind = TREE_MAP;
    item->text = NULL;
    item->child = value;
}

// `dense: 128` becomes `dense: {units: 128}`; `flatten:` an empty map.
static bool widen_value(tree *t, const schema_key *k) {
    if (t->kind == TREE_MAP)
        return true;
    if (tree_is_null(t)) {
        free(t->text);
        t->text = NULL;
        t->kind = TREE_MAP;
        return true;
    }
    if (!*k->values)
        return wrong(t, "nothing, or a map");
    tree *value = cli_alloc(sizeof *value);
    *value = (tree){.kind = t->kind,
                    .quoted = t->quoted,
                    .line = t->line,
                    .key = cli_strdup(k->values),
                    .text = t->text,
                    .file = t->file,
                    .parent = t,
                    .child = t->child};
    for (tree *c = value->child; c; c = c->next)
        c->parent = value;
    t->kind = TREE_MAP;
    t->text = NULL;
    t->child = value;
    return true;
}

// ---- the check -------------------------------------------------------------

static bool check_children(tree *t);

static bool check_items(tree *t) {
    if (t->kind != TREE_LIST)
        return wrong(t, "a list");
    for (tree *item = t->child; item; item = item->next) {
        widen_item(item);
        if (item->kind != TREE_MAP || tree_size(item) != 1) {
            cli_fail("%san item of '%s' is one name with its values",
                     tree_where(item), t->key);
            return false;
        }
        if (!check_children(item))
            return false;
    }
    return true;
}

static bool check_free(const tree *t) {
    if (t->kind != TREE_MAP)
        return wrong(t, "a map");
    for (const tree *c = t->child; c; c = c->next)
        if (!check_scalar(c, SCHEMA_TEXT))
            return false;
    return true;
}

static bool check_node(tree *t) {
    char path[MOST_PATH];
    path_of(t, path);
    const schema_key *k = find(path);
    if (!k)
        return unknown(t);
    switch (k->type) {
    case SCHEMA_MAP:
        if (tree_is_null(t)) // `ema:` with nothing below it
            return widen_value(t, k);
        return t->kind == TREE_MAP ? check_children(t) : wrong(t, "a map");
    case SCHEMA_ITEMS:
        return check_items(t);
    case SCHEMA_ITEM:
        return widen_value(t, k) && check_children(t);
    case SCHEMA_FREE:
        return check_free(t);
    case SCHEMA_CHOICE:
        return check_choice(t, k);
    case SCHEMA_CHOICES:
        return check_choices(t, k);
    case SCHEMA_INTS:
    case SCHEMA_FLOATS:
    case SCHEMA_TEXTS:
    case SCHEMA_FILES:
        return check_list(t, k->type);
    default:
        return check_scalar(t, k->type);
    }
}

static bool check_children(tree *t) {
    for (tree *c = t->child; c; c = c->next)
        if (!check_node(c))
            return false;
    return true;
}

bool schema_check(tree *root) {
    if (root->kind == TREE_MAP)
        return check_children(root);
    cli_fail(
        "%san experiment is a map of model, data, ...; files of data are named "
        "inside it (hooke help experiment)",
        tree_where(root));
    return false;
}

// ---- the reference ---------------------------------------------------------

static const char *type_name(const schema_key *k) {
    static const char *const names[] = {
        [SCHEMA_MAP] = "map",           [SCHEMA_ITEMS] = "list of items",
        [SCHEMA_ITEM] = "item",         [SCHEMA_FREE] = "map of names",
        [SCHEMA_INT] = "integer",       [SCHEMA_FLOAT] = "number",
        [SCHEMA_BOOL] = "true/false",   [SCHEMA_TEXT] = "text",
        [SCHEMA_FILE] = "path",         [SCHEMA_CHOICE] = "choice",
        [SCHEMA_CHOICES] = "choice(s)", [SCHEMA_INTS] = "integer(s)",
        [SCHEMA_FLOATS] = "number(s)",  [SCHEMA_TEXTS] = "text(s)",
        [SCHEMA_FILES] = "path(s)"};
    return names[k->type];
}

static void choices(FILE *f, const char *values) {
    for (const char *p = values; *p; p++)
        if (*p == '|')
            fputs(", ", f);
        else
            fputc(*p, f);
}

// What a key means, in one line.
static void meaning(FILE *f, const schema_key *k) {
    fputs(k->help, f);
    if (k->type == SCHEMA_ITEM && *k->values)
        fprintf(f, "%sa single value is its %s", *k->help ? "; " : "",
                k->values);
    if (k->type == SCHEMA_CHOICE || k->type == SCHEMA_CHOICES) {
        fputs(*k->help ? ": " : "", f);
        choices(f, k->values);
    }
}

static const char intro[] =
    "An experiment is one YAML (or JSON) file: the model, its optimizer, the\n"
    "data and the run. Every key has a default but the model's layers.\n"
    "`--set key=value` on the command line overrides a key, e.g.\n"
    "`--set optimizer.learning_rate=0.01`. Unknown keys are errors that name\n"
    "the nearest known one. Relative paths of data are taken from the\n"
    "experiment's folder.\n";

void schema_page(FILE *f) {
    fprintf(
        f,
        "# Experiment files\n\n%s\n"
        "Made by `hooke help experiment --format markdown` from the table that "
        "checks the files.\n",
        intro);
    for (size_t i = 0; i < N_KEYS; i++) {
        const schema_key *k = &keys[i];
        if (i == 0 || !strchr(k->path, '.')) {
            fprintf(f, "\n## %s\n\n", k->path);
            if (k->type == SCHEMA_MAP) {
                fprintf(f,
                        "%s\n\n| key | type | default | meaning |\n"
                        "| --- | --- | --- | --- |\n",
                        k->help);
                continue;
            }
            fputs("| key | type | default | meaning |\n"
                  "| --- | --- | --- | --- |\n",
                  f);
        }
        fprintf(f, "| `%s` | %s | %s | ", k->path, type_name(k), k->dflt);
        meaning(f, k);
        fputs(" |\n", f);
    }
}

// For the terminal: the key, then what there is to say about it.
void schema_text(FILE *f) {
    fputs(intro, f);
    for (size_t i = 0; i < N_KEYS; i++) {
        const schema_key *k = &keys[i];
        char *text = NULL;
        size_t size = 0;
        FILE *m = open_memstream(&text, &size);
        if (!m)
            return;
        meaning(m, k);
        if (*k->dflt)
            fprintf(m, "%sdefault %s", ftell(m) ? "; " : "", k->dflt);
        fclose(m);
        fprintf(f, "%s%s  (%s)\n", strchr(k->path, '.') ? "  " : "\n", k->path,
                type_name(k));
        if (*text) {
            fputs("        ", f);
            cli_wrap(f, text, 8);
        }
        free(text);
    }
}

static void escape(FILE *f, const char *s) {
    for (; *s; s++) {
        if (strchr("_*\\#<[`", *s))
            fputc('\\', f);
        fputc(*s, f);
    }
}

void schema_man(FILE *f) {
    fputs("hooke.conf(5)\n\n# NAME\n\nhooke.conf - experiment files of "
          "hooke\n\n# DESCRIPTION\n\n",
          f);
    escape(f, intro);
    fputs("\n# KEYS\n\n", f);
    for (size_t i = 0; i < N_KEYS; i++) {
        const schema_key *k = &keys[i];
        fputc('*', f);
        escape(f, k->path);
        fprintf(f, "* (%s)\n\t", type_name(k));
        char *text = NULL;
        size_t size = 0;
        FILE *m = open_memstream(&text, &size);
        if (!m)
            return;
        meaning(m, k);
        fclose(m);
        escape(f, *text ? text : k->path);
        free(text);
        if (*k->dflt) {
            fputs(". Default: ", f);
            escape(f, k->dflt);
        }
        fputs("\n\n", f);
    }
    fputs("# SEE ALSO\n\n*hooke-train*(1)\n", f);
}
