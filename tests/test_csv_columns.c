// test_csv_columns.c - columns of CSV by the kernels: fields of every form, the
// usual ones in long runs and odd ones between them, give in batches, where
// many rows go at once, what they give one by one.
#include "hk_files.h"

// More rows and fields than the kernels take at once.
enum { ROWS = 150, BATCH = 139, KINDS = 7, COLUMNS = 3 * KINDS };

typedef struct form {
    const char *name, *end;
    const char *missing[3];
    size_t n_missing;
    bool trim;
} form;

typedef struct table {
    hk_bed bed;
    const form *form;
    bool batched;
} table;

// The first ones of each list are plain.
static const char *const numbers[] = {
    "7",         " 42",        "12345678", "0",    "00012", "  13", " 12345678",
    "123456789", "4294967295", "-5",       "",     " ",     "?",    " ?",
    "NA",        "4 ",         "\t9",      "+3",   "1 2",   "1.5",  "1e3",
    "3/",        "3:",         " 7",       "8 \t",
};
static const char *const texts[] = {
    "Private",
    " a",
    "b",
    " exactly-twenty-four-char",
    "twenty-five-characters-xx",
    " a text that is a good deal longer than a cell",
    "",
    " ",
    "  ",
    "?",
    " ?",
    "??",
    "N",
    "NA",
    "NAN",
    " two words ",
    "c ",
    "\td",
    "7",
};
static const char *const labels[] = {
    "x",  " yes",  "no", "seven77", "no.",  " yes.", "eight888",
    "zz", "",      " ",  "?",       " ?",   "NA",    "x ",
    ".",  "yesno", "ye", "\tx",     "no..",
};

static const hk_csv_column kinds[KINDS] = {
    {.name = "i32", .dtype = HK_I32, .default_value = "-1"},
    {.name = "f32", .dtype = HK_F32, .default_value = "0.5"},
    {.name = "near", .dtype = HK_STRING, .default_value = "none"},
    {.name = "i64", .dtype = HK_I64, .required = 1},
    {.name = "far",
     .dtype = HK_STRING,
     .default_value = "no text at all, and at some length"},
    {.name = "word",
     .dtype = HK_I32,
     .strip = ".",
     .vocabulary = (const char *const[]){"no", "x", "yes", "seven77"},
     .n_vocabulary = 4,
     .allow_unknown = 1,
     .unknown = -7},
    {.name = "f64", .dtype = HK_F64},
};

static const char *pick(hki_rng *r, const char *const *list, size_t n,
                        size_t plain, size_t odd) {
    return list[hki_rng_below(r, hki_rng_below(r, odd) == 0 ? n : plain)];
}

// One in `odd` of the fields may have any form.
static void add_rows(hk_bed *b, const form *f, size_t odd) {
    hki_buf text = {0};
    hki_rng r;
    hki_rng_init(&r, 5, odd);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++) {
            const hk_csv_column *const c = &kinds[k % KINDS];
            const char *const field =
                c->vocabulary != NULL
                    ? pick(&r, labels, HKI_COUNT(labels), 4, odd)
                : c->dtype == HK_STRING
                    ? pick(&r, texts, HKI_COUNT(texts), 4, odd)
                    : pick(&r, numbers, HKI_COUNT(numbers), 5, odd);
            assert_ok(hki_buf_printf(&text, "%s%s", field,
                                     k + 1 < COLUMNS ? "," : f->end));
        }
    hk_bed_add(b, "t.csv", text.data, text.size);
    hki_buf_deinit(&text);
}

static hk_dataset *make(void *user) {
    const table *const t = user;
    hk_file_options file = hk_file_defaults();
    hk_csv_options o;
    hk_csv_column columns[COLUMNS];
    char names[COLUMNS][8];
    for (int k = 0; k < COLUMNS; k++) {
        snprintf(names[k], sizeof names[k], "%d", k);
        columns[k] = kinds[k % KINDS];
        columns[k].name = names[k];
    }
    hk_csv_options_init(&o, sizeof o);
    file.on_error = HK_ON_ERROR_SKIP;
    o.file = &file;
    o.columns = columns;
    o.n_columns = COLUMNS;
    o.missing = t->form->missing;
    o.n_missing = t->form->n_missing;
    o.trim = t->form->trim;
    hk_dataset *const d = hk_data_csv(t->bed.files, 1, &o);
    return t->batched ? hk_data_unbatch(hk_data_batch(d, BATCH, 0)) : d;
}

static void test_columns(void **state) {
    (void)state;
    static const form forms[] = {
        {"plain", "\n", {"?"}, 1, false},
        {"trimmed", "\n", {"?", "NA"}, 2, true},
        {"trimmed, CRLF", "\r\n", {"NA", "??"}, 2, true},
        {"numbers that are missing", "\n", {"7", "42"}, 2, true},
        {"no token", "\r\n", {NULL}, 0, true},
    };
    // Hardly any odd ones, some in each run of rows, many.
    static const size_t odds[] = {1000, 100, 10};
    for (size_t i = 0; i < HKI_COUNT(forms); i++)
        for (size_t k = 0; k < HKI_COUNT(odds); k++) {
            table t = {.form = &forms[i]};
            hk_bed_make(&t.bed);
            add_rows(&t.bed, t.form, odds[k]);
            hk_check_levels(t.form->name, make, &t);
            char *const single = hk_run_text(make(&t), 1, -1);
            // The odd ones are not all refused.
            assert_true(odds[k] == 10 || strlen(single) > ROWS);
            t.batched = true;
            hk_check_levels(t.form->name, make, &t);
            hk_check_run(t.form->name, make(&t), -1, single);
            free(single);
            hk_bed_remove(&t.bed);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
