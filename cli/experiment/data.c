// data.c - the data section: from a description to batches.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "experiment/experiment.h"
#include "hooke/image.h"
#include "experiment/csv_table.h"
#include "experiment/table_recipe.h"

enum {
    TRAIN_BATCH = 64,
    OTHER_BATCH = 500,
    SHUFFLE = 10000,
    AHEAD = 2, // batches
    MIX = 64   // examples per worker that are mixed before they are shared out
};

// ---- values of a set -------------------------------------------------------

// What a set does not say it takes over from train, but for what makes it
// another set.
const tree *data_get(const data_user *u, const char *key) {
    static const char *const own[] = {"files", "labels", "shuffle", "augment",
                                      "count", "skip",   "batch"};
    const tree *data = tree_get(u->x->root, "data");
    const tree *t = tree_get(tree_get(data, u->set), key);
    if (t || strcmp(u->set, "train") == 0)
        return t;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i], key) == 0)
            return NULL;
    return tree_get(tree_get(data, "train"), key);
}

static bool is_training(const data_user *u) {
    return strcmp(u->set, "train") == 0;
}

char **data_paths(const data_user *u, const char *key, size_t *n) {
    const tree *t = data_get(u, key);
    if (strcmp(key, "files") == 0 && u->override) {
        char **list = cli_alloc(sizeof *list);
        list[0] = cli_strdup(u->override);
        *n = 1;
        return list;
    }
    if (!t && !is_training(u)) { // a share of the training data
        const data_user train = {.x = u->x, .set = "train"};
        t = data_get(&train, key);
    }
    *n = tree_count(t);
    char **list = cli_alloc((*n ? *n : 1) * sizeof *list);
    size_t i = 0;
    for (const tree *c = tree_first(t); c; c = tree_next(t, c))
        list[i++] = experiment_path(u->x, c->text);
    return list;
}

void data_free_paths(char **list, size_t n) {
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

float *data_floats(const tree *t, size_t *n) {
    *n = tree_count(t);
    float *v = cli_alloc((*n ? *n : 1) * sizeof *v);
    size_t i = 0;
    for (const tree *c = tree_first(t); c; c = tree_next(t, c))
        v[i++] = (float)tree_float(c, 0);
    return v;
}

// ---- a share of the training data for evaluation ---------------------------

static bool is_set(const data_user *u, const char *set) {
    return strcmp(u->set, set) == 0;
}

static bool is_digits(const experiment *x) {
    const data_user train = {.x = x, .set = "train"};
    return strcmp(tree_text(data_get(&train, "source"), "digits"), "digits") ==
           0;
}

bool data_drops_unlabelled(const data_user *u) {
    return strcmp(tree_text(data_get(u, "on_missing_label"), "fail"), "drop") ==
           0;
}

split_plan data_split_plan(const experiment *x) {
    const data_user eval = {.x = x, .set = "eval"};
    const data_user test = {.x = x, .set = "test"};
    split_plan p = {.seed = tree_int(tree_path(x->root, "data.seed"), 1)};
    if (is_digits(x))
        return p;
    if (!data_get(&eval, "files"))
        p.eval_share = tree_float(tree_path(x->root, "data.holdout"), 0.1);
    if (!data_get(&test, "files"))
        p.test_share = tree_float(tree_path(x->root, "data.test.share"), 0);
    p.folds = tree_int(tree_path(x->root, "data.folds"), 0);
    p.fold = tree_int(tree_path(x->root, "data.fold"), 0);
    return p;
}

bool data_has(const experiment *x, const char *set) {
    const data_user u = {.x = x, .set = set};
    const split_plan p = data_split_plan(x);
    if (is_digits(x) || data_get(&u, "files"))
        return is_digits(x) ? strcmp(set, "test") != 0 : true;
    return strcmp(set, "eval") == 0 ? p.eval_share > 0
                                    : p.test_share > 0 || p.folds > 0;
}

// What one filter looks at; lives as long as the program.
typedef struct share {
    const split *rows; // NULL: whichever set
    split blocks;      // of rows that are no table's
    split_set wanted;
    const char *label; // that has classes, or may be missing; NULL: neither
    bool drops, has_classes;
} share;

static double label_of(const share *s, const hk_element *e) {
    const hk_value *v = s->label ? hk_element_find(e, s->label) : NULL;
    const void *p = v ? hk_tensor_data(v->tensor) : NULL;
    if (!p || v->dtype == HK_STRING)
        return 0;
    return v->dtype == HK_I32   ? *(const int32_t *)p
           : v->dtype == HK_F32 ? (double)*(const float *)p
                                : 0;
}

// Missing ones are NaN or -1.
static hk_status in_share(void *user, const hk_element *e, int *keep) {
    const share *s = user;
    const double y = label_of(s, e);
    *keep = !s->drops || (y == y && !(s->has_classes && y < 0));
    if (!*keep || !s->rows)
        return HK_OK;
    const hk_value *v = hk_element_find(e, "#");
    const int64_t row = *(const int64_t *)hk_tensor_data(v->tensor);
    *keep = split_of(s->rows, row, s->has_classes ? (size_t)y : 0) == s->wanted;
    return HK_OK;
}

static hk_dataset *filter(hk_dataset *d, share *s) {
    const hk_element *spec = hk_dataset_spec(d);
    const size_t n = spec->count;
    hk_select *list = cli_alloc(n * sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = (hk_select){.from = cli_strdup(spec->values[i].name)};
    d = hk_data_enumerate(d, "#", 0);
    d = hk_data_filter(d, in_share, s);
    d = hk_data_select(d, list, n);
    for (size_t i = 0; i < n; i++)
        free((char *)(uintptr_t)list[i].from);
    free(list);
    return d;
}

// Only where one set of files serves several.
static bool is_shared(const data_user *u) {
    const split_plan p = data_split_plan(u->x);
    if (u->override || u->whole || is_set(u, "predict") || is_digits(u->x))
        return false;
    if (!is_training(u) && data_get(u, "files"))
        return false;
    return p.eval_share > 0 || p.test_share > 0 || p.folds > 0;
}

static bool drops_rows(const data_user *u) {
    return table_of(u->x) && data_drops_unlabelled(u) && !is_set(u, "predict");
}

bool data_picks(const data_user *u) {
    return is_shared(u) || drops_rows(u);
}

static hk_dataset *cut_share(const data_user *u, hk_dataset *d) {
    const table *t = table_of(u->x);
    const bool drops = drops_rows(u);
    const bool shared = is_shared(u);
    if (hk_dataset_status(d) != HK_OK || (!shared && !drops))
        return d;
    share *s = cli_alloc(sizeof *s);
    *s = (share){.wanted = is_training(u)      ? SPLIT_TRAIN
                           : is_set(u, "eval") ? SPLIT_EVAL
                                               : SPLIT_TEST,
                 .label = t ? t->label : NULL,
                 .drops = drops,
                 .has_classes = t && (t->n_words || t->classes)};
    // The rows of a table were shared out when it was learnt.
    const split_plan p = data_split_plan(u->x);
    split_blocks(&s->blocks, &p);
    if (shared)
        s->rows = t ? &t->rows_of : &s->blocks;
    return filter(d, s);
}

// ---- examples, then batches ------------------------------------------------

hk_dataset *data_cut(const data_user *u, hk_dataset *d) {
    const int64_t skip = tree_int(data_get(u, "skip"), 0);
    const int64_t count = tree_int(data_get(u, "count"), -1);
    if (skip > 0)
        d = hk_data_skip(d, skip);
    return count >= 0 ? hk_data_take(d, count) : d;
}

static hk_dataset *examples(const data_user *u) {
    const char *source = tree_text(data_get(u, "source"), "digits");
    hk_dataset *d = cut_share(u, data_source_rows(u));
    return strcmp(source, "digits") == 0 ? d : data_cut(u, d);
}

static bool shares_as(const data_user *u, const char *how, bool usual) {
    const tree *t = tree_path(u->x->root, "data.share");
    return t ? strcmp(tree_text(t, ""), how) == 0 : usual;
}

// Workers read what they were lent and nothing else, where that is possible.
// What is cached is the same in every epoch.
static bool is_leased(const data_user *u, const hk_dataset *d,
                      const hk_input_call *call) {
    const char *cache = tree_text(data_get(u, "cache"), "none");
    const bool usual =
        hk_lender_divides(call->lender, d) && strcmp(cache, "none") == 0;
    return call->lender && shares_as(u, "leased", usual);
}

// In memory each worker keeps its own share; a file holds all of it.
static hk_dataset *share_and_cache(const data_user *u, hk_dataset *d,
                                   const hk_input_call *call) {
    const char *cache = tree_text(data_get(u, "cache"), "none");
    const bool memory = strcmp(cache, "memory") == 0;
    if (!memory && strcmp(cache, "none") != 0)
        d = hk_data_cache(d, cache);
    if (call->mode == HK_TRAIN && call->workers > 1 && !u->stranger &&
        !shares_as(u, "all", false)) {
        // Files often hold their classes in turn: every n-th example would
        // then leave some of them to one worker. All workers mix alike.
        if (strcmp(tree_text(data_get(u, "source"), "digits"), "digits") != 0)
            d = hk_data_shuffle(d, MIX * (int64_t)call->workers,
                                (int64_t)(call->seed >> 1), 0);
        d = hk_data_shard(d, call->workers, call->worker);
    }
    return memory ? hk_data_cache(d, NULL) : d;
}

// Random changes in training; the middle of the picture otherwise.
static hk_dataset *augment(const data_user *u, hk_dataset *d, uint64_t seed,
                           bool train) {
    hk_image_op ops[4] = {0};
    size_t n = 0, n_crop;
    const data_user first = {.x = u->x, .set = "train"};
    const tree *t = data_get(&first, "augment");
    const tree *crop_key = tree_get(t, "crop");
    if (!train && data_get(u, "crop"))
        crop_key = data_get(u, "crop");
    float *crop = data_floats(crop_key, &n_crop);
    const int32_t pad = (int32_t)tree_int(tree_get(t, "pad"), 0);
    const int32_t cutout = (int32_t)tree_int(tree_get(t, "cutout"), 0);
    if (train && pad > 0)
        ops[n++] = (hk_image_op){.kind = HK_IMAGE_PAD,
                                 .top = pad,
                                 .left = pad,
                                 .bottom = pad,
                                 .right = pad};
    if (n_crop)
        ops[n++] = (hk_image_op){.kind = train ? HK_IMAGE_RANDOM_CROP
                                               : HK_IMAGE_CENTER_CROP,
                                 .height = (int32_t)crop[0],
                                 .width = (int32_t)crop[n_crop - 1]};
    if (train && tree_bool(tree_get(t, "flip"), false))
        ops[n++] = (hk_image_op){.kind = HK_IMAGE_RANDOM_FLIP_LEFT_RIGHT};
    if (train && cutout > 0)
        ops[n++] = (hk_image_op){
            .kind = HK_IMAGE_CUTOUT, .height = cutout, .width = cutout};
    free(crop);
    if (!n)
        return d;
    hk_images_options o;
    hk_images_options_init(&o, sizeof o);
    o.seed = (int64_t)seed;
    return hk_data_images(d, "image", ops, n, &o);
}

// As many as there are channels; a single number stands for all of them.
static float *per_channel(const tree *t, size_t channels) {
    size_t n;
    float *v = data_floats(t, &n);
    if (n != 1 || channels == 1)
        return n ? v : (free(v), NULL);
    float *all = cli_alloc(channels * sizeof *all);
    for (size_t i = 0; i < channels; i++)
        all[i] = v[0];
    free(v);
    return all;
}

static const char *first_feature(const data_user *u, const hk_dataset *d) {
    const char *name = tree_text(tree_path(u->x->root, "model.input"), NULL);
    const hk_element *spec = hk_dataset_spec(d);
    for (size_t i = 0; i < spec->count && !name; i++)
        if (spec->values[i].role == HK_FEATURE)
            name = spec->values[i].name;
    return name ? name : "image";
}

// Does the model look its input up in a table?
static bool takes_ids(const experiment *x) {
    const tree *layers = tree_path(x->root, "model.layers");
    const tree *first = layers ? layers->child : NULL;
    return first && first->child && first->child->key &&
           strcmp(first->child->key, "embedding") == 0;
}

// bytes[n] of a TFRecord file, uint8 of NumPy's: raw pixels.
static bool is_raw(const data_user *u, const hk_dataset *d) {
    static const char *const raw[] = {"tfrecord", "npy", "npz"};
    const char *name = tree_text(data_get(u, "source"), "digits");
    bool known = false;
    for (size_t i = 0; i < sizeof raw / sizeof raw[0]; i++)
        known = known || strcmp(name, raw[i]) == 0;
    if (!known || hk_dataset_status(d) != HK_OK || takes_ids(u->x))
        return false;
    const hk_value *v =
        hk_element_find(hk_dataset_spec(d), first_feature(u, d));
    return v && v->dtype == HK_U8;
}

bool data_scaling(const data_user *u, const hk_dataset *d, scaling *out) {
    const bool pixels = data_has_pixels(u) || is_raw(u, d);
    const tree *mean_key = data_get(u, "mean"), *std_key = data_get(u, "std");
    const double scale =
        tree_float(data_get(u, "scale"), pixels ? 1.0 / 255 : 1);
    if (hk_dataset_status(d) != HK_OK ||
        (!pixels && scale == 1 && !mean_key && !std_key))
        return false;
    const size_t n_mean = tree_count(mean_key), n_std = tree_count(std_key);
    const size_t channels = n_mean > n_std ? n_mean : n_std ? n_std : 1;
    *out = (scaling){.feature = cli_strdup(first_feature(u, d)),
                     .scale = scale,
                     .mean = per_channel(mean_key, channels),
                     .std = per_channel(std_key, channels),
                     .channels = channels};
    return true;
}

void data_scaling_free(scaling *s) {
    free(s->feature);
    free(s->mean);
    free(s->std);
}

static hk_dataset *normalize(const data_user *u, hk_dataset *d) {
    scaling s;
    if (!data_scaling(u, d, &s))
        return d;
    d = hk_data_normalize(d, s.feature, s.scale, s.mean, s.std, s.channels);
    data_scaling_free(&s);
    return d;
}

static int64_t batch_size(const data_user *u, bool train) {
    table_recipe r;
    int64_t usual = train ? TRAIN_BATCH : OTHER_BATCH;
    if (train && recipe_find(u->x, &r))
        usual = r.batch;
    return tree_int(data_get(u, "batch"), usual);
}

// Whole batches, so that parts have those that one process has.
hk_dataset *data_take_part(const data_user *u, hk_dataset *d) {
    if (!u->parts)
        return d;
    return hk_data_part(d, u->parts, u->part, batch_size(u, false));
}

int data_part_given(const cli_args *a, data_user *u) {
    const char *text = cli_string(a, "part", NULL);
    int64_t k, n;
    if (!text)
        return 0;
    const char *const end = cli_parse_part(text, &k, &n);
    if (!end || *end)
        return cli_usage_error(cli_command_of(a),
                               "--part: '%s' is not K/N, as in 1/4", text);
    u->part = k - 1;
    u->parts = n;
    return 0;
}

// Workers have different orders and different random changes.
static uint64_t seed_of(const data_user *u, const hk_input_call *call) {
    uint64_t who = call->worker;
    if (u->stranger)
        who = (uint64_t)getpid() ^ (uint64_t)gethostid() << 32;
    return call->seed + UINT64_C(0x9e3779b97f4a7c15) * who;
}

hk_status data_input(void *user, const hk_input_call *call, hk_dataset **out) {
    const data_user *u = user;
    const bool train = call->mode == HK_TRAIN;
    const uint64_t seed = train ? seed_of(u, call) : call->seed;
    hk_dataset *d = data_take_part(u, examples(u));
    const int64_t shuffle =
        tree_int(data_get(u, "shuffle"), train ? SHUFFLE : 0);
    if (is_leased(u, d, call)) { // in an order of its own in every epoch
        d = hk_data_leased(d, call->lender, (int64_t)(call->seed >> 1),
                           shuffle);
    } else {
        d = share_and_cache(u, d, call);
        if (shuffle > 0)
            d = hk_data_shuffle(d, shuffle, (int64_t)(seed >> 1), 1);
    }
    if (train && u->repeat)
        d = hk_data_repeat(d, HK_DATA_FOREVER);
    d = augment(u, d, seed, train);
    d = normalize(u, d);
    d = hk_data_batch(d, batch_size(u, train), train && u->repeat);
    d = table_features(u, d);
    // Workers side by side have no core to spare for reading far ahead: it
    // would hold up the first step.
    d = hk_data_prefetch(d, train && call->workers > 1 ? AHEAD : HK_DATA_AUTO);
    const hk_status s = hk_dataset_status(d);
    if (s != HK_OK) {
        hk_dataset_release(d);
        return s;
    }
    *out = d;
    return HK_OK;
}

// Workers' shares are taken above, before pictures are changed and drawn.
hk_source data_source(data_user *u) {
    hk_source s = hk_source_function(data_input, u);
    s.shard = HK_SHARD_NONE;
    return s;
}

hk_dataset *data_examples(const data_user *u) {
    return examples(u);
}

// Pictures are decoded on the way: of those only so many are looked at.
#define PICTURES 20000

// Goes through examples whose number is not known, as far as `most`.
static hk_status count_to(hk_dataset *d, int64_t most, int64_t *n) {
    hk_iter *it;
    hk_status s = hk_iter_create(d, NULL, &it);
    if (s != HK_OK)
        return s;
    const hk_element *e;
    for (*n = 0; *n < most && (s = hk_iter_next(it, &e)) == HK_OK; ++*n)
        ;
    hk_iter_destroy(it);
    return s == HK_E_END ? HK_OK : s;
}

int64_t data_rows(const experiment *x, int64_t most) {
    const data_user u = {.x = x, .set = "train"};
    hk_dataset *d = examples(&u);
    int64_t n = hk_dataset_count(d);
    if (n < 0 && data_has_pixels(&u) && most > PICTURES)
        n = most;
    // What is wrong with the data is told when it is trained on.
    if (n < 0 && count_to(d, most, &n) != HK_OK)
        n = most;
    hk_dataset_release(d);
    return n < most ? n : most;
}

int64_t data_batch(const experiment *x) {
    return batch_size(&(data_user){.x = x, .set = "train"}, true);
}

// ---- what the schema cannot check ------------------------------------------

static int check_set(const experiment *x, const char *set) {
    const data_user u = {.x = x, .set = set};
    const tree *mean = data_get(&u, "mean"), *std = data_get(&u, "std");
    const size_t n_mean = tree_count(mean), n_std = tree_count(std);
    if (n_mean > 1 && n_std > 1 && n_mean != n_std)
        return cli_fail("%s'mean' has %zu numbers and 'std' has %zu; both need "
                        "one number per channel",
                        tree_where(std), n_mean, n_std);
    const tree *batch = data_get(&u, "batch");
    if (batch && tree_int(batch, 0) < 1)
        return cli_fail("%s'batch' is %s; it has to be at least 1",
                        tree_where(batch), tree_text(batch, ""));
    return 0;
}

// A file, or the folder of a pattern's files.
static bool is_there(const char *path) {
    CLI_FREED char *copy = cli_strdup(path);
    copy[strcspn(copy, "*?[{")] = '\0';
    char *slash = strrchr(copy, '/');
    if (strlen(copy) < strlen(path)) {
        if (slash)
            *slash = '\0';
        else
            snprintf(copy, 2, ".");
    }
    return cli_is_url(copy) || access(copy, F_OK) == 0;
}

// A shipped experiment does not know where the user's data is.
static int check_place(const experiment *x, const data_user *u) {
    if (!x->shipped || tree_path(x->root, "data.dir"))
        return 0;
    size_t n;
    char **list = data_paths(u, "files", &n);
    int failed = 0;
    for (size_t i = 0; i < n && !failed; i++)
        if (!is_there(list[i]))
            failed = cli_fail("%s: not in this folder; give the folder of the "
                              "data with --data-dir",
                              list[i]);
    data_free_paths(list, n);
    return failed;
}

static int check_share(const experiment *x, const char *key) {
    const tree *t = tree_path(x->root, key);
    const double v = tree_float(t, 0.1);
    const bool none = v == 0 && strcmp(key, "data.holdout") == 0;
    if ((v > 0 && v < 1) || none)
        return 0;
    return cli_fail(
        "%s%s is %s; it has to be a share of the rows above 0 and below 1, "
        "such as 0.1%s",
        tree_where(t), key, tree_text(t, ""),
        strcmp(key, "data.holdout") == 0
            ? " (or 0: all rows are used for training, none for evaluation)"
            : "");
}

// Shares of one file, and folds.
static int check_sets(const experiment *x) {
    CLI_TRY(check_share(x, "data.holdout"));
    CLI_TRY(check_share(x, "data.test.share"));
    const split_plan p = data_split_plan(x);
    if (p.eval_share + p.test_share >= 1)
        return cli_fail("%s: data.holdout (%g) and data.test.share (%g) leave "
                        "no rows to train on",
                        x->path, p.eval_share, p.test_share);
    const tree *folds = tree_path(x->root, "data.folds");
    if (folds && (p.folds < 2 || p.folds > 1000))
        return cli_fail("%sdata.folds is %lld; it has to be in 2..1000",
                        tree_where(folds), (long long)p.folds);
    if (p.fold < 0 || (p.fold > 0 && p.fold >= p.folds))
        return cli_fail(
            "%sdata.fold is %lld; it has to be from 0 to data.folds - 1",
            tree_where(tree_path(x->root, "data.fold")), (long long)p.fold);
    return 0;
}

int data_check(const experiment *x) {
    static const char *const sets[] = {"train", "eval", "test", "predict"};
    int failed = check_sets(x);
    for (size_t i = 0; i < 4 && !failed; i++)
        failed = check_set(x, sets[i]);
    const data_user u = {.x = x, .set = "train"};
    const char *source = tree_text(data_get(&u, "source"), "digits");
    if (!failed && strcmp(source, "digits") != 0 && !data_get(&u, "files"))
        failed = cli_fail("%s: data.train needs 'files' for the source %s",
                          x->path, source);
    if (!failed && strcmp(source, "digits") != 0)
        failed = check_place(x, &u);
    return failed;
}
