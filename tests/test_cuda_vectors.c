// test_cuda_vectors.c - the table of vectors on a card against that of host
// memory: every entry and every rule, over random pieces of vectors. On a card
// that the host plays, and on one of the machine where there is one.
#include "hk_test.h"
#include "backend/vector.h"

#define MAX_ENTRIES 160
#define MAX_TABLES 60
#define VECTORS 6 // x, g, three slots, an average

static hki_place here, there;
static hki_device *device;
static uint64_t state = 1;

static double uniform(double low, double high) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return low + (high - low) * (double)(state >> 11) * 0x1p-53;
}

static int64_t below(int64_t n) {
    return (int64_t)uniform(0, (double)n);
}

// ---- a vector of entries ----------------------------------------------------

// Dense entries, then tables; the same numbers at both places.
typedef struct world {
    int64_t n, n_dense;
    hki_chunk chunks[4 * MAX_ENTRIES];
    size_t n_chunks;
    hki_update_run runs[MAX_ENTRIES];
    size_t n_runs, n_entries;
    hki_table_rows tables[MAX_TABLES];
    size_t n_tables;
    // Of every second table the card has the rows itself.
    hki_table_rows card_tables[MAX_TABLES];
    hki_rows_away away[MAX_TABLES];
    hki_buffer *rows[MAX_TABLES];
    unsigned char skip[MAX_ENTRIES], active[MAX_ENTRIES];
    float c[2][HKI_N_COEFS], rates[MAX_ENTRIES], table_rates[MAX_TABLES];
    hki_vector host[VECTORS], card[VECTORS];
} world;

static void add_chunks(world *w, int64_t begin, int64_t end, size_t entry) {
    for (; begin < end; begin += HKI_CHUNK_FLOATS)
        w->chunks[w->n_chunks++] =
            (hki_chunk){begin, HKI_MIN(begin + HKI_CHUNK_FLOATS, end), entry};
}

static void add_entry(world *w, int64_t count) {
    const size_t i = w->n_entries++;
    const int64_t end = w->n + count;
    w->skip[i] = below(3) == 0;
    w->active[i] = below(8) != 0;
    w->rates[i] = (float)uniform(0.01, 0.2);
    add_chunks(w, w->n, end, i);
    if (w->active[i])
        w->runs[w->n_runs++] = (hki_update_run){w->n, end, !w->skip[i]};
    w->n = (end + HKI_ALIGN_FLOATS - 1) / HKI_ALIGN_FLOATS * HKI_ALIGN_FLOATS;
    if (below(4) == 0)
        w->n = end; // entries may also begin anywhere
}

// Some rows of a table, in any order.
static void add_table(world *w, int64_t rows, int64_t dim, int64_t count) {
    const size_t entry = w->n_entries++;
    int64_t *const indices = calloc((size_t)count + 1, sizeof *indices);
    float *const values = calloc((size_t)(count * dim) + 1, sizeof *values);
    uint64_t *const mark = calloc((size_t)rows + 1, sizeof *mark);
    assert_true(indices != NULL && values != NULL && mark != NULL);
    const int64_t first = below(rows);
    for (int64_t i = 0; i < count; i++) { // 7919 has no divisor in common
        indices[i] = (first + i * 7919) % rows;
        mark[indices[i]] = UINT64_C(5) << 32 | (uint64_t)i;
    }
    for (int64_t i = 0; i < count * dim; i++)
        values[i] = (float)uniform(-1, 1);
    w->skip[entry] = below(2) == 0;
    w->table_rates[w->n_tables] = (float)uniform(0.01, 0.2);
    w->tables[w->n_tables++] = (hki_table_rows){.offset = w->n,
                                                .n_rows = rows,
                                                .dim = dim,
                                                .indices = indices,
                                                .rows = values,
                                                .count = count,
                                                .mark = mark,
                                                .epoch = 5,
                                                .entry = entry,
                                                .all = below(2) == 0,
                                                .active = below(4) != 0};
    w->n += rows * dim;
}

static void set_coefficients(float *c) {
    for (int i = 0; i < HKI_N_COEFS; i++)
        c[i] = (float)uniform(0.05, 0.3);
    c[HKI_C_KEEP] = (float)uniform(0.9, 1);
    c[HKI_C_POWER] = 0.4f;
}

// Values of either sign, slots that are sums of squares.
static void make_vectors(world *w) {
    for (int v = 0; v < VECTORS; v++) {
        assert_ok(hki_vector_init(&w->host[v], w->n, 0));
        assert_ok(hki_vector_init(&w->card[v], w->n, 0));
        for (int64_t i = 0; i < w->n; i++)
            w->host[v].host[i] =
                (float)(v >= 2 && v <= 4 ? uniform(1, 2) : uniform(-1, 1));
        memcpy(w->card[v].host, w->host[v].host, (size_t)w->n * sizeof(float));
        assert_ok(hki_vector_follow(&w->card[v], &there));
    }
}

static void put(hki_buffer *b, size_t at, const void *from, size_t n) {
    assert_ok(there.backend->write(there.queue, (hki_loc){b, at}, from, n));
}

// The rows of a table on the card, with room for some that are not there.
static void put_rows(world *w, size_t i) {
    const hki_table_rows *const t = &w->tables[i];
    const int64_t most = t->count + 3;
    const size_t begin = sizeof(int64_t) * (size_t)(most + 1);
    const size_t row = sizeof(float) * (size_t)t->dim;
    hki_buffer **const b = &w->rows[i];
    assert_ok(there.backend->buffer_create(there.device,
                                           begin + row * (size_t)most, b));
    put(*b, 0, &t->count, sizeof t->count);
    put(*b, 8, t->indices, (size_t)t->count * sizeof(int64_t));
    for (int64_t k = t->count; k < most; k++)
        put(*b, 8 + (size_t)k * 8, &(int64_t){INT64_MAX / 1024}, 8);
    put(*b, begin, t->rows, (size_t)t->count * row);
    const char *const at = there.backend->buffer_address(*b);
    w->away[i] = (hki_rows_away){.count = (const void *)at,
                                 .indices = (const void *)(at + 8),
                                 .rows = (const void *)(at + begin),
                                 .most = most};
}

// A table as one of the two places takes it.
static const hki_table_rows *table_of(world *w, const hki_vector *v, size_t i) {
    hki_table_rows *const t = &w->card_tables[i];
    if (v == w->host)
        return &w->tables[i];
    *t = w->tables[i];
    if (i % 2 == 0 && w->rows[i] == NULL)
        put_rows(w, i);
    if (i % 2 == 0) {
        t->away = &w->away[i];
        t->indices = NULL;
        t->rows = NULL;
        t->mark = NULL;
        t->count = 0;
    }
    return t;
}

static const hki_table_rows *tables_of(world *w, const hki_vector *v) {
    for (size_t i = w->n_tables; i > 0; i--)
        (void)table_of(w, v, i - 1);
    return v == w->host ? w->tables : w->card_tables;
}

static world *make_world(uint64_t seed) {
    world *const w = calloc(1, sizeof *w);
    assert_non_null(w);
    state = seed * 977 + 1;
    const int64_t entries =
        below(3) == 0 ? 1 + below(MAX_ENTRIES - 10) : 1 + below(12);
    for (int64_t i = 0; i < entries; i++)
        add_entry(w, below(6) == 0 ? 1 + below(3000) : 1 + below(70));
    if (below(3) == 0)
        add_entry(w, HKI_CHUNK_FLOATS + below(HKI_CHUNK_FLOATS));
    w->n_dense = w->n;
    for (int64_t i = below(4); i > 0; i--) {
        const int64_t rows = 1 + below(50);
        add_table(w, rows, 1 + below(20), below(rows + 1));
    }
    set_coefficients(w->c[0]);
    set_coefficients(w->c[1]);
    make_vectors(w);
    return w;
}

static void free_world(world *w) {
    for (size_t i = 0; i < w->n_tables; i++) {
        free((void *)(uintptr_t)w->tables[i].indices);
        free((void *)(uintptr_t)w->tables[i].rows);
        free((void *)(uintptr_t)w->tables[i].mark);
        there.backend->buffer_destroy(w->rows[i]);
    }
    for (int v = 0; v < VECTORS; v++) {
        hki_vector_deinit(&w->host[v]);
        hki_vector_deinit(&w->card[v]);
    }
    free(w);
}

static float *at(hki_vector *v) {
    float *p;
    assert_ok(hki_vector_at(v, HKI_TO_CHANGE, &p));
    return p;
}

static void compare(world *w, const char *what, double tolerance) {
    static const char *const names[VECTORS] = {"x",  "g",  "s0",
                                               "s1", "s2", "ema"};
    for (int v = 0; v < VECTORS; v++) {
        char text[128];
        float *got;
        snprintf(text, sizeof text, "%s on %s, %s", what, there.backend->name,
                 names[v]);
        assert_ok(hki_vector_host(&w->card[v], HKI_TO_READ, &got));
        hk_test_floats(text, got, w->host[v].host, (size_t)w->n, tolerance,
                       tolerance);
    }
}

// ---- updates ----------------------------------------------------------------

static hki_update_job job_of(world *w, hki_vector *v, hki_rule_kernel rule,
                             bool averaged) {
    return (hki_update_job){
        .rule = rule,
        .x = at(&v[0]),
        .g = at(&v[1]),
        .s = {at(&v[2]), at(&v[3]), at(&v[4])},
        .ema = averaged ? at(&v[5]) : NULL,
        .end = w->n_dense,
        .runs = w->runs,
        .n_runs = w->n_runs,
        .tables = tables_of(w, v),
        .n_tables = w->n_tables,
        .c = (const float(*)[HKI_N_COEFS])w->c,
        .skip = w->skip,
        .chunks = w->chunks,
        .n_chunks = w->n_chunks,
        .active = w->active,
        .rates = w->rates,
        .table_rates = w->table_rates,
    };
}

static void updates(void **unused) {
    (void)unused;
    for (int rule = 0; rule < HKI_N_KERNELS; rule++)
        for (uint64_t seed = 0; seed < 8; seed++) {
            world *const w = make_world(seed);
            char what[32];
            hki_update_job a =
                job_of(w, w->host, (hki_rule_kernel)rule, seed % 2 == 0);
            hki_update_job b =
                job_of(w, w->card, (hki_rule_kernel)rule, seed % 2 == 0);
            if (seed % 3 == 0) { // a part of it
                a.begin = b.begin = below(w->n_dense);
                a.end = b.end = a.begin + below(w->n_dense - a.begin + 1);
            }
            snprintf(what, sizeof what, "rule %d, seed %d", rule, (int)seed);
            if (rule == HKI_K_ADAM_BF16) {
                assert_status(there.ops->update(&there, &b), HK_E_UNSUPPORTED);
            } else {
                assert_ok(here.ops->update(&here, &a));
                assert_ok(there.ops->update(&there, &b));
                compare(w, what, 2e-6);
            }
            free_world(w);
        }
}

static void assert_sums(const char *what, double (*a)[2], double (*b)[2],
                        size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++)
            if (!hk_test_close(b[i][k], a[i][k], 1e-9, 1e-6))
                fail_msg("%s: sum %zu, %d is %.9g, expected %.9g", what, i, k,
                         b[i][k], a[i][k]);
}

static void rules_with_norms(void **unused) {
    static double a_sums[4 * MAX_ENTRIES][2], b_sums[4 * MAX_ENTRIES][2];
    double a_tables[MAX_TABLES][2], b_tables[MAX_TABLES][2];
    (void)unused;
    for (uint64_t seed = 0; seed < 12; seed++) {
        world *const w = make_world(seed);
        // LARS moves as momentum does.
        const hki_rule_kernel rule = seed % 2 ? HKI_K_LAMB : HKI_K_MOMENTUM;
        for (size_t i = 0; i < w->n_tables; i++)
            w->tables[i].all = false;
        hki_update_job a = job_of(w, w->host, rule, seed % 4 < 2);
        hki_update_job b = job_of(w, w->card, rule, seed % 4 < 2);
        for (size_t i = 0; i < HKI_COUNT(a_sums); i++)
            a_sums[i][0] = a_sums[i][1] = b_sums[i][0] = b_sums[i][1] = -1;
        if (seed % 3 == 0)
            a.begin = b.begin = below(w->n_dense);
        a.sums = a_sums, b.sums = b_sums;
        a.table_sums = a_tables, b.table_sums = b_tables;
        assert_ok(here.ops->measure(&here, &a));
        assert_ok(there.ops->measure(&there, &b));
        assert_sums("measure", a_sums, b_sums, w->n_chunks);
        assert_sums("measure, tables", a_tables, b_tables, w->n_tables);
        compare(w, "measure", 2e-6);
        b.x = at(&w->card[0]); // it was looked at
        for (int i = 0; i < HKI_MAX_SLOTS; i++)
            b.s[i] = at(&w->card[2 + i]);
        b.ema = b.ema != NULL ? at(&w->card[5]) : NULL;
        assert_ok(here.ops->move(&here, &a));
        assert_ok(there.ops->move(&there, &b));
        compare(w, "move", 2e-6);
        free_world(w);
    }
}

// More rows than go up at once, after a table whose rows are there.
static void many_rows(void **unused) {
    double a_sums[2][2], b_sums[2][2];
    (void)unused;
    world *const w = calloc(1, sizeof *w);
    assert_non_null(w);
    state = 3;
    add_table(w, 500, 32, 400);
    add_table(w, 50000, 32, 45000);
    set_coefficients(w->c[0]);
    set_coefficients(w->c[1]);
    make_vectors(w);
    w->tables[0].active = w->tables[1].active = true;
    for (int all = 0; all < 2; all++) {
        w->tables[0].all = w->tables[1].all = all;
        hki_update_job a = job_of(w, w->host, HKI_K_ADAM, false);
        hki_update_job b = job_of(w, w->card, HKI_K_ADAM, false);
        assert_ok(here.ops->update(&here, &a));
        assert_ok(there.ops->update(&there, &b));
        compare(w, all ? "all rows" : "many rows", 2e-6);
    }
    hki_update_job a = job_of(w, w->host, HKI_K_LAMB, false);
    hki_update_job b = job_of(w, w->card, HKI_K_LAMB, false);
    a.table_sums = a_sums, b.table_sums = b_sums;
    assert_ok(here.ops->measure(&here, &a));
    assert_ok(there.ops->measure(&there, &b));
    assert_sums("many rows", a_sums, b_sums, 2);
    compare(w, "moments of many rows", 4e-6);
    free_world(w);
}

// More tables than a launch has.
static void many_tables(void **unused) {
    (void)unused;
    world *const w = calloc(1, sizeof *w);
    assert_non_null(w);
    state = 4;
    for (int i = 0; i < MAX_TABLES; i++) {
        const int64_t rows = 1 + below(90);
        add_table(w, rows, 1 + below(40), below(rows + 1));
        w->tables[i].all = i % 20 == 0;
    }
    set_coefficients(w->c[0]);
    set_coefficients(w->c[1]);
    make_vectors(w);
    hki_update_job a = job_of(w, w->host, HKI_K_MOMENTUM, false);
    hki_update_job b = job_of(w, w->card, HKI_K_MOMENTUM, false);
    assert_ok(here.ops->update(&here, &a));
    assert_ok(there.ops->update(&there, &b));
    compare(w, "many tables", 2e-6);
    free_world(w);
}

// ---- passes -----------------------------------------------------------------

typedef hk_status (*pass_fn)(const hki_place *p, const hki_vector_pass *a);

static hki_vector_pass pass_of(world *w, hki_vector *v, const float *factors) {
    return (hki_vector_pass){.dst = at(&v[0]),
                             .src = at(&v[1]),
                             .end = INT64_MAX,
                             .chunks = w->chunks,
                             .n_chunks = w->n_chunks,
                             .scale = 0.75f,
                             .low = -0.25f,
                             .high = 0.3f,
                             .factors = factors};
}

static void run_passes(world *w, pass_fn host, pass_fn card, const char *what,
                       const float *factors, bool some) {
    static double a_sums[4 * MAX_ENTRIES], b_sums[4 * MAX_ENTRIES],
        again[4 * MAX_ENTRIES];
    hki_vector_pass a = pass_of(w, w->host, factors);
    hki_vector_pass b = pass_of(w, w->card, factors);
    a.sums = a_sums, b.sums = b_sums;
    if (some) {
        a.begin = b.begin = below(w->n_dense);
        a.end = b.end = below(w->n_dense);
        a.only = b.only = w->active;
    }
    assert_ok(host(&here, &a));
    assert_ok(card(&there, &b));
    compare(w, what, 2e-7);
    if (host != here.ops->norms)
        return;
    b.sums = again;
    assert_ok(card(&there, &b));
    assert_memory_equal(b_sums, again, w->n_chunks * sizeof *again);
    for (size_t i = 0; i < w->n_chunks; i++)
        assert_close(b_sums[i], a_sums[i], 0, 1e-12);
}

static void passes(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 24; seed++) {
        world *const w = make_world(seed);
        float factors[MAX_ENTRIES];
        const bool some = seed % 2;
        for (size_t i = 0; i < w->n_entries; i++)
            factors[i] = (float)(below(4) == 0   ? -1
                                 : below(3) == 0 ? 1
                                                 : uniform(0.1, 0.9));
        const hki_vector_ops *const h = here.ops, *const c = there.ops;
        run_passes(w, h->norms, c->norms, "norms", NULL, some);
        run_passes(w, h->average, c->average, "average", factors, some);
        run_passes(w, h->add, c->add, "add", NULL, some);
        run_passes(w, h->clip, c->clip, "clip", NULL, some);
        for (size_t i = 0; i < w->n_entries; i++)
            factors[i] = (float)uniform(0.1, 2);
        run_passes(w, h->clip, c->clip, "clip by factors", factors, some);
        free_world(w);
    }
}

// A NaN passes every one, and the largest squares stay finite.
static void values_at_the_end(void **unused) {
    (void)unused;
    world *const w = make_world(5);
    double sums[4 * MAX_ENTRIES];
    const int64_t first = w->chunks[0].begin;
    float *g;
    assert_ok(hki_vector_host(&w->card[1], HKI_TO_CHANGE, &g));
    g[first] = 3e38f;
    hki_vector_pass a = pass_of(w, w->card, NULL);
    a.sums = sums;
    assert_ok(there.ops->norms(&there, &a));
    assert_close(sums[0], 9e76, 0, 1e-6);
    assert_ok(hki_vector_host(&w->card[1], HKI_TO_CHANGE, &g));
    g[first] = NAN;
    a = pass_of(w, w->card, NULL);
    a.sums = sums;
    assert_ok(there.ops->norms(&there, &a));
    assert_true(isnan(sums[0]));
    assert_ok(there.ops->clip(&there, &a));
    assert_ok(hki_vector_host(&w->card[0], HKI_TO_READ, &g));
    assert_true(isnan(g[first]));
    free_world(w);
}

// ---- a worker and its center ------------------------------------------------

static void exchanges(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 12; seed++) {
        world *const w = make_world(seed);
        const int64_t from = below(w->n), n = below(w->n - from + 1);
        hki_vector *const sides[] = {w->host, w->card};
        const hki_place *const places[] = {&here, &there};
        for (int i = 0; i < 2; i++) {
            const hki_place *const p = places[i];
            float *const x = at(&sides[i][0]), *const g = at(&sides[i][1]);
            float *const view = at(&sides[i][5]), *const s = at(&sides[i][2]);
            assert_ok(
                p->ops->pull(p, g + from, x + from, view + from, 0.3f, n));
            assert_ok(p->ops->accumulate(p, s, g, 0.7f, w->n));
            assert_ok(p->ops->subtract(p, x + from, g + from, n));
            for (size_t t = 0; t < w->n_tables; t++)
                assert_ok(p->ops->accumulate_rows(
                    p, s, table_of(w, sides[i], t), -0.6f));
            assert_ok(p->ops->copy(p, view, s, n));
        }
        compare(w, "exchange", 0);
        free_world(w);
    }
}

// The host's exchange kernels say what is right, to the bit.
static void exchange_by_host(hki_vector *v, float *c, bool in_place,
                             const hki_exchange_span *s, double sums[3]) {
    const int64_t n = s->end - s->begin;
    float *const x = at(&v[0]) + s->begin, *const diff = at(&v[3]) + s->begin;
    float *const view = at(&v[4]) + s->begin;
    const float *const before = at(&v[5]) + s->begin;
    c += s->begin;
    if (s->copied) {
        memcpy(c, x, (size_t)n * sizeof *c);
        return;
    }
    here.ek->observe(x, before, c, n, sums);
    memcpy(view, c, (size_t)n * sizeof *c);
    if (in_place)
        here.ek->elastic(x, c, 0.3f, n);
    else
        here.ek->elastic_difference(x, c, diff, 0.3f, n);
}

static void exchange_with_a_center(world *w, uint64_t seed) {
    const bool in_place = seed % 2;
    const size_t bytes = (size_t)w->n * sizeof(float);
    float *const a = malloc(bytes), *const b = malloc(bytes);
    for (int64_t i = 0; i < w->n; i++)
        a[i] = b[i] = (float)uniform(-1, 1);
    const int64_t m = below(w->n), k = m + below(w->n - m + 1);
    const hki_exchange_span spans[] = {{0, m, false}, {k, w->n, seed > 8}};
    hki_exchange_job j = {.x = at(&w->card[0]),
                          .diff = in_place ? NULL : at(&w->card[3]),
                          .view = at(&w->card[4]),
                          .before = at(&w->card[5]),
                          .spans = spans,
                          .n_spans = 2,
                          .alpha = 0.3f,
                          .observed = true};
    double expected[3] = {0}, sums[3];
    assert_ok(there.backend->shared_create(device, b, bytes, &j.shared));
    assert_ok(there.ops->exchange(&there, &j));
    for (int i = 0; i < 2; i++)
        exchange_by_host(w->host, a, in_place, &spans[i], expected);
    assert_ok(there.ops->exchange_sums(&there, sums));
    for (int i = 0; i < 3; i++)
        assert_close(sums[i], expected[i], 1e-12, 1e-12);
    assert_ok(there.backend->shared_wait(j.shared));
    assert_memory_equal(a, b, bytes);
    compare(w, "exchange with a center", 0);
    there.backend->shared_destroy(j.shared);
    free(a);
    free(b);
}

static void exchanges_with_a_center(void **unused) {
    (void)unused;
    for (uint64_t seed = 0; seed < 12; seed++) {
        world *const w = make_world(seed);
        exchange_with_a_center(w, seed);
        free_world(w);
    }
}

// Chunks of an entry that one piece of a launch holds, before and behind
// others, and more elements than all threads of an exchange have at once.
static void long_vectors(void **unused) {
    (void)unused;
    world *const w = calloc(1, sizeof *w);
    assert_non_null(w);
    state = 6;
    add_entry(w, 37);
    w->n = (w->n + 3) / 4 * 4;
    add_entry(w, 3 * HKI_CHUNK_FLOATS + 5000);
    add_entry(w, 3);
    w->n = (w->n + 3) / 4 * 4;
    add_entry(w, 20 * HKI_CHUNK_FLOATS);
    add_entry(w, HKI_CHUNK_FLOATS);
    w->n_dense = w->n;
    make_vectors(w);
    memset(w->active, 1, sizeof w->active);
    run_passes(w, here.ops->norms, there.ops->norms, "long norms", NULL, false);
    run_passes(w, here.ops->norms, there.ops->norms, "a part", NULL, true);
    exchange_with_a_center(w, 0);
    exchange_with_a_center(w, 1);
    free_world(w);
}

// ---- places -----------------------------------------------------------------

static bool open_place(const char *name) {
    const hki_backend *be;
    uint32_t n;
    if (hki_backend_find(name, &be) != HK_OK || be->device_count(&n) != HK_OK)
        return false;
    const hki_device_options o = {.threads = 1, .isa = HK_ISA_BASE};
    there = (hki_place){.ops = be->vectors, .backend = be};
    assert_ok(hki_place_home(&here, HK_ISA_AUTO, 1, "test"));
    assert_ok(be->device_open(&o, &device));
    there.device = device;
    assert_ok(be->queue_create(device, &there.queue));
    return true;
}

static int close_place(void **unused) {
    (void)unused;
    there.backend->queue_destroy(there.queue);
    there.backend->device_close(device);
    return 0;
}

int main(void) {
    static const char *const names[] = {"cuda-played", "cuda"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates),
        cmocka_unit_test(rules_with_norms),
        cmocka_unit_test(many_rows),
        cmocka_unit_test(many_tables),
        cmocka_unit_test(passes),
        cmocka_unit_test(values_at_the_end),
        cmocka_unit_test(exchanges),
        cmocka_unit_test(exchanges_with_a_center),
        cmocka_unit_test(long_vectors),
    };
    int failed = 0, found = 0;
    for (size_t i = 0; i < HKI_COUNT(names); i++) {
        if (!open_place(names[i]))
            continue;
        found++;
        failed +=
            cmocka_run_group_tests_name(names[i], tests, NULL, close_place);
    }
    return found > 0 ? failed : -1;
}
