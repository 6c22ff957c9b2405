// test_cluster_rows.c - what travels in a shorter form: touched rows of
// tables, and differences in bfloat16 or int8 with the rest kept for the next
// time. Oracles: the same arithmetic, element by element.
#include "elastic_bed.h"
#include "cluster_bed.h"

#define ROWS 200
#define DIM 10
#define DENSE 300
#define SHARDS 2

static unsigned counter;

typedef struct venue {
    hk_layout *layout;
    hk_center_server *server[SHARDS];
    hk_center *center;
    size_t n;
} venue;

static hk_layout *make_layout(void) {
    const hk_layout_item items[] = {
        {.name = "kernel",
         .shape = hk_shape_make(1, (int64_t[]){DENSE}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "embedding",
         .shape = hk_shape_make(2, (int64_t[]){ROWS, DIM}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
    };
    hk_layout *l;
    assert_ok(hk_layout_create(items, 2, &l));
    return l;
}

static void open_venue(venue *v, const hk_connect_options *wish,
                       uint32_t n_shards) {
    char text[SHARDS][64];
    const char *addresses[SHARDS];
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.chunk_kib = 1;
    *v = (venue){.layout = make_layout()};
    v->n = (size_t)hki_layout_size(v->layout);
    for (uint32_t i = 0; i < n_shards; i++) {
        snprintf(text[i], sizeof text[i], "inproc:rows%u", counter++);
        addresses[i] = text[i];
    }
    for (uint32_t i = 0; i < n_shards; i++) {
        hk_center_server_options o;
        bed_server_options(&o, &addresses[i]);
        o.center = &center;
        o.shards = addresses;
        o.shard = i;
        o.n_shards = n_shards;
        assert_ok(hk_center_server_start(&o, &v->server[i]));
    }
    hk_connect_options c = *wish;
    c.addresses = addresses;
    c.n_addresses = n_shards;
    assert_ok(hk_center_connect(&c, v->layout, &v->center));
}

static void close_venue(venue *v) {
    hk_center_destroy(v->center);
    for (size_t i = 0; i < SHARDS; i++)
        hk_center_server_stop(v->server[i]);
    hk_layout_release(v->layout);
}

// ---- rows -------------------------------------------------------------------

// Worker and center as they should be.
typedef struct model {
    float x[2][4096], c[4096];
    bool touched[2][ROWS];
    int turn[2];
} model;

static void model_exchange(model *m, size_t w, const hk_layout *l, float alpha,
                           int period) {
    const bool all = ++m->turn[w] % period == 0;
    const int64_t table = hk_layout_find(l, "embedding")->offset;
    for (int64_t i = 0; i < hki_layout_size(l); i++) {
        const int64_t row = (i - table) / DIM;
        const bool in_table = i >= table && row < ROWS;
        if (in_table && !all && !m->touched[w][row])
            continue;
        const float d = alpha * (m->x[w][i] - m->c[i]);
        m->x[w][i] -= d;
        m->c[i] += d;
    }
    memset(m->touched[w], 0, sizeof m->touched[w]);
}

static hk_status sparse_step(worker *w, int t, size_t id, model *m) {
    static float rows[8 * DIM];
    int64_t indices[8];
    const hk_entry *const table = hk_layout_find(w->layout, "embedding");
    for (int64_t i = 0; i < DENSE; i++)
        w->g[i] = (float)((i * 3 + t) % 17 - 8) / 32;
    for (int i = 0; i < 8; i++) {
        indices[i] = (t * 29 + i * 13 + (int)id * 7) % ROWS;
        for (int j = 0; j < DIM; j++)
            rows[i * DIM + j] = (float)((i + j + t) % 11 - 5) / 16;
        m->touched[id][indices[i]] = true;
    }
    // Gradient descent at 0.5, with the same roundings.
    for (int64_t i = 0; i < DENSE; i++)
        m->x[id][i] -= 0.5f * w->g[i];
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < DIM; j++)
            m->x[id][table->offset + indices[i] * DIM + j] -=
                0.5f * rows[i * DIM + j];
    const hk_sparse_grad sparse = {.entry = table,
                                   .count = 8,
                                   .dim = DIM,
                                   .indices = indices,
                                   .rows = rows,
                                   .unique = 1};
    const hk_grad_view g = {.dense = w->g,
                            .n_dense = hki_layout_dense(w->layout),
                            .sparse = &sparse,
                            .n_sparse = 1,
                            .scale = 1};
    return hk_elastic_apply(w->e, w->x, &g, NULL);
}

static void check(const char *what, int t, const float *got,
                  const float *expected, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (got[i] != expected[i])
            fail_msg("%s, step %d: element %zu is %.9g, expected %.9g", what, t,
                     i, (double)got[i], (double)expected[i]);
}

static void rows_over(uint32_t n_shards, uint32_t period) {
    venue v;
    worker w[2];
    static model m;
    memset(&m, 0, sizeof m);
    hk_connect_options o;
    hk_connect_options_init(&o, sizeof o);
    o.row_period = period;
    open_venue(&v, &o, n_shards);
    assert_true(v.n <= HKI_COUNT(m.c));
    for (size_t i = 0; i < 2; i++) {
        hk_elastic_options e;
        elastic_options(&e, 2, 2);
        e.moving_rate = 0.25;
        worker_open(&w[i], v.layout, v.center, &e, HK_OPT_GRADIENT_DESCENT,
                    0.5);
        for (int64_t j = 0; i == 0 && j < DENSE; j++)
            w[i].x[j] = (float)(j % 7);
        assert_ok(hk_elastic_init(w[i].e, w[i].x, (int32_t)i));
        memcpy(m.x[i], w[i].x, v.n * sizeof(float));
        memcpy(m.c, w[i].x, v.n * sizeof(float));
    }
    float *center;
    assert_ok(hki_zalloc_array(v.n, sizeof *center, &center));
    for (int t = 0; t < 40; t++) {
        const size_t id = (size_t)t % 2;
        assert_ok(sparse_step(&w[id], t, id, &m));
        if (hki_elastic_local_step(w[id].e) % 2 == 0)
            model_exchange(&m, id, v.layout, 0.25f, (int)period);
        check("x", t, w[id].x, m.x[id], v.n);
    }
    read_center(v.center, center, NULL);
    check("center", 40, center, m.c, v.n);
    hk_link_info info;
    assert_ok(hk_center_get_link_info(v.center, &info));
    // 20 exchanges, 10 for each worker.
    assert_int_equal(info.row_exchanges, period == 1 ? 0 : 20 - 20 / period);
    hki_free(center);
    worker_close(&w[0]);
    worker_close(&w[1]);
    close_venue(&v);
}

static void test_rows(void **state) {
    (void)state;
    rows_over(1, 5);
    rows_over(2, 5);
    rows_over(1, 1); // always all
}

// ---- shorter differences ----------------------------------------------------

static float as_bf16(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    b = (b + 0x7fff + (b >> 16 & 1)) & 0xffff0000u;
    memcpy(&v, &b, sizeof v);
    return v;
}

// One chunk: d + r in the shorter form, r := what is lost.
static void shorten(hk_diff_coding how, float *d, float *r, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        d[i] += r[i];
    for (int64_t at = 0; at < n; at += 256) {
        const int64_t end = HKI_MIN(at + 256, n);
        float most = 0;
        for (int64_t i = at; i < end; i++)
            most = fmaxf(most, fabsf(d[i]));
        const float unit = most / 127;
        for (int64_t i = at; i < end; i++) {
            float v = as_bf16(d[i]);
            if (how == HK_COMPRESS_INT8)
                v = unit > 0 ? nearbyintf(d[i] * (1 / unit)) * unit : 0;
            r[i] = d[i] - v;
            d[i] = v;
        }
    }
}

static void compressed(hk_diff_coding how, bool half_center) {
    venue v;
    hk_connect_options o;
    hk_connect_options_init(&o, sizeof o);
    o.compression = how;
    o.center_bf16 = half_center;
    open_venue(&v, &o, 2);
    hki_remote *const r = (hki_remote *)v.center;
    hki_rng rng;
    hki_rng_init(&rng, 3, 3);
    float *x, *own, *c, *rest, *d, *got;
    float **const all[] = {&x, &own, &c, &rest, &d, &got};
    for (size_t i = 0; i < HKI_COUNT(all); i++)
        assert_ok(hki_zalloc_array(v.n, sizeof(float), all[i]));
    fill_random(&rng, v.layout, x, v.n);
    hki_member m;
    const int64_t soon = hki_deadline(20000);
    assert_ok(v.center->ops->join(v.center, 0, soon, &m));
    assert_ok(v.center->ops->init_if_empty(v.center, m, x, NULL, soon));
    memcpy(own, x, v.n * sizeof(float));
    memcpy(c, x, v.n * sizeof(float));
    for (int t = 0; t < 8; t++) {
        for (size_t e = 0; e < 2; e++) {
            const hk_entry *const at = hk_layout_entry(v.layout, e);
            for (int64_t i = at->offset; i < at->offset + at->count; i++) {
                const float step = (float)hki_rng_normal(&rng);
                x[i] += step;
                own[i] += step;
            }
        }
        for (uint32_t k = 0; k < r->base.partition.count; k++) {
            const hki_chunk_range *const p = &r->base.partition.chunk[k];
            for (int64_t i = p->begin; i < p->end; i++)
                d[i] = 0.3f * (own[i] - (half_center ? as_bf16(c[i]) : c[i]));
            shorten(how, d + p->begin, rest + p->begin, p->end - p->begin);
            for (int64_t i = p->begin; i < p->end; i++) {
                own[i] -= d[i];
                c[i] += d[i];
            }
        }
        hki_exchange ex = {.x = x,
                           .rate = (double)0.3f,
                           .grad_scale = 1,
                           .steps_done = 1,
                           .deadline_ns = hki_deadline(20000),
                           .use_locking = true};
        assert_ok(v.center->ops->exchange(v.center, m, &ex));
        check("x", t, x, own, v.n);
    }
    assert_ok(
        hk_center_snapshot(v.center, HK_CENTER_VALUES, 10000, got, NULL, NULL));
    check("center", 8, got, c, v.n);
    check("rest", 8, r->members->residual, rest, v.n);
    // The rest is part of the worker's checkpoint.
    hk_name_map *map;
    assert_ok(hk_name_map_create(&map));
    assert_ok(v.center->ops->worker_variables(v.center, m, map));
    const hk_named *const named =
        hk_name_map_find(map, "exchange_residual/embedding");
    assert_non_null(named);
    assert_memory_equal(named->data,
                        rest + hk_layout_find(v.layout, "embedding")->offset,
                        ROWS * DIM * sizeof(float));
    hk_name_map_destroy(map);
    for (size_t i = 0; i < HKI_COUNT(all); i++)
        hki_free(*all[i]);
    close_venue(&v);
}

static void test_compression(void **state) {
    (void)state;
    compressed(HK_COMPRESS_BF16, false);
    compressed(HK_COMPRESS_INT8, false);
    compressed(HK_COMPRESS_INT8, true);
}

// Encodings of everything that can go wrong.
static void test_encodings(void **state) {
    (void)state;
    const hki_encoding_kernels *const k = hki_encoding_kernels_pick();
    const hki_exchange_kernels *arithmetic;
    assert_ok(hki_exchange_kernels_pick(HK_ISA_AUTO, "test", &arithmetic));
    enum { N = 600 };
    float d[N], back[N];
    uint8_t bytes[N * 4];
    static const float odd[] = {0,      -0.0f, 1e-45f, 3e38f, -3e38f,
                                1e-38f, 127,   -1,     0.5f};
    for (int form = HKI_ENC_BF16; form <= HKI_ENC_INT8; form++) {
        for (int i = 0; i < N; i++)
            d[i] = odd[(size_t)i % HKI_COUNT(odd)];
        hki_encode(k, (hki_encoding)form, d, NULL, bytes, N);
        hki_decode(k, (hki_encoding)form, back, bytes, N);
        assert_memory_equal(d, back, sizeof d); // both sides see the same
        for (int bad = 0; bad < 2; bad++) {
            for (int i = 0; i < N; i++)
                d[i] = 1;
            d[300] = bad ? NAN : INFINITY;
            hki_encode(k, (hki_encoding)form, d, NULL, bytes, N);
            hki_decode(k, (hki_encoding)form, back, bytes, N);
            assert_true(!isfinite(arithmetic->squares(back, N)));
        }
    }
    assert_int_equal(hki_encoded_size(HKI_ENC_INT8, 257), 257 + 8);
    assert_int_equal(hki_encoded_size(HKI_ENC_BF16, 3), 6);
    assert_int_equal(hki_encoded_size(HKI_ENC_PLAIN, 3), 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_compression),
        cmocka_unit_test(test_encodings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
