// test_center_file.c - the center file and what is done with it: damage,
// recovery of every kind of half-done change, units that come twice.
#include "cluster_bed.h"
#include "abort_util.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include "base/io.h"
#include "center/center_sections.h"

static char folder[64], path[128];

#define ROWS 60
#define DIM 8

static hk_layout *make_layout(void) {
    const hk_layout_item items[] = {
        {.name = "kernel",
         .shape = hk_shape_make(1, (int64_t[]){700}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE},
        {.name = "table",
         .shape = hk_shape_make(2, (int64_t[]){ROWS, DIM}),
         .dtype = HK_F32,
         .kind = HK_TRAINABLE,
         .sparse = 1},
        {.name = "count",
         .shape = hk_shape_make(1, (int64_t[]){3}),
         .dtype = HK_I32,
         .kind = HK_STATE_COPY},
    };
    hk_layout *l;
    assert_ok(hk_layout_create(items, HKI_COUNT(items), &l));
    return l;
}

static const hk_share share[] = {HK_SHARE_EXCHANGE, HK_SHARE_EXCHANGE,
                                 HK_SHARE_COPY};

static void options(hki_shard_options *o, hk_method method) {
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.chunk_kib = 1;
    center.max_workers = 3;
    center.method = method;
    *o = (hki_shard_options){.name = "test",
                             .path = path,
                             .n_shards = 1,
                             .max_norm = 1e6,
                             .lease_ms = 1000};
    assert_ok(hki_center_options_check(&center, &o->center));
}

static hki_shard *create(hki_shard_options *o) {
    hk_layout *const l = make_layout();
    hki_shard *s;
    (void)unlink(path);
    assert_ok(hki_shard_create(o, l, share, &s));
    hk_layout_release(l);
    hki_shard_assigned(s, 0, 42);
    return s;
}

static hki_shard *reopen(hki_shard *s, hki_shard_options *o) {
    hki_shard *again;
    hki_shard_close(s);
    assert_ok(hki_shard_open(o, &again));
    return again;
}

static hki_claim join(hki_shard *s, int32_t task) {
    const hki_msg_join m = {.task = task};
    hki_msg_joined out;
    hki_claim c;
    assert_ok(hki_shard_join(s, &m, "test", &c, &out));
    return c;
}

static const hki_patience no_wait = {.deadline_ns = 0};

static hki_shard_run begin(hki_shard *s, hki_claim *c, uint64_t exchange,
                           uint32_t flags, uint32_t last) {
    const hki_msg_begin m = {.rate = 0.5, .flags = flags, .last = last};
    hki_shard_run r = {.scratch = NULL};
    assert_ok(hki_shard_begin(s, c, exchange, &m, &no_wait, &r));
    return r;
}

// ---- units ------------------------------------------------------------------

static void test_once(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hki_shard *s = create(&o);
    static float ones[256];
    for (size_t i = 0; i < HKI_COUNT(ones); i++)
        ones[i] = 1;
    hki_claim c = join(s, 1);
    hki_shard_run r = begin(s, &c, 1, HKI_BEGIN_BEFORE, s->n_chunks);
    assert_ok(hki_shard_apply(s, &r, 0, ones, false));
    assert_ok(hki_shard_apply(s, &r, 0, ones, false)); // again
    assert_true(s->values[0] == 1);
    assert_int_equal(s->repeated, 1);
    assert_status(hki_shard_apply(s, &r, 2, ones, false), HK_E_DATA);
    assert_status(hki_shard_apply(s, &r, 99, ones, false), HK_E_DATA);
    assert_ok(hki_shard_apply(s, &r, 1, ones, false));
    // The same over another connection, after a restart as well.
    s = reopen(s, &o);
    const hki_msg_resume m = {.run_id = 42, .id = 1, .incarnation = 1};
    hki_msg_joined at;
    assert_ok(hki_shard_resume(s, &m, "test", &c, &at));
    assert_int_equal(at.exchange, 1);
    assert_int_equal(at.applied, 2);
    const hki_msg_begin wrong = {.rate = 0.5,
                                 .flags = HKI_BEGIN_BEFORE,
                                 .first_up = 1,
                                 .last = s->n_chunks};
    assert_status(hki_shard_begin(s, &c, 1, &wrong, &no_wait, &r), HK_E_DATA);
    hki_msg_begin right = wrong;
    right.first_up = 2;
    assert_ok(hki_shard_begin(s, &c, 1, &right, &no_wait, &r));
    assert_ok(hki_shard_apply(s, &r, 2, ones, false));
    hk_center_info info;
    hki_shard_info(s, &info);
    assert_int_equal(info.exchanges, 1); // begun twice, counted once
    // A newer connection, then a newer incarnation: the old ones are out.
    hki_claim newer;
    assert_ok(hki_shard_resume(s, &m, "test", &newer, &at));
    assert_status(hki_shard_apply(s, &r, 3, ones, false), HK_E_STATE);
    (void)join(s, 1);
    assert_status(hki_shard_resume(s, &m, "test", &newer, &at), HK_E_STATE);
    assert_status(hki_shard_check(s, &newer, "exchange"), HK_E_STATE);
    // Exchange numbers do not go back.
    c = join(s, 1);
    assert_status(hki_shard_begin(s, &c, 1, &wrong, &no_wait, &r), HK_E_DATA);
    hki_shard_close(s);
}

// A worker that has lost its connection sends the first values over another
// one; the end of the older one is noticed later.
static void test_first_values_again(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hk_layout *const l = make_layout();
    hki_shard *s;
    (void)unlink(path);
    assert_ok(hki_shard_create(&o, l, share, &s));
    hk_layout_release(l);
    hki_claim older = join(s, 0), other = join(s, 1), newer;
    const hki_msg_resume m = {.id = 0, .incarnation = older.incarnation};
    hki_msg_joined at;
    bool granted;
    assert_ok(hki_shard_init(s, &older, &no_wait, &granted));
    assert_true(granted);
    assert_ok(hki_shard_resume(s, &m, "test", &newer, &at));
    assert_ok(hki_shard_init(s, &newer, &no_wait, &granted));
    assert_true(granted);
    assert_status(hki_shard_init(s, &older, &no_wait, &granted), HK_E_STATE);
    assert_status(hki_shard_hold(s, &older), HK_E_STATE);
    hki_shard_refuse(s, &older);
    assert_status(hki_shard_init(s, &other, &no_wait, &granted), HK_E_TIMEOUT);
    assert_status(hki_shard_commit(s, &older, 42), HK_E_STATE);
    assert_ok(hki_shard_hold(s, &newer));
    assert_ok(hki_shard_commit(s, &newer, 42));
    assert_ok(hki_shard_init(s, &other, &no_wait, &granted));
    assert_false(granted);
    hki_shard_close(s);
}

// Runs that a shard gives out are newer each time, also where the counted part
// of their numbers ends.
static void test_runs(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hki_shard *const s = create(&o);
    uint64_t last = hki_shard_new_run(s);
    for (int i = 0; i < 100; i++) {
        const uint64_t next = hki_shard_new_run(s);
        assert_true(hki_run_is_older(last, next));
        assert_false(hki_run_is_older(next, last));
        assert_false(hki_run_is_older(next, next));
        last = next;
    }
    s->newest_run |= 0xffff;
    const uint64_t next = hki_shard_new_run(s);
    assert_false(hki_run_is_older(next, last));
    assert_true(hki_run_is_older(next, hki_shard_new_run(s)));
    hki_shard_close(s);
}

// ---- recovery ---------------------------------------------------------------

typedef struct stop {
    hki_point at;
    int count;
    uint8_t *copy; // of the whole file, as it was at that moment
    size_t bytes;
} stop;

// The file at the moment the process "dies".
static void take_picture(void *user, hki_point p) {
    stop *const t = user;
    if (p != t->at || t->copy != NULL || --t->count > 0)
        return;
    assert_ok(hki_file_read_all(path, SIZE_MAX - 1, &t->copy, &t->bytes));
}

static void write_picture(const uint8_t *copy, size_t bytes) {
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(copy, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static void fill(float *v, size_t n, float value) {
    for (size_t i = 0; i < n; i++)
        v[i] = value;
}

// The values that somebody who only looks at the file finds, which leaves it as
// it is.
static float *look(const uint8_t *picture, size_t bytes) {
    hki_shard *s;
    float *values;
    assert_ok(hki_shard_view(path, &s));
    assert_ok(hki_alloc_array((size_t)s->n, sizeof *values, &values));
    memcpy(values, s->values, (size_t)s->n * sizeof *values);
    hki_shard_close(s);
    uint8_t *now;
    size_t size;
    assert_ok(hki_file_read_all(path, bytes, &now, &size));
    assert_int_equal(size, bytes);
    assert_memory_equal(now, picture, bytes);
    hki_free(now);
    return values;
}

// Dies at every step of the third chunk's change: the chunk is as it was
// before, or as it is afterwards, and the cursor says which.
static void die_everywhere(hk_method method, bool rows) {
    for (int p = HKI_POINT_SLOT; p <= HKI_POINT_COMMITTED; p++) {
        hki_shard_options o;
        stop t = {.at = (hki_point)p, .count = rows ? 1 : 3};
        options(&o, method);
        o.probe = take_picture;
        o.probe_user = &t;
        hki_shard *s = create(&o);
        hki_claim c = join(s, 0);
        static float d[1024];
        fill(d, HKI_COUNT(d), 5);
        const uint32_t ids[] = {1, 2, 40, 59};
        const hki_table table = s->partition.table[0];
        if (rows) {
            hki_shard_run r = begin(s, &c, 1, HKI_BEGIN_BEFORE | HKI_BEGIN_ROWS,
                                    s->n_dense + 1);
            t.count = 1 << 30;
            for (uint32_t u = 0; u < s->n_dense; u++)
                assert_ok(hki_shard_apply(s, &r, u, d, false));
            t.count = 1;
            const hki_row_batch batch = {.count = 4, .ids = ids, .up = d};
            assert_ok(hki_shard_apply_rows(s, &r, s->n_dense, &batch));
        } else {
            hki_shard_run r = begin(s, &c, 1, HKI_BEGIN_BEFORE, s->n_chunks);
            for (uint32_t u = 0; u < 4; u++)
                assert_ok(hki_shard_apply(s, &r, u, d, false));
        }
        assert_non_null(t.copy);
        const size_t unit = rows ? s->n_dense : 2;
        hki_shard_close(s); // what it wrote at its end is replaced
        write_picture(t.copy, t.bytes);
        float *const seen = look(t.copy, t.bytes);
        hki_free(t.copy);
        o.probe = NULL;
        hki_shard *again;
        assert_ok(hki_shard_open(&o, &again));
        assert_memory_equal(seen, again->values,
                            (size_t)again->n * sizeof *seen);
        hki_free(seen);
        const uint32_t applied = HKI_CURSOR_UNITS(again->file.worker[0].cursor);
        const bool done = p == HKI_POINT_COMMITTED;
        assert_int_equal(applied, unit + done);
        assert_int_equal(again->recovered,
                         p >= HKI_POINT_TAGGED && !done ? 1 : 0);
        const float expected = done ? 5.0f : 0.0f;
        if (rows) {
            for (uint32_t i = 0; i < 4; i++)
                assert_true(*hki_shard_at(again, 0,
                                          table.offset + ids[i] * DIM + DIM -
                                              1) == expected);
            assert_true(*hki_shard_at(again, 0, table.offset) == 0);
        } else {
            const hki_chunk_range *const k = &again->chunk[2];
            for (int64_t i = k->begin; i < k->end; i++)
                assert_true(*hki_shard_at(again, 0, i) == expected);
            assert_true(*hki_shard_at(again, 0, again->chunk[1].begin) == 5);
            const uint64_t updates = again->file.chunk[2].updates;
            assert_int_equal(updates, done);
            if (method == HK_METHOD_DOWNPOUR_MOVING && !done)
                assert_true(*hki_shard_at(again, 1, k->begin) == 0);
        }
        hki_shard_close(again);
    }
}

static void test_recovery(void **state) {
    (void)state;
    die_everywhere(HK_METHOD_ELASTIC, false);
    die_everywhere(HK_METHOD_DOWNPOUR_MOVING, false);
    die_everywhere(HK_METHOD_ELASTIC, true);
}

// An outer optimizer's slots come back with the values.
static void test_outer_state(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_DILOCO_ASYNC);
    hki_shard *s = create(&o);
    const hki_claim c = join(s, 0);
    static float d[1024], expected[1200];
    fill(d, HKI_COUNT(d), 1);
    float *scratch;
    assert_ok(hki_zalloc_array(2 * hki_shard_room(s), sizeof(float), &scratch));
    for (uint64_t e = 1; e <= 4; e++) {
        const hki_msg_begin m = {.rate = 1, .last = s->n_chunks};
        hki_shard_run r = {.scratch = scratch};
        if (e == 3) { // twice two exchanges are four
            s = reopen(s, &o);
            const hki_msg_resume back = {.run_id = 42, .incarnation = 1};
            hki_msg_joined at;
            hki_claim again;
            assert_ok(hki_shard_resume(s, &back, "test", &again, &at));
            assert_ok(hki_shard_begin(s, &again, e, &m, &no_wait, &r));
        } else {
            hki_claim now = {
                .id = 0, .incarnation = 1, .session = s->seat[0].session};
            assert_ok(hki_shard_begin(s, &now, e, &m, &no_wait, &r));
        }
        for (uint32_t u = 0; u < s->n_chunks; u++)
            assert_ok(hki_shard_apply(s, &r, u, d, false));
    }
    (void)c;
    // Nesterov momentum 0.9 at rate 0.7, gradient 1, four steps.
    float v = 0, x = 0;
    for (int i = 0; i < 4; i++) {
        v = v * 0.9f + 1;
        x -= 0.7f * (1 + 0.9f * v);
    }
    for (size_t i = 0; i < 700; i++)
        expected[i] = x;
    hk_test_floats("values", s->values, expected, 700, 0, 1e-6);
    hki_free(scratch);
    hki_shard_close(s);
}

// ---- no free slot -----------------------------------------------------------

// Changes of the center itself that hold every undo slot, and change nothing.
static void hold_slots(hki_shard *s, uint32_t slots[HKI_UNDO_SLOTS]) {
    const uint32_t self = s->opt.max_workers;
    const uint64_t tag = hki_load64(&s->file.worker[self].cursor) + 1;
    s->undo_wait_ns = 1000000;
    hki_shard_lock_chunk(s, 0);
    for (uint32_t i = 0; i < HKI_UNDO_SLOTS; i++)
        assert_ok(hki_undo_open(s, self, tag, 0, 1, &slots[i]));
    hki_shard_unlock_chunk(s, 0);
}

static void free_slots(hki_shard *s, const uint32_t slots[HKI_UNDO_SLOTS]) {
    for (uint32_t i = 0; i < HKI_UNDO_SLOTS; i++)
        hki_undo_restore(s, slots[i]);
    assert_int_equal(s->n_free, HKI_UNDO_SLOTS);
}

// A unit that gets no slot in time has not happened, and may come again.
static void test_no_free_slot(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hki_shard *const s = create(&o);
    static float d[1024];
    fill(d, HKI_COUNT(d), 5);
    const uint32_t ids[] = {1, 2}, last = s->n_dense + 1;
    const hki_row_batch batch = {.count = 2, .ids = ids, .up = d};
    uint32_t slots[HKI_UNDO_SLOTS];
    hki_claim c = join(s, 0);
    hki_shard_run r = begin(s, &c, 1, HKI_BEGIN_BEFORE | HKI_BEGIN_ROWS, last);
    for (uint32_t u = 0; u < last; u++) {
        const bool rows = u == s->n_dense;
        hold_slots(s, slots);
        assert_status(rows ? hki_shard_apply_rows(s, &r, u, &batch)
                           : hki_shard_apply(s, &r, u, d, false),
                      HK_E_TIMEOUT);
        assert_non_null(strstr(hk_last_error(), "test: all 8 undo records"));
        assert_int_equal(s->file.worker[0].cursor, HKI_CURSOR(1, u));
        free_slots(s, slots);
        assert_ok(rows ? hki_shard_apply_rows(s, &r, u, &batch)
                       : hki_shard_apply(s, &r, u, d, false));
    }
    for (int64_t i = 0; i < 700; i++)
        assert_true(s->values[i] == 5);
    assert_true(*hki_shard_at(s, 0, s->partition.table[0].offset + DIM) == 5);
    hki_shard_close(s);
}

// The same for a round: it is closed by the next attempt, and once.
static void test_no_slot_for_a_round(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_MODEL_AVERAGE);
    hki_shard *const s = create(&o);
    static float x[1024];
    fill(x, HKI_COUNT(x), 3);
    uint32_t slots[HKI_UNDO_SLOTS];
    hki_claim c = join(s, 0);
    hki_shard_run r = begin(s, &c, 1, HKI_BEGIN_ROUND, s->n_chunks);
    for (uint32_t u = 0; u < s->n_chunks; u++)
        assert_ok(hki_shard_apply(s, &r, u, x, false));
    hold_slots(s, slots);
    assert_status(hki_shard_end(s, &r, &no_wait), HK_E_TIMEOUT);
    assert_non_null(strstr(hk_last_error(), "test: all 8 undo records"));
    assert_true(s->values[0] == 0);
    free_slots(s, slots);
    const hki_msg_begin again = {.rate = 0.5,
                                 .flags = HKI_BEGIN_ROUND,
                                 .first_up = s->n_chunks,
                                 .last = s->n_chunks};
    assert_ok(hki_shard_begin(s, &c, 1, &again, &no_wait, &r));
    assert_ok(hki_shard_end(s, &r, &no_wait));
    assert_int_equal(hki_round_number(s), 1);
    for (int64_t i = 0; i < 700; i++)
        assert_true(s->values[i] == 3);
    hki_shard_close(s);
}

// ---- files ------------------------------------------------------------------

static void test_damage(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hki_shard *s = create(&o);
    const size_t bytes = s->file.bytes;
    // Offsets that docs/formats/center-file.md writes down.
    assert_int_equal(offsetof(hki_center_head, check), 176);
    assert_int_equal(offsetof(hki_center_head, clean), 184);
    assert_int_equal(s->file.head->layout_at, 4096);
    assert_int_equal(s->file.head->vector_at % 4096, 0);
    assert_int_equal(sizeof(hki_undo_head), 96);
    hki_shard *other = NULL;
    assert_status(hki_shard_open(&o, &other), HK_E_EXISTS); // in use
    hki_shard_close(s);
    uint8_t *copy;
    assert_ok(hki_alloc_array(bytes, 1, &copy));
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(copy, 1, bytes, f), bytes);
    fclose(f);
    // Every byte of the part that never changes, and of the layout.
    for (size_t i = 0; i < 4096 + 60; i = i == 183 ? 4096 : i + 1) {
        f = fopen(path, "r+b");
        assert_int_equal(fseek(f, (long)i, SEEK_SET), 0);
        fputc(copy[i] ^ 0x10, f);
        fclose(f);
        const hk_status status = hki_shard_open(&o, &other);
        if (status != HK_E_DATA && status != HK_E_UNSUPPORTED &&
            status != HK_E_INVALID_ARG && status != HK_E_DTYPE &&
            status != HK_E_SHAPE && status != HK_E_OVERFLOW)
            fail_msg("byte %zu damaged: %s (%s)", i, hk_status_string(status),
                     hk_last_error());
        f = fopen(path, "r+b");
        assert_int_equal(fseek(f, (long)i, SEEK_SET), 0);
        fputc(copy[i], f);
        fclose(f);
    }
    assert_ok(hki_shard_open(&o, &other)); // unharmed again
    hki_shard_close(other);
    assert_int_equal(truncate(path, (long)bytes - 1), 0);
    assert_status(hki_shard_open(&o, &other), HK_E_DATA);
    assert_int_equal(truncate(path, 10), 0);
    assert_status(hki_shard_open(&o, &other), HK_E_DATA);
    (void)unlink(path);
    assert_status(hki_shard_open(&o, &other), HK_E_NOT_FOUND);
    hki_free(copy);
}

// An undo slot that speaks of chunks and rows that do not exist.
static void test_bad_slot(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++) {
        hki_shard_options o;
        options(&o, HK_METHOD_ELASTIC);
        hki_shard *s = create(&o);
        hki_undo_head *const u =
            (hki_undo_head *)(void *)hki_center_undo(&s->file, 3);
        *u = (hki_undo_head){.tag = HKI_CURSOR(9, 1), .vectors = 1};
        if (i == 0)
            u->worker = 99;
        else if (i == 1)
            u->chunk = 1000;
        else if (i == 2)
            u->vectors = 8;
        else if (i == 3)
            u->rows = HKI_BATCH_ROWS + 1;
        else
            u->rows = 1, u->table = 7;
        hki_shard_close(s);
        assert_status(hki_shard_open(&o, &s), HK_E_DATA);
        assert_non_null(strstr(hk_last_error(), "undo record 3"));
    }
}

static hk_status create_file(void *user) {
    hki_shard *s;
    (void)unlink(path);
    HKI_TRY(
        hki_shard_create(((void **)user)[0], ((void **)user)[1], share, &s));
    hki_shard_close(s);
    return HK_OK;
}

static hk_status open_file(void *user) {
    hki_shard *s;
    HKI_TRY(hki_shard_open(((void **)user)[0], &s));
    hki_shard_close(s);
    return HK_OK;
}

// ---- for its owner's eyes ---------------------------------------------------

static void write_snapshot(hki_shard *s) {
    hki_shard_copy *cut;
    const hki_patience p = {.deadline_ns = hki_deadline(10000)};
    assert_ok(hki_cut_create(s, HKI_COPY_OWN, &cut));
    assert_ok(hki_shard_cut(s, NULL, &p, cut));
    assert_ok(hki_cut_write(s, cut, 1, false));
    hki_cut_free(s, cut);
}

// ---- sections ---------------------------------------------------------------

static void put(hki_shard *s, const char *tag, uint32_t flags,
                const char *text) {
    assert_ok(hki_section_set(&s->file, tag, flags, text, strlen(text), false));
}

static void check_section(hki_shard *s, const char *tag, const char *text) {
    uint8_t *bytes;
    size_t size;
    assert_ok(hki_section_get(&s->file, tag, &bytes, &size));
    assert_int_equal(size, strlen(text));
    assert_string_equal((const char *)bytes, text);
    hki_free(bytes);
}

static void check_writer(hki_shard *s) {
    char text[48];
    snprintf(text, sizeof text, "hooke %s", hk_version());
    check_section(s, "writer", text);
}

// Bytes [at, at + n) of the file, flipped.
static void flip(uint64_t at, size_t n) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t i = 0; i < n; i++) {
        uint8_t b;
        assert_int_equal(pread(fd, &b, 1, (off_t)(at + i)), 1);
        b ^= 0x40;
        assert_int_equal(pwrite(fd, &b, 1, (off_t)(at + i)), 1);
    }
    close(fd);
}

static void test_sections(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hki_shard *s = create(&o);
    char long_text[5000];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    check_writer(s);
    uint8_t *bytes;
    size_t size;
    assert_status(hki_section_get(&s->file, "plan", &bytes, &size),
                  HK_E_NOT_FOUND);
    // Replaced again and again they take no more room.
    put(s, "plan", 0, "first");
    for (int i = 0; i < 50; i++) {
        put(s, "plan", 0, i % 2 ? "second" : long_text);
        put(s, "term", 0, i % 2 ? "a" : "another one");
    }
    // What is not known here stays as it is, in a snapshot, too.
    write_snapshot(s);
    s = reopen(s, &o);
    check_section(s, "plan", "second");
    check_section(s, "term", "a");
    const uint64_t fixed = s->file.head->file_bytes;
    assert_true(s->file.bytes < fixed + 20000);
    // The newer table is damaged: the one before it counts.
    put(s, "plan", 0, "third");
    hki_shard_close(s);
    hki_center_file f;
    assert_ok(hki_center_file_view(&f, path));
    const hki_section_table *const a = (void *)(f.map + HKI_SECTIONS_AT);
    const hki_section_table *const b =
        (void *)(f.map + HKI_SECTIONS_AT + HKI_SECTIONS_STRIDE);
    const uint64_t newer =
        HKI_SECTIONS_AT +
        (a->generation > b->generation ? 0 : 1) * HKI_SECTIONS_STRIDE;
    const hki_section *const plan =
        &(newer == HKI_SECTIONS_AT ? a : b)->section[7];
    assert_string_equal(plan->tag, "plan");
    const uint64_t plan_at = plan->at;
    hki_center_file_close(&f);
    for (size_t i = 0; i < 16 + 9 * sizeof(hki_section); i++) {
        flip(newer + i, 1);
        assert_ok(hki_shard_open(&o, &s));
        check_section(s, "plan", "second");
        s->file.head = NULL; // leaves it as it is
        hki_shard_close(s);
        flip(newer + i, 1);
    }
    flip(plan_at + 2, 1); // the bytes
    assert_status(hki_shard_open(&o, &s), HK_E_DATA);
    assert_non_null(strstr(hk_last_error(), "section plan is damaged"));
    flip(plan_at + 2, 1);
    flip(HKI_SECTIONS_AT, 2 * HKI_SECTIONS_STRIDE); // both tables
    assert_status(hki_shard_open(&o, &s), HK_E_DATA);
    flip(HKI_SECTIONS_AT, 2 * HKI_SECTIONS_STRIDE);
    // What a later version needs is refused, with both versions.
    assert_ok(hki_shard_open(&o, &s));
    check_section(s, "plan", "third");
    put(s, "writer", 0, "hooke 9.9.9");
    put(s, "fragment", HKI_SECTION_NEEDED, "of something");
    s->file.head = NULL;
    hki_shard_close(s);
    assert_status(hki_shard_open(&o, &s), HK_E_UNSUPPORTED);
    assert_non_null(strstr(hk_last_error(), "has the section fragment"));
    assert_non_null(strstr(hk_last_error(), hk_version()));
    assert_non_null(strstr(hk_last_error(), "hooke 9.9.9"));
    assert_int_equal(unlink(path), 0);
    // The snapshot was whole.
    o.durability = HKI_DURABLE_SNAPSHOT;
    assert_ok(hki_shard_open(&o, &s));
    check_section(s, "plan", "second");
    hki_shard_close(s);
    char snapshot[160];
    snprintf(snapshot, sizeof snapshot, "%s.snapshot", path);
    assert_int_equal(unlink(snapshot), 0);
    // In memory there is nothing to keep.
    o.path = NULL;
    o.durability = HKI_DURABLE_PROCESS;
    s = create(&o);
    put(s, "plan", 0, "first");
    assert_status(hki_section_get(&s->file, "plan", &bytes, &size),
                  HK_E_NOT_FOUND);
    hki_shard_close(s);
}

// The center file of version 0.1 is upgraded in place, whenever the process
// that does it dies.
static void test_version_1(void **state) {
    (void)state;
    char command[400];
    hki_shard_options o;
    hki_center_file f;
    hki_shard *s;
    options(&o, HK_METHOD_ELASTIC);
    (void)unlink(path);
    snprintf(command, sizeof command,
             "gzip -dc '" HK_TEST_DATA "/0.1/center.bin.gz' > '%s' && chmod "
             "600 '%s'",
             path, path);
    assert_int_equal(system(command), 0);
    assert_ok(hki_center_file_view(&f, path));
    assert_int_equal(f.head->version, 1);
    const size_t n = f.head->n_floats;
    float *values;
    assert_ok(hki_alloc_array(n, sizeof *values, &values));
    memcpy(values, f.vector[0], n * sizeof *values);
    o.center.max_workers = f.head->max_workers;
    o.center.chunk_kib = f.head->chunk_floats / 256;
    hki_center_file_close(&f);
    for (int died = 0; died < 4; died++) {
        assert_ok(hki_shard_open(&o, &s));
        assert_int_equal(s->file.head->version, HKI_CENTER_VERSION);
        assert_true(s->file.head->check == hki_center_check(s->file.head));
        assert_memory_equal(s->values, values, n * sizeof *values);
        check_writer(s);
        hki_center_head *const h = s->file.head;
        if (died == 0) // after the table
            h->version = 1;
        if (died < 2) { // after the number
            const uint32_t version = h->version;
            h->version = 1;
            h->check = hki_center_check(h);
            h->version = version;
        }
        const uint64_t whole = h->file_bytes;
        const bool cut = h->version == 1;
        hki_shard_close(s);
        if (cut)
            assert_int_equal(truncate(path, (off_t)whole), 0);
    }
    hki_free(values);
    // One of a version to come.
    flip(12, 1);
    assert_status(hki_shard_open(&o, &s), HK_E_UNSUPPORTED);
    assert_non_null(strstr(hk_last_error(), "format version 66"));
    assert_non_null(strstr(hk_last_error(), "versions up to 2"));
    assert_int_equal(unlink(path), 0);
}

static unsigned mode_of(const char *file) {
    struct stat st;
    assert_int_equal(lstat(file, &st), 0);
    return (unsigned)st.st_mode & 07777;
}

static void write_text(const char *file, const char *text, unsigned mode) {
    FILE *const f = fopen(file, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(file, mode), 0);
}

static void check_text(const char *file, const char *text) {
    char got[64] = "";
    FILE *const f = fopen(file, "r");
    assert_non_null(f);
    assert_non_null(fgets(got, sizeof got, f));
    fclose(f);
    assert_string_equal(got, text);
}

// Center files, snapshots and what is restored from them hold the model: they
// are nobody else's to read, and are never written through a link.
static void test_private(void **state) {
    (void)state;
    char snapshot[160], victim[160], left[160], link_at[160];
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    o.durability = HKI_DURABLE_SNAPSHOT;
    snprintf(snapshot, sizeof snapshot, "%s.snapshot", path);
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(link_at, sizeof link_at, "%s.new", path);
    snprintf(left, sizeof left, "%s/.%s.snapshot" HKI_TEMP_SUFFIX, folder,
             hki_path_name(path));
    const mode_t mask = umask(0);
    write_text(link_at, "what a crash left", 0666);
    hki_shard *s = create(&o);
    assert_int_equal(mode_of(path), 0600);
    write_text(left, "what a crash left", 0666);
    write_snapshot(s);
    assert_int_equal(mode_of(snapshot), 0600);
    hki_shard_close(s);
    // Lost, and restored beside a link that somebody laid out.
    write_text(victim, "precious", 0644);
    assert_int_equal(symlink(victim, link_at), 0);
    assert_int_equal(unlink(path), 0);
    assert_ok(hki_shard_open(&o, &s));
    hki_shard_close(s);
    assert_int_equal(mode_of(path), 0600);
    check_text(victim, "precious");
    assert_int_equal(unlink(link_at), 0);
    // A snapshot that is a link is not ours.
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(snapshot, victim), 0);
    assert_int_equal(symlink(victim, snapshot), 0);
    assert_status(hki_shard_open(&o, &s), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "is a symbolic link"));
    assert_int_equal(unlink(snapshot), 0);
    assert_int_equal(unlink(victim), 0);
    umask(mask);
}

// A file that another user left open for himself does not get the model.
static void test_of_another_user(void **state) {
    (void)state;
    char left[160];
    hki_file *f;
    if (geteuid() != 0)
        skip(); // cannot make one
    snprintf(left, sizeof left, "%s/.mine" HKI_TEMP_SUFFIX, folder);
    write_text(left, "", 0666);
    assert_int_equal(chown(left, 4321, 4321), 0);
    snprintf(left, sizeof left, "%s/mine", folder);
    assert_status(hki_file_create_private(left, &f), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "user 4321"));
}

static void test_memory(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_DILOCO);
    hk_layout *const l = make_layout();
    void *both[2] = {&o, l};
    hk_test_alloc_failures("create", create_file, both);
    hki_shard_close(create(&o));
    hk_test_alloc_failures("open", open_file, both);
    hk_layout_release(l);
}

// A shard that is larger than allowed.
static void test_limits(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    o.max_bytes = 1000;
    hk_layout *const l = make_layout();
    hki_shard *s = NULL;
    (void)unlink(path);
    assert_status(hki_shard_create(&o, l, share, &s), HK_E_RANGE);
    hk_layout_release(l);
    hk_center_options center;
    hk_center_options_init(&center, sizeof center);
    center.max_workers = HKI_MAX_SEATS;
    assert_ok(hki_center_options_check(&center, &o.center));
    center.max_workers++;
    assert_status(hki_center_options_check(&center, &o.center),
                  HK_E_INVALID_ARG);
    hki_durability d;
    int64_t ms;
    static const struct {
        const char *text;
        hk_status status;
        hki_durability d;
        int64_t ms;
    } cases[] = {
        {NULL, HK_OK, HKI_DURABLE_PROCESS, 0},
        {"process", HK_OK, HKI_DURABLE_PROCESS, 0},
        {"always", HK_OK, HKI_DURABLE_ALWAYS, 0},
        {"snapshot:30", HK_OK, HKI_DURABLE_SNAPSHOT, 30000},
        {"snapshot:0.5", HK_OK, HKI_DURABLE_SNAPSHOT, 500},
        {"snapshot:", HK_E_INVALID_ARG, 0, 0},
        {"snapshot:0", HK_E_INVALID_ARG, 0, 0},
        {"snapshot:1s", HK_E_INVALID_ARG, 0, 0},
        {"snapshot:nan", HK_E_INVALID_ARG, 0, 0},
        {"never", HK_E_INVALID_ARG, 0, 0},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_status got =
            hki_durability_parse(cases[i].text, "test", &d, &ms);
        if (got != cases[i].status ||
            (got == HK_OK && (d != cases[i].d || ms != cases[i].ms)))
            fail_msg("durability %s", cases[i].text);
    }
}

// One call for the file, or one allocation, fails while a shard is made.
static bool made_at_once(hki_shard_options *o, hk_layout *l, uint64_t nth,
                         bool of_memory) {
    hki_shard *s;
    if (of_memory)
        hki_alloc_fail_at(nth);
    else
        hki_io_fail_at(nth, HKI_IO_ONE_FAILS, ENOSPC);
    const hk_status status = hki_shard_create(o, l, share, &s);
    const bool hit = of_memory ? hki_alloc_fault_hit() : hki_io_fault_hit();
    hki_io_fail_at(0, HKI_IO_ONE_FAILS, 0);
    hki_alloc_fail_at(0);
    if (status != HK_OK) { // nothing is in the way of the next attempt
        assert_int_not_equal(access(path, F_OK), 0);
        assert_ok(hki_shard_create(o, l, share, &s));
    }
    hki_shard_close(s);
    assert_int_equal(unlink(path), 0);
    return !hit;
}

static void test_made_again(void **state) {
    (void)state;
    hki_shard_options o;
    hk_layout *const l = make_layout();
    options(&o, HK_METHOD_DILOCO);
    (void)unlink(path);
    for (int of_memory = 0; of_memory < 2; of_memory++)
        for (uint64_t nth = 1; !made_at_once(&o, l, nth, of_memory != 0);)
            nth++;
    hk_layout_release(l);
}

static int setup(void **state) {
    (void)state;
    bed_folder_make(folder);
    snprintf(path, sizeof path, "%s/center", folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    bed_folder_remove(folder);
    return 0;
}

// ---- assertions -------------------------------------------------------------

static void open_unlocked(void *user) {
    hki_shard *const s = user;
    uint32_t slot;
    (void)hki_undo_open(s, 0, HKI_CURSOR(0, 1), 0, 1, &slot);
}

// As if the cursor had gone past the unit meanwhile.
static void open_late(void *user) {
    hki_shard *const s = user;
    uint32_t slot;
    hki_store64(&s->file.worker[0].cursor, HKI_CURSOR(3, 0));
    hki_shard_lock_chunk(s, 0);
    (void)hki_undo_open(s, 0, HKI_CURSOR(2, 1), 0, 1, &slot);
}

static void commit_twice(void *user) {
    hki_shard *const s = user;
    uint32_t slot;
    hki_shard_lock_chunk(s, 0);
    if (hki_undo_open(s, 0, HKI_CURSOR(0, 1), 0, 1, &slot) == HK_OK &&
        hki_undo_commit(s, slot) == HK_OK)
        (void)hki_undo_commit(s, slot);
}

static void read_outside(void *user) {
    const hki_shard *const s = user;
    (void)hki_shard_at(s, 0, s->first + s->n + 1);
}

static void wait_unlocked(void *user) {
    (void)hki_shard_wait(user, &no_wait);
}

// What would harm the file ends the process first.
static void test_assertions(void **state) {
    (void)state;
    hki_shard_options o;
    options(&o, HK_METHOD_ELASTIC);
    hki_shard *const s = create(&o);
    assert_aborts(open_unlocked, s,
                  "hki_mutex_is_held(&s->chunk_lock[chunk].mutex)");
    assert_aborts(commit_twice, s, "u->tag > hki_load64(&w->cursor)");
    assert_aborts(read_outside, s, "at <= s->first + s->n");
    assert_aborts(wait_unlocked, s, "hki_mutex_is_held(&s->lock)");
    assert_aborts(open_late, s, "tag == hki_load64("); // the file's cursor, too
    hki_shard_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_first_values_again),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_outer_state),
        cmocka_unit_test(test_no_free_slot),
        cmocka_unit_test(test_no_slot_for_a_round),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_bad_slot),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_version_1),
        cmocka_unit_test(test_private),
        cmocka_unit_test(test_of_another_user),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_made_again),
        cmocka_unit_test(test_assertions),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
