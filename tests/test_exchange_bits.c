// test_exchange_bits.c - the bits of exchanges: every method and every outer
// optimizer gives the same values over each way to a center, and the values
// that tests/data/exchange_bits.txt has recorded.
//
// A case is a method, its outer optimizer or a variant, a layout (dense, or
// with a table that has sparse gradients), a compression and an
// instruction-set level. Two workers make the fixed steps of suite_exchange.
// A 64-bit hash covers their values, the center, its average and the counters.
// The same hash is expected
// - with a center in this process: vectors in host memory, on the isolated
//   device and, at level v3, on the emulated GPU (both have fma); not for
//   compressed differences, which exist on the wire only;
// - over every transport, with one and two shards. At the machine's best level
//   the first outer optimizer of each method goes over all ten ways, or with
//   compression over all transports; every other case, of which the wire sees
//   nothing new, goes over one way, which changes from case to case. Below the
//   best level only the first outer optimizers run with compression: the wire
//   uses the best kernels always.
//
// Lines of the file: level, case, hash. A case without a line is checked for
// equality only, and counted. Record a new file with
//
//     test_exchange_bits --record tests/data/exchange_bits.txt
//
// on a machine with every level; a change of the recorded bits needs a reason
// in its commit.
#include "suite_exchange.h"
#include "base/io.h"

#define STEPS 8         // of each worker
#define WINDOW_KIB 64   // smaller allocations than the default
#define MAX_REPORTED 20 // differences that are printed

// ---- cases ------------------------------------------------------------------

typedef struct outer_rule {
    const char *name;
    hk_optimizer_kind kind; // 0: the method's own
    uint32_t centered;
    bool whole_tensors; // needs a center in one process
} outer_rule;

static const outer_rule outer_rules[] = {
    {.name = ""},
    {.name = "+gradient_descent", .kind = HK_OPT_GRADIENT_DESCENT},
    {.name = "+momentum", .kind = HK_OPT_MOMENTUM},
    {.name = "+adagrad", .kind = HK_OPT_ADAGRAD},
    {.name = "+adagrad_da", .kind = HK_OPT_ADAGRAD_DA},
    {.name = "+adadelta", .kind = HK_OPT_ADADELTA},
    {.name = "+adam", .kind = HK_OPT_ADAM},
    {.name = "+adamw", .kind = HK_OPT_ADAMW},
    {.name = "+amsgrad", .kind = HK_OPT_AMSGRAD},
    {.name = "+lazy_adam", .kind = HK_OPT_LAZY_ADAM},
    {.name = "+rmsprop", .kind = HK_OPT_RMSPROP},
    {.name = "+rmsprop_centered", .kind = HK_OPT_RMSPROP, .centered = 1},
    {.name = "+ftrl", .kind = HK_OPT_FTRL},
    {.name = "+proximal_descent", .kind = HK_OPT_PROXIMAL_GRADIENT_DESCENT},
    {.name = "+proximal_adagrad", .kind = HK_OPT_PROXIMAL_ADAGRAD},
    {.name = "+lars", .kind = HK_OPT_LARS, .whole_tensors = true},
    {.name = "+lamb", .kind = HK_OPT_LAMB, .whole_tensors = true},
    {.name = "+lion", .kind = HK_OPT_LION},
};

// Options of workers and connections that change the bits of `elastic`.
typedef struct variant {
    const char *name;
    hk_exchange_order order;
    double rho;
    uint32_t row_period, center_bf16;
    bool wire_only;
} variant;

static const variant variants[] = {
    {.name = ""},
    {.name = "+paper_order", .order = HK_ORDER_PAPER},
    {.name = "+pull", .rho = 0.4},
    {.name = "+touched_rows", .row_period = 3, .wire_only = true},
    {.name = "+bf16_center", .center_bf16 = 1, .wire_only = true},
};

static const char *const compressions[] = {"none", "bf16", "int8"};

typedef struct bits_case {
    const hki_method *method;
    const outer_rule *outer;
    const variant *variant;
    hk_isa isa;
    bool rows;
    hk_diff_coding compression;
    size_t index; // counts the cases of a level
    hk_center_options center;
    hk_optimizer_options outer_options;
    char name[96];
    char where[64]; // the hash is from; "": there is none yet
    uint64_t hash;
} bits_case;

static bool has_outer(const hki_method *m) {
    return m->outer == HKI_OUTER_EXCHANGE || m->outer == HKI_OUTER_ROUND;
}

static bool needs_outer(const hki_method *m) {
    return m->gradients;
}

// The one that goes over all transports.
static bool is_first_rule(const bits_case *c) {
    return c->outer->kind == (needs_outer(c->method) ? HK_OPT_MOMENTUM : 0);
}

static bool exists(const bits_case *c) {
    if (c->variant->name[0] != '\0' &&
        (c->method->id != HK_METHOD_ELASTIC || c->outer->kind != 0))
        return false;
    if (c->variant->row_period > 0 && !c->rows)
        return false;
    return c->outer->kind == 0 ? !needs_outer(c->method) : has_outer(c->method);
}

// At the best level the center takes the method's own outer optimizer by
// itself; below it has to be told the level.
static void choose_outer(bits_case *c) {
    hk_optimizer_options *const o = &c->outer_options;
    c->center.outer = NULL;
    if (c->method->outer_rate == 0 && !needs_outer(c->method))
        return;
    if (c->outer->kind == 0 && c->isa == hki_isa_best())
        return;
    if (c->outer->kind == 0) {
        assert_ok(hk_method_outer(c->method->id, c->center.workers, o));
    } else {
        hk_optimizer_options_init(o, sizeof *o, c->outer->kind);
        o->learning_rate = 0.07;
        o->momentum = 0.6;
        o->l1 = 0.001;
        o->l2 = 0.02;
        o->weight_decay = 0.01;
        o->centered = c->outer->centered;
    }
    o->isa = c->isa;
    c->center.outer = o;
}

static void name_case(bits_case *c) {
    suite_exchange_options(c->method->id, &c->center, &c->outer_options);
    c->center.isa = c->isa;
    c->center.chunk_kib = 2; // two blocks of int8
    choose_outer(c);
    snprintf(c->name, sizeof c->name, "%s %s%s%s/%s/%s", hki_isa_name(c->isa),
             c->method->name, c->outer->name, c->variant->name,
             c->rows ? "rows" : "dense", compressions[c->compression]);
    c->where[0] = '\0';
}

// ---- hashes -----------------------------------------------------------------

static void hash_floats(uint64_t *h, const bits_case *c, const float *x,
                        size_t n) {
    for (size_t i = 0; x != NULL && i < n; i++)
        if (!isfinite(x[i]))
            fail_msg("%s: element %zu is not finite", c->name, i);
    if (x != NULL)
        *h = hki_hash(*h, x, n * sizeof *x);
}

static void hash_center(uint64_t *h, const outcome *o) {
    const uint64_t counters[] = {(uint64_t)o->side,
                                 o->info.version,
                                 o->info.exchanges,
                                 o->info.stale,
                                 o->info.skipped_chunks,
                                 o->info.joins,
                                 (uint64_t)o->info.global_step};
    *h = hki_hash(*h, counters, sizeof counters);
}

static void hash_worker(uint64_t *h, const hk_elastic_stats *s) {
    const uint64_t counters[] = {(uint64_t)s->local_step, s->exchanges,
                                 s->dropped, s->skipped_chunks};
    const double rates[] = {s->moving_rate, s->staleness_mean,
                            s->staleness_max};
    *h = hki_hash(*h, counters, sizeof counters);
    *h = hki_hash(*h, rates, sizeof rates);
}

static uint64_t hash_of(const bits_case *c, const outcome *o) {
    uint64_t h = HKI_HASH_INIT;
    for (size_t i = 0; i < 2; i++)
        hash_floats(&h, c, o->x[i], o->n);
    hash_floats(&h, c, o->center, o->n);
    hash_floats(&h, c, o->average, o->n);
    hash_center(&h, o);
    for (size_t i = 0; i < 2; i++)
        hash_worker(&h, &o->stats[i]);
    return h;
}

// ---- recorded hashes --------------------------------------------------------

static const char *record_path; // NULL: compare
static hki_buf recorded;        // lines; ends with a NUL
static hki_buf lines;           // to be recorded

static struct { int runs, cases, without_line, wrong; } count;

static void report(const bits_case *c, const char *where, uint64_t h,
                   const char *other, uint64_t expected) {
    if (++count.wrong <= MAX_REPORTED)
        print_error("%s: %016llx %s, %016llx %s\n", c->name,
                    (unsigned long long)h, where, (unsigned long long)expected,
                    other);
}

// False: no line.
static bool find_line(const char *name, uint64_t *hash) {
    char key[112];
    snprintf(key, sizeof key, "\n%s ", name);
    const char *const at = strstr((const char *)recorded.data, key);
    if (at == NULL)
        return false;
    *hash = strtoull(at + strlen(key), NULL, 16);
    return true;
}

static void check_line(const bits_case *c) {
    uint64_t expected;
    count.cases++;
    if (record_path != NULL)
        assert_ok(hki_buf_printf(&lines, "%s %016llx\n", c->name,
                                 (unsigned long long)c->hash));
    else if (!find_line(c->name, &expected))
        count.without_line++;
    else if (expected != c->hash)
        report(c, c->where, c->hash, "recorded", expected);
}

// ---- ways to the center -----------------------------------------------------

static hk_key key;

static void run_at(bits_case *c, const char *where, const place *p) {
    const exchange_plan plan = {.center = &c->center,
                                .rows = c->rows,
                                .steps = STEPS,
                                .order = c->variant->order,
                                .rho = c->variant->rho};
    outcome o;
    suite_exchange_run(p, &plan, &o);
    const uint64_t h = hash_of(c, &o);
    suite_exchange_free(&o);
    count.runs++;
    if (c->where[0] != '\0') {
        if (h != c->hash)
            report(c, where, h, c->where, c->hash);
        return;
    }
    snprintf(c->where, sizeof c->where, "%s", where);
    c->hash = h;
}

static void run_in_process(bits_case *c) {
    run_at(c, "in process", &(place){0});
    run_at(c, "on the isolated device", &(place){.device = "apart"});
    if (c->isa == HK_ISA_V3)
        run_at(c, "on the emulated GPU", &(place){.device = "cuda-played"});
    if (c->method->id != HK_METHOD_ELASTIC)
        return;
    run_at(c, "without locking", &(place){.no_locking = true});
    c->center.check = 1;
    run_at(c, "with checks", &(place){0});
    c->center.check = 0;
}

static const char *const transports[] = {"inproc", "unix", "shm", "tcp", "tls"};

#define WAYS (2 * HKI_COUNT(transports)) // with one and two shards

// Workers read the center's memory there: its values are not rounded.
static bool is_shared(size_t way) {
    return strcmp(transports[way / 2], "shm") == 0;
}

static void run_served(bits_case *c, size_t way) {
    const char *const scheme = transports[way / 2];
    const bool tls = strcmp(scheme, "tls") == 0;
    const place p = {.scheme = scheme,
                     .n_shards = 1 + (uint32_t)way % 2,
                     .key = tls ? &key : NULL,
                     .compression = c->compression,
                     .center_bf16 = c->variant->center_bf16,
                     .row_period = c->variant->row_period,
                     .window_kib = WINDOW_KIB};
    char where[64];
    snprintf(where, sizeof where, "over %s, %u shards", scheme, p.n_shards);
    run_at(c, where, &p);
}

// The i-th way of a case: compressed, every transport with one number of
// shards, else all ways.
static size_t nth_way(const bits_case *c, size_t i) {
    if (c->compression == HK_COMPRESS_NONE)
        return (c->index + i) % WAYS;
    const size_t transport = (c->index / 3 + i) % HKI_COUNT(transports);
    return 2 * transport + (c->index / 6 + i) % 2;
}

static void run_over_transports(bits_case *c) {
    const bool all = c->isa == hki_isa_best() && is_first_rule(c);
    const size_t most = c->compression == HK_COMPRESS_NONE ? WAYS : WAYS / 2;
    for (size_t i = 0; i < most && (all || i == 0 || c->where[0] == '\0');
         i++) {
        const size_t way = nth_way(c, i);
        if (c->variant->center_bf16 == 0 || !is_shared(way))
            run_served(c, way);
    }
}

static void run_case(bits_case *c) {
    if (c->compression == HK_COMPRESS_NONE && !c->variant->wire_only)
        run_in_process(c);
    if (!c->outer->whole_tensors)
        run_over_transports(c);
    if (c->where[0] != '\0')
        check_line(c);
}

// ---- all cases of a level ---------------------------------------------------

static void run_compressions(bits_case *c) {
    for (int k = HK_COMPRESS_NONE; k <= HK_COMPRESS_INT8; k++) {
        if (k != HK_COMPRESS_NONE && c->isa != hki_isa_best() &&
            !is_first_rule(c))
            continue;
        c->compression = (hk_diff_coding)k;
        c->index++;
        name_case(c);
        run_case(c);
    }
}

static void run_method(bits_case *c) {
    for (size_t o = 0; o < HKI_COUNT(outer_rules); o++)
        for (size_t v = 0; v < HKI_COUNT(variants); v++)
            for (int rows = 0; rows < 2; rows++) {
                c->outer = &outer_rules[o];
                c->variant = &variants[v];
                c->rows = rows;
                if (exists(c))
                    run_compressions(c);
            }
}

static void run_level(hk_isa isa) {
    bits_case c = {.isa = isa};
    if (isa > hki_isa_best())
        skip();
    memset(&count, 0, sizeof count);
    for (int m = HK_METHOD_ELASTIC; hk_method_name((hk_method)m) != NULL; m++) {
        c.method = hki_method_get((hk_method)m);
        run_method(&c);
    }
    print_message("%s: %d cases, %d runs\n", hki_isa_name(isa), count.cases,
                  count.runs);
    if (count.without_line > 0)
        print_error("%s: %d of %d cases have no recorded bits: only compared "
                    "with each other\n",
                    hki_isa_name(isa), count.without_line, count.cases);
    if (count.wrong > 0)
        fail_msg("%s: %d differences", hki_isa_name(isa), count.wrong);
}

static void test_base(void **state) {
    (void)state;
    run_level(HK_ISA_BASE);
}

static void test_v3(void **state) {
    (void)state;
    run_level(HK_ISA_V3);
}

static void test_v4(void **state) {
    (void)state;
    run_level(HK_ISA_V4);
}

// ---- the file ---------------------------------------------------------------

#define DATA HK_TEST_DATA "/exchange_bits.txt"
#define MAX_BYTES (1 << 20)

static int setup(void **state) {
    HKI_FREED uint8_t *bytes = NULL;
    size_t size;
    assert_ok(hk_key_generate(NULL, &key));
    if (record_path == NULL) {
        assert_ok(hki_file_read_all(DATA, MAX_BYTES, &bytes, &size));
        assert_ok(hki_buf_add(&recorded, bytes, size));
        assert_ok(hki_buf_add(&recorded, "", 1));
    }
    return suite_exchange_setup(state);
}

static int teardown(void **state) {
    hki_buf_deinit(&recorded);
    hki_buf_deinit(&lines);
    return suite_exchange_teardown(state);
}

// After the levels, and only if all transports agree.
static void test_record(void **state) {
    (void)state;
    if (record_path == NULL)
        skip();
    assert_int_equal(count.wrong, 0);
    FILE *const f = fopen(record_path, "w");
    assert_non_null(f);
    fputs("# Bits of exchanges: level, case, hash. tests/test_exchange_bits.c "
          "records them.\n",
          f);
    fwrite(lines.data, 1, lines.size, f);
    assert_int_equal(fclose(f), 0);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base),
        cmocka_unit_test(test_v3),
        cmocka_unit_test(test_v4),
        cmocka_unit_test(test_record),
    };
    if (argc == 3 && strcmp(argv[1], "--record") == 0)
        record_path = argv[2];
    else if (argc > 1)
        return 2;
    return cmocka_run_group_tests(tests, setup, teardown);
}
