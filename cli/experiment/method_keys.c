// method_keys.c - the keys of elastic that shape a method: what its exchange,
// its center and its way over the network are told.
#include <string.h>
#include "experiment/experiment.h"

// ---- whose key is it --------------------------------------------------------

#define OF(m) (1u << HK_METHOD_##m)
#define ROUNDS                                                                 \
    (OF(ELASTIC_SYNC) | OF(MODEL_AVERAGE) | OF(LOCAL_SGD) | OF(SLOWMO) |       \
     OF(BMUF) | OF(DILOCO))
#define OUTER                                                                  \
    (OF(AGN) | OF(DROP_STALE) | OF(SLOWMO) | OF(BMUF) | OF(DILOCO) |           \
     OF(DILOCO_ASYNC) | OF(DILOCO_DELAYED))

static const struct {
    const char *key;
    unsigned methods;
} owners[] = {{"exchange", OF(ELASTIC)},
              {"follow_live", OF(ELASTIC) | OF(ELASTIC_SYNC)},
              {"overlap_steps", OF(ELASTIC)},
              {"check", OF(ELASTIC)},
              {"center_bf16", OF(ELASTIC)},
              {"quorum", ROUNDS},
              {"staleness", OF(DROP_STALE)},
              {"average_rate", OF(DOWNPOUR_MOVING)},
              {"activation", OF(DILOCO_DELAYED)},
              {"delay", OF(DILOCO_DELAYED)},
              {"outer", OUTER}};

// "diloco, bmuf": the methods of a set.
static void list_methods(unsigned methods, char *text, size_t size) {
    size_t used = 0;
    for (unsigned m = 1; hk_method_name((hk_method)m) && used < size; m++)
        if (methods & 1u << m)
            used += (size_t)snprintf(text + used, size - used, "%s%s",
                                     used ? ", " : "",
                                     hk_method_name((hk_method)m));
}

static int check_owners(const tree *t, hk_method method) {
    char names[256];
    for (size_t i = 0; i < sizeof owners / sizeof owners[0]; i++) {
        const tree *key = tree_get(t, owners[i].key);
        if (!key || owners[i].methods & 1u << method)
            continue;
        list_methods(owners[i].methods, names, sizeof names);
        return cli_fail("%s'elastic.%s' is only for %s, not for method %s",
                        tree_where(key), owners[i].key, names,
                        hk_method_name(method));
    }
    return 0;
}

// ---- numbers ----------------------------------------------------------------

// A whole number from `least` on that fits the field.
static int read_count(const tree *t, const char *name, int64_t least,
                      uint32_t *out) {
    const tree *key = tree_get(t, name);
    const int64_t v = tree_int(key, *out);
    if (key && (v < least || v > INT32_MAX))
        return cli_fail("%s'elastic.%s' is %lld; it has to be at least %lld",
                        tree_where(key), name, (long long)v, (long long)least);
    *out = (uint32_t)v;
    return 0;
}

static int read_counts(const tree *t, settings *s) {
    hk_center_options *c = &s->center;
    const struct {
        const char *name;
        int64_t least;
        uint32_t *place;
    } fields[] = {{"overlap_steps", 0, &s->elastic.overlap_steps},
                  {"quorum", 0, &c->quorum},
                  {"delay", 0, &c->delay},
                  {"chunk_kib", 1, &c->chunk_kib},
                  {"row_period", 1, &s->row_period}};
    int failed = 0;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0] && !failed; i++)
        failed =
            read_count(t, fields[i].name, fields[i].least, fields[i].place);
    return failed;
}

// ---- worker, center, connection ---------------------------------------------

static void read_worker(const tree *t, hk_elastic_options *o) {
    // The paper's rates, with the exchange after the step.
    const char *order = tree_text(tree_get(t, "exchange"), "after");
    o->order = strcmp(order, "before") == 0 ? HK_ORDER_PAPER : HK_ORDER_TF;
    o->follow_live = tree_bool(tree_get(t, "follow_live"), false);
    o->local_schedule = tree_bool(tree_get(t, "local_schedule"), false);
    o->wait_ms = (int64_t)(1000 * tree_float(tree_get(t, "wait_seconds"), 60));
}

static bool says_center(const tree *t) {
    static const char *const keys[] = {
        "quorum", "staleness", "average_rate", "activation",
        "delay",  "chunk_kib", "check",        "outer"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (tree_get(t, keys[i]))
            return true;
    return false;
}

// Methods that send gradients let the center step: with the optimizer that the
// workers have otherwise.
static void read_outer(const tree *t, settings *s) {
    const hk_method m = s->center.method;
    const tree *outer = tree_get(t, "outer");
    const bool is_inner = m == HK_METHOD_AGN || m == HK_METHOD_DROP_STALE;
    if (is_inner)
        s->outer = s->optimizer;
    else if (!outer || hk_method_outer(m, s->center.workers, &s->outer))
        return;
    settings_rule(outer, &s->outer);
    if (tree_get(outer, "learning_rate"))
        s->outer.schedule = NULL;
    s->center.outer = &s->outer;
    s->has_center = true;
}

static void read_center(const tree *t, settings *s) {
    hk_center_options *c = &s->center;
    c->staleness = tree_int(tree_get(t, "staleness"), c->staleness);
    c->average_rate = tree_float(tree_get(t, "average_rate"), c->average_rate);
    c->activation = tree_float(tree_get(t, "activation"), c->activation);
    c->check = tree_bool(tree_get(t, "check"), false);
    s->has_center = says_center(t);
    read_outer(t, s);
}

int settings_method(const tree *t, uint32_t workers, settings *s) {
    const hk_method said = s->config.method;
    hk_center_options_init(&s->center, sizeof s->center);
    s->center.method = said ? said : HK_METHOD_ELASTIC;
    s->center.workers = workers;
    s->row_period = 16;
    CLI_TRY(check_owners(t, s->center.method));
    CLI_TRY(read_counts(t, s));
    read_worker(t, &s->elastic);
    read_center(t, s);
    s->center_bf16 = tree_bool(tree_get(t, "center_bf16"), false);
    return 0;
}
