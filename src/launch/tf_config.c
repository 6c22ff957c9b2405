// tf_config.c - TF_CONFIG, read by the rules of TensorFlow's RunConfig and
// written back.
//
//     {"cluster": {"chief": ["h0:2222"], "worker": ["h1:2222", "h2:2222"],
//                  "ps": ["h3:2222"]},
//      "task": {"type": "worker", "index": 0}}
//
// A job may be a map from index to address that lists some of its tasks only
// ("sparse": dynamic workers know the centers and themselves). Keys that are
// not known are ignored. What Hooke adds when it writes is under "hooke":
// "workers" (how many are expected) and "center" (the center that runs as a
// thread of this worker).
#include <jansson.h>
#include "launch/launch.h"
#include "codec/codec.h"

#define WHAT "TF_CONFIG"

// ---- cluster ---------------------------------------------------------------

static hk_status check_address(const char *job, const char *key, json_t *v) {
    char what[160];
    snprintf(what, sizeof what, WHAT ": cluster.%.64s[%.20s]", job, key);
    if (!json_is_string(v))
        return hki_fail(HK_E_DTYPE, "%s is not a string", what);
    const char *const address = json_string_value(v);
    // Nobody dials workers, so theirs may be anything.
    if (strcmp(job, "ps") == 0)
        return hki_address_check(address, what);
    if (strlen(address) >= HKI_MAX_ADDRESS || address[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: an address has to have 1 to %d bytes", what,
                        HKI_MAX_ADDRESS - 1);
    return HK_OK;
}

static hk_status parse_list(hk_cluster_config *c, const char *name,
                            json_t *list) {
    hki_task_list *j;
    if (json_array_size(list) > HKI_MAX_TASKS)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": cluster.%s has more than %d tasks", name,
                        HKI_MAX_TASKS);
    HKI_TRY(hki_config_add_job(c, name, (uint32_t)json_array_size(list), &j));
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        HKI_TRY(check_address(name, key, v));
        HKI_TRY(hki_config_add_task(c, j, (uint32_t)i, json_string_value(v)));
    }
    return HK_OK;
}

typedef struct sparse_task {
    uint32_t index;
    const char *address;
} sparse_task;

static int by_index(const void *a, const void *b) {
    const uint32_t x = ((const sparse_task *)a)->index;
    const uint32_t y = ((const sparse_task *)b)->index;
    return (x > y) - (x < y);
}

static hk_status parse_map(hk_cluster_config *c, const char *name,
                           json_t *map) {
    const size_t n = json_object_size(map);
    if (n > HKI_MAX_TASKS)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": cluster.%s has more than %d tasks", name,
                        HKI_MAX_TASKS);
    sparse_task *task;
    HKI_TRY(hki_arena_alloc(&c->arena, n, sizeof *task, &task));
    const char *key;
    json_t *v;
    size_t count = 0;
    json_object_foreach(map, key, v) {
        if (!hki_parse_u32(key, 0, HKI_MAX_TASKS - 1, &task[count].index))
            return hki_fail(HK_E_INVALID_ARG,
                            WHAT ": cluster.%s: \"%.40s\" is not a task index",
                            name, key);
        HKI_TRY(check_address(name, key, v));
        task[count++].address = json_string_value(v);
    }
    qsort(task, count, sizeof *task, by_index);
    hki_task_list *j;
    HKI_TRY(hki_config_add_job(c, name, (uint32_t)n, &j));
    j->sparse = true;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && task[i].index == task[i - 1].index)
            return hki_fail(HK_E_INVALID_ARG,
                            WHAT ": cluster.%s names task %u twice", name,
                            task[i].index);
        HKI_TRY(hki_config_add_task(c, j, task[i].index, task[i].address));
    }
    return HK_OK;
}

static hk_status parse_cluster(hk_cluster_config *c, json_t *cluster) {
    if (!json_is_object(cluster))
        return hki_fail(HK_E_DTYPE, WHAT ": \"cluster\" is not an object");
    const char *name;
    json_t *v;
    json_object_foreach(cluster, name, v) {
        const size_t length = strlen(name);
        if (length == 0 || length > 64 ||
            strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "0123456789_-") != length)
            return hki_fail(HK_E_INVALID_ARG,
                            WHAT ": \"%.64s\" is not a valid name of a job",
                            name);
        if (json_is_array(v))
            HKI_TRY(parse_list(c, name, v));
        else if (json_is_object(v))
            HKI_TRY(parse_map(c, name, v));
        else if (!json_is_null(v))
            return hki_fail(HK_E_DTYPE,
                            WHAT ": cluster.%s is neither a list nor a map",
                            name);
    }
    return HK_OK;
}

// ---- task ------------------------------------------------------------------

// The index as a number or as a string of one; -1: not given.
static hk_status parse_index(json_t *task, int32_t *out) {
    json_t *const v = json_object_get(task, "index");
    *out = -1;
    if (v == NULL || json_is_null(v))
        return HK_OK;
    if (json_is_integer(v)) {
        const json_int_t n = json_integer_value(v);
        if (n < 0)
            return hki_fail(HK_E_INVALID_ARG,
                            WHAT ": task.index is negative: %lld",
                            (long long)n);
        if (n >= HKI_MAX_TASKS)
            return hki_fail(HK_E_INVALID_ARG,
                            WHAT ": task.index %lld is too large",
                            (long long)n);
        *out = (int32_t)n;
        return HK_OK;
    }
    if (!json_is_string(v))
        return hki_fail(HK_E_DTYPE, WHAT ": task.index is not a number");
    const char *const text = json_string_value(v);
    uint32_t n;
    if (!hki_parse_u32(text, 0, HKI_MAX_TASKS - 1, &n))
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT
                        ": task.index \"%.40s\" is not a number from 0 to %d",
                        text, HKI_MAX_TASKS - 1);
    *out = (int32_t)n;
    return HK_OK;
}

// The rules for chief and master, which hold for every task.
static hk_status check_chief(hk_cluster_config *c, const char *type,
                             bool strict) {
    const hki_task_list *const chief = hki_config_job(c, "chief");
    const hki_task_list *const master = hki_config_job(c, "master");
    if (chief != NULL && master != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": cluster has \"master\" and \"chief\"; remove "
                             "\"master\", the old name of the chief");
    const hki_task_list *const first = chief != NULL ? chief : master;
    if (first != NULL && first->count > 1)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": cluster has %u tasks \"%s\"; one is the limit",
                        first->count, first->name);
    if ((first == NULL || first->count == 0) && strict)
        return hki_fail(HK_E_INVALID_ARG, WHAT ": cluster has no \"chief\"");
    if (master != NULL && type != NULL && strcmp(type, "evaluator") == 0)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": task \"evaluator\" in a cluster with "
                             "\"master\"; name it \"chief\"");
    return HK_OK;
}

// A center of a sparse cluster is listed alone, as the first of its list,
// whatever its index is.
static void place_lone_center(hk_cluster_config *c, int32_t index) {
    const hki_task_list *const ps = hki_config_job(c, "ps");
    const hki_task_list *const worker = hki_config_job(c, "worker");
    if (ps == NULL || worker == NULL || !worker->sparse || ps->sparse ||
        ps->count != 1 || worker->count != 0)
        return;
    hki_task_list *const own = &c->job[ps - c->job];
    own->sparse = true;
    own->index[0] = (uint32_t)index;
    own->size = (uint32_t)index + 1;
}

static hk_status check_member(hk_cluster_config *c, const char *type,
                              int32_t index) {
    if (strcmp(type, "ps") == 0)
        place_lone_center(c, index);
    const hki_task_list *const j = hki_config_job(c, type);
    if (j == NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": task.type \"%.64s\" is not in the cluster",
                        type);
    for (uint32_t i = 0; i < j->count; i++)
        if ((int64_t)j->index[i] == index)
            return HK_OK;
    return hki_fail(HK_E_INVALID_ARG,
                    WHAT ": task.index %d: cluster.%s has %u task%s", index,
                    type, j->count, j->count == 1 ? "" : "s");
}

static hk_status parse_task(hk_cluster_config *c, json_t *root, bool strict) {
    json_t *const task = json_object_get(root, "task");
    if (task != NULL && !json_is_object(task) && !json_is_null(task))
        return hki_fail(HK_E_DTYPE, WHAT ": \"task\" is not an object");
    json_t *const t = json_object_get(task, "type");
    if (t != NULL && !json_is_string(t) && !json_is_null(t))
        return hki_fail(HK_E_DTYPE, WHAT ": task.type is not a string");
    const char *type = json_string_value(t);
    if (type != NULL && (type[0] == '\0' || strlen(type) > 64))
        type = NULL;
    int32_t index;
    HKI_TRY(parse_index(task, &index));
    if (c->n_jobs == 0) {
        if ((type != NULL && strcmp(type, "worker") != 0) || index > 0)
            return hki_fail(
                HK_E_INVALID_ARG,
                WHAT
                ": without a cluster the task has to be worker 0, not %s %d",
                type == NULL ? "worker" : type, index < 0 ? 0 : index);
        return hki_config_set_task(c, "worker", 0);
    }
    HKI_TRY(check_chief(c, type, strict));
    if (type == NULL)
        return hki_fail(HK_E_INVALID_ARG, WHAT ": task.type is missing");
    if (index < 0)
        return hki_fail(HK_E_INVALID_ARG, WHAT ": task.index is missing");
    // An evaluator stands outside of the cluster, listed or not.
    if (strcmp(type, "evaluator") != 0)
        HKI_TRY(check_member(c, type, index));
    return hki_config_set_task(c, type, index);
}

// ---- the rest --------------------------------------------------------------

// A string member into the arena; NULL when it is not there.
static hk_status parse_string(hk_cluster_config *c, json_t *root,
                              const char *key, const char **out) {
    json_t *const v = json_object_get(root, key);
    if (v == NULL || json_is_null(v))
        return HK_OK;
    if (!json_is_string(v))
        return hki_fail(HK_E_DTYPE, WHAT ": \"%s\" is not a string", key);
    return hki_arena_strdup(&c->arena, json_string_value(v), out);
}

static hk_status parse_extras(hk_cluster_config *c, json_t *root) {
    json_t *const hooke = json_object_get(root, "hooke");
    if (hooke == NULL)
        return HK_OK;
    json_int_t workers = json_integer_value(json_object_get(hooke, "workers"));
    json_t *const center = json_object_get(hooke, "center");
    const json_int_t index = center == NULL ? -1 : json_integer_value(center);
    if (!json_is_object(hooke) || workers < 0 || workers > HKI_MAX_TASKS ||
        index < -1 || index >= HKI_MAX_TASKS)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": \"hooke\" has to hold \"workers\" and "
                             "\"center\", numbers from 0 to %d",
                        HKI_MAX_TASKS);
    c->info.n_workers = (uint32_t)workers;
    c->info.center_index = (int32_t)index;
    return HK_OK;
}

static hk_status parse_root(hk_cluster_config *c, json_t *root, bool strict) {
    if (!json_is_object(root))
        return hki_fail(HK_E_DTYPE, WHAT ": not an object");
    json_t *const service = json_object_get(root, "service");
    if (service != NULL && !json_is_object(service) && !json_is_null(service))
        return hki_fail(HK_E_DTYPE, WHAT ": \"service\" is not an object");
    c->info.service_given = json_is_object(service);
    json_t *cluster = json_object_get(root, "cluster");
    if (cluster == NULL) // what Kubeflow's dynamic workers are given
        cluster = json_object_get(root, "sparseCluster");
    if (cluster != NULL && !json_is_null(cluster))
        HKI_TRY(parse_cluster(c, cluster));
    HKI_TRY(parse_task(c, root, strict));
    HKI_TRY(parse_string(c, root, "model_dir", &c->info.model_dir));
    if (c->info.model_dir != NULL && c->info.model_dir[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, WHAT ": \"model_dir\" is empty");
    HKI_TRY(parse_string(c, root, "session_master", &c->session_master));
    HKI_TRY(
        parse_string(c, root, "eval_session_master", &c->eval_session_master));
    if (c->eval_session_master != NULL && c->n_jobs > 0 &&
        c->info.task != HK_TASK_EVALUATOR)
        return hki_fail(HK_E_INVALID_ARG,
                        WHAT ": \"eval_session_master\" is for the evaluator, "
                             "this task is %s %d",
                        c->info.task_type, c->info.task_index);
    return parse_extras(c, root);
}

hk_status hki_config_parse_tf(hk_cluster_config *c, const char *text,
                              size_t size, bool strict) {
    json_t *root;
    HKI_TRY(hki_json_parse(text, size, WHAT, &root));
    const hk_status s = parse_root(c, root, strict);
    json_decref(root);
    return s;
}

// ---- writing ---------------------------------------------------------------

static hk_status quote(hki_buf *b, const char *s) {
    return hki_json_quote(b, s, strlen(s));
}

static hk_status print_job(hki_buf *b, const hki_task_list *j) {
    HKI_TRY(quote(b, j->name));
    HKI_TRY(hki_buf_printf(b, j->sparse ? ": {" : ": ["));
    for (uint32_t i = 0; i < j->count; i++) {
        if (i > 0)
            HKI_TRY(hki_buf_printf(b, ", "));
        if (j->sparse)
            HKI_TRY(hki_buf_printf(b, "\"%u\": ", j->index[i]));
        HKI_TRY(quote(b, j->address[i]));
    }
    return hki_buf_printf(b, j->sparse ? "}" : "]");
}

static hk_status print_member(hki_buf *b, const char *key, const char *value) {
    if (value == NULL)
        return HK_OK;
    HKI_TRY(hki_buf_printf(b, ", \"%s\": ", key));
    return quote(b, value);
}

hk_status hki_config_print_tf(hk_cluster_config *c) {
    hki_buf *const b = &c->json;
    const hk_cluster_info *const i = &c->info;
    b->size = 0;
    HKI_TRY(hki_buf_printf(b, "{"));
    if (c->n_jobs > 0) {
        HKI_TRY(hki_buf_printf(b, "\"cluster\": {"));
        for (size_t k = 0; k < c->n_jobs; k++) {
            HKI_TRY(hki_buf_printf(b, k == 0 ? "" : ", "));
            HKI_TRY(print_job(b, &c->job[k]));
        }
        HKI_TRY(hki_buf_printf(b, "}, "));
    }
    HKI_TRY(hki_buf_printf(b, "\"task\": {\"type\": "));
    HKI_TRY(quote(b, i->task_type));
    if (i->task_index >= 0)
        HKI_TRY(hki_buf_printf(b, ", \"index\": %d", i->task_index));
    HKI_TRY(hki_buf_printf(b, "}"));
    HKI_TRY(print_member(b, "model_dir", i->model_dir));
    HKI_TRY(print_member(b, "session_master", c->session_master));
    HKI_TRY(print_member(b, "eval_session_master", c->eval_session_master));
    const bool thread = i->center_index >= 0 && i->task != HK_TASK_CENTER;
    const bool workers = i->n_workers != hki_config_listed_workers(c);
    if (thread || workers)
        HKI_TRY(hki_buf_printf(b, ", \"hooke\": {"));
    if (workers)
        HKI_TRY(hki_buf_printf(b, "\"workers\": %u%s", i->n_workers,
                               thread ? ", " : ""));
    if (thread)
        HKI_TRY(hki_buf_printf(b, "\"center\": %d", i->center_index));
    return hki_buf_printf(b, thread || workers ? "}}" : "}");
}
