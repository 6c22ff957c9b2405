// test_csv.c - CSV: RFC 4180 and what files do instead, types, missing values,
// headers, faults by place, rows around every boundary, all levels alike.
#include "hk_files.h"
#include "data/csv/csv.h"

static hk_csv_options options(const hk_csv_column *columns, size_t n) {
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    o.columns = columns;
    o.n_columns = n;
    return o;
}

// Runs one file with the options.
static void check(const char *what, const char *text, const hk_csv_options *o,
                  const char *expected) {
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "t.csv", text);
    hk_dataset *const d = hk_data_csv(b.files, 1, o);
    if (hk_dataset_status(d) != HK_OK)
        fail_msg("%s: %s", what, hk_last_error());
    hk_check_run(what, d, -1, expected);
    // In batches it is the same, but that a fault takes its batch along.
    if (strstr(expected, "HK_E") == NULL)
        hk_check_run(
            what,
            hk_data_unbatch(hk_data_batch(hk_data_csv(b.files, 1, o), 3, 0)),
            -1, expected);
    hk_bed_remove(&b);
}

static const hk_csv_column strings[] = {
    {.name = "a", .dtype = HK_STRING},
    {.name = "b", .dtype = HK_STRING},
    {.name = "c", .dtype = HK_STRING},
};

// ---- the format ------------------------------------------------------------

static void test_format(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *expected;
        size_t n;
    } cases[] = {
        {"LF", "1,2\n3,4\n", "'1';'2' '3';'4'", 2},
        {"CRLF", "1,2\r\n3,4\r\n", "'1';'2' '3';'4'", 2},
        {"CR", "1,2\r3,4\r", "'1';'2' '3';'4'", 2},
        {"mixed", "1,2\r3,4\n5,6\r\n7,8", "'1';'2' '3';'4' '5';'6' '7';'8'", 2},
        {"no last LF", "1,2\n3,4", "'1';'2' '3';'4'", 2},
        {"CR at the end", "1,2\r\n3,4\r", "'1';'2' '3';'4'", 2},
        {"empty file", "", "", 2},
        {"empty lines", "\n\n1,2\n\r\n\n3,4\n\n\n", "'1';'2' '3';'4'", 2},
        {"byte-order mark",
         "\xef\xbb\xbf"
         "1,2\n",
         "'1';'2'", 2},
        {"blanks stay", " 1 , 2\n", "' 1 ';' 2'", 2},
        {"empty fields", ",\n,x\nx,\n", "'';'' '';'x' 'x';''", 2},
        {"one column", "1\n\n2\n3", "'1' '2' '3'", 1},
        {"quoted", "\"1\",\"2\"\n", "'1';'2'", 2},
        {"quoted delimiter", "\"1,5\",2\n", "'1,5';'2'", 2},
        {"quoted line end", "\"1\n5\",2\n\"a\r\nb\",3\n",
         "'1\n5';'2' 'a\r\nb';'3'", 2},
        {"doubled quotes", "\"say \"\"hi\"\"\",2\n\"\"\"\",3\n",
         "'say \"hi\"';'2' '\"';'3'", 2},
        {"empty quotes", "\"\",2\n", "'';'2'", 2},
        {"quoted at the end", "1,\"2\"", "'1';'2'", 2},
        {"quoted, CRLF", "1,\"2\"\r\n3,\"4\"\r\n", "'1';'2' '3';'4'", 2},
        {"many quotes", "\"a\"\"b\"\"c\",\"\"\"\"\"\"\n", "'a\"b\"c';'\"\"'",
         2},
        {"UTF-8", "\xc3\xa9,\xe2\x82\xac\n", "'\xc3\xa9';'\xe2\x82\xac'", 2},
        {"long field",
         "a string that is longer than a cell holds,"
         "123456789012345678901234\n"
         "b,1234567890123456789012345\n",
         "'a string that is longer than a cell holds';"
         "'123456789012345678901234' 'b';'1234567890123456789012345'",
         2},
        {"NUL-free tail", "x,y,z\n", "'x';'y';'z'", 3},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_csv_options o = options(strings, cases[i].n);
        check(cases[i].name, cases[i].text, &o, cases[i].expected);
    }
}

static void test_options(void **state) {
    (void)state;
    const struct {
        const char *name, *text, *expected;
        size_t n;
        hk_csv_options o;
    } cases[] = {
        {"tab", "1\t2\n", "'1';'2'", 2, {.delimiter = '\t', .quote = '"'}},
        {"tab and trim",
         " 1 \t2 \n\t x\n",
         "'1';'2' '';'x'",
         2,
         {.delimiter = '\t', .quote = '"', .trim = 1}},
        {"semicolon",
         "1,5;2\n",
         "'1,5';'2'",
         2,
         {.delimiter = ';', .quote = '"'}},
        {"another quote",
         "'1,5',\"2\n",
         "'1,5';'\"2'",
         2,
         {.delimiter = ',', .quote = '\''}},
        {"no quotes", "\"1,2\"\n", "'\"1';'2\"'", 2, {.delimiter = ','}},
        {"comment",
         "# no\n1,2\n#x,y\n3,4\n#",
         "'1';'2' '3';'4'",
         2,
         {.delimiter = ',', .quote = '"', .comment = '#'}},
        {"comment of the right form",
         "#1,2\n3,4\n",
         "'3';'4'",
         2,
         {.delimiter = ',', .quote = '"', .comment = '#'}},
        {"comment with quotes",
         "# it's \"so\n3,4\n",
         "'3';'4'",
         2,
         {.delimiter = ',', .quote = '"', .comment = '#'}},
        {"trim",
         "  1 ,\t2\t\n \" 3 \" ,4\n",
         "'1';'2' ' 3 ';'4'",
         2,
         {.delimiter = ',', .quote = '"', .trim = 1}},
        {"trim: a line of blanks",
         "1,2\n   \n3,4\n",
         "'1';'2' '3';'4'",
         2,
         {.delimiter = ',', .quote = '"', .trim = 1}},
        {"skip lines",
         "junk \" here\n\n1,2\n",
         "'1';'2'",
         2,
         {.delimiter = ',', .quote = '"', .skip_lines = 2}},
        {"skip more lines than there are",
         "1,2\n",
         "",
         2,
         {.delimiter = ',', .quote = '"', .skip_lines = 5}},
        {"keep blank lines",
         "1\n\n2\n",
         "'1' '' '2'",
         1,
         {.delimiter = ',', .quote = '"', .keep_blank_lines = 1}},
        {"more fields than columns",
         "1,2,3,4\n5,6,7,8\n",
         "'1';'2' '5';'6'",
         2,
         {.delimiter = ',', .quote = '"', .n_fields = 4}},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_csv_options o = cases[i].o;
        o.struct_size = sizeof o;
        o.infer_rows = 100;
        o.columns = strings;
        o.n_columns = cases[i].n;
        check(cases[i].name, cases[i].text, &o, cases[i].expected);
    }
}

// ---- types -----------------------------------------------------------------

static void test_types(void **state) {
    (void)state;
    static const struct {
        hk_dtype t;
        const char *text, *expected; // one field a row
    } cases[] = {
        {HK_I32, "0\n-1\n+2\n12345678\n123456789\n2147483647\n-2147483648\n",
         "0 -1 2 12345678 123456789 2147483647 -2147483648"},
        {HK_I32, " 5 \n5 \n", "5 5"}, // blanks around numbers never matter
        {HK_I32, "2147483648\n", "HK_E_INVALID_ARG"},
        {HK_I32, "1.5\n", "HK_E_INVALID_ARG"},
        {HK_I32, "x\n", "HK_E_INVALID_ARG"},
        {HK_I64, "9223372036854775807\n00000000\n99999999\n",
         "9223372036854775807 0 99999999"},
        {HK_I64, "9223372036854775808\n", "HK_E_INVALID_ARG"},
        {HK_F32, "1\n-1.5\n1e3\n.5\n16777217\n99999999\ninf\nnan\n",
         "1 -1.5 1000 0.5 1.67772e+07 1e+08 inf nan"},
        {HK_F32, "1,5\n", NULL},
        {HK_F64, "0.1\n1e300\n12345678\n", "0.1 1e+300 1.23457e+07"},
        {HK_F64, "0x10\n", "HK_E_INVALID_ARG"},
        {HK_STRING, "1\nx y\n", "'1' 'x y'"},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const hk_csv_column c = {.name = "x", .dtype = cases[i].t};
        const hk_csv_options o = options(&c, 1);
        if (cases[i].expected != NULL)
            check(cases[i].text, cases[i].text, &o, cases[i].expected);
    }
}

// Exactly rounded, on the short way and the long one.
static void test_exact(void **state) {
    (void)state;
    const hk_csv_column c[] = {{.name = "f", .dtype = HK_F32},
                               {.name = "d", .dtype = HK_F64}};
    const hk_csv_options o = options(c, 2);
    hk_bed b;
    hk_bed_make(&b);
    hki_buf text = {0};
    hki_rng r;
    hki_rng_init(&r, 9, 0);
    char numbers[500][40];
    for (int i = 0; i < 500; i++) {
        if (i % 2 == 0)
            snprintf(
                numbers[i], sizeof numbers[i], "%llu",
                (unsigned long long)(hki_rng_u64(&r) >> hki_rng_below(&r, 64)));
        else
            snprintf(
                numbers[i], sizeof numbers[i], "%.*g",
                1 + (int)hki_rng_below(&r, 17),
                ldexp(hki_rng_normal(&r), (int)hki_rng_below(&r, 200) - 100));
        assert_ok(hki_buf_printf(&text, "%s,%s\n", numbers[i], numbers[i]));
    }
    hk_bed_add(&b, "n.csv", text.data, text.size);
    hk_iter *const it = hk_test_iter(hk_data_csv(b.files, 1, &o));
    for (int i = 0; i < 500; i++) {
        const hk_element *e;
        assert_ok(hk_iter_next(it, &e));
        const float f = *(const float *)hk_tensor_data(e->values[0].tensor);
        const double d = *(const double *)hk_tensor_data(e->values[1].tensor);
        if (f != strtof(numbers[i], NULL) || d != strtod(numbers[i], NULL))
            fail_msg("%s: %a and %a", numbers[i], (double)f, d);
    }
    hk_iter_destroy(it);
    hki_buf_deinit(&text);
    hk_bed_remove(&b);
}

static void test_decimal_comma(void **state) {
    (void)state;
    const hk_csv_column c[] = {
        {.name = "f", .dtype = HK_F32, .default_value = "-0.5"},
        {.name = "d", .dtype = HK_F64},
        {.name = "i", .dtype = HK_I32},
        {.name = "s", .dtype = HK_STRING}};
    hk_csv_options o = options(c, 4);
    o.delimiter = ';';
    o.decimal = ',';
    check("decimal comma", "1,5;-0,25;7;a,b\n;2;12345678;1.5\n1e2;1,5e-1;-3;\n",
          &o, "1.5;-0.25;7;'a,b' -0.5;2;12345678;'1.5' 100;0.15;-3;''");
    o.delimiter = ','; // in quotes
    check("quoted", "\"1,5\",2,3,x\n", &o, "1.5;2;3;'x'");
    o.n_columns = 0;
    o.columns = NULL;
    check("types", "1,\"2,5\",\"x,5\",3.5\n", &o, "1;2.5;'x,5';'3.5'");
    static const char *const bad[] = {"1.5;1;1;x\n", "1,2,3;1;1;x\n",
                                      "1;1;1,5;x\n"};
    o = options(c, 4);
    o.delimiter = ';';
    o.decimal = ',';
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_bed b;
        hk_bed_make(&b);
        hk_bed_text(&b, "c.csv", bad[i]);
        hk_check_fault("decimal comma", hk_data_csv(b.files, 1, &o),
                       "HK_E_INVALID_ARG", "c.csv|row 1|is not a ");
        hk_bed_remove(&b);
    }
    o.decimal = ';';
    hk_dataset *const d = hk_data_csv((const char *[]){"c.csv"}, 1, &o);
    assert_status(hk_dataset_status(d), HK_E_INVALID_ARG);
    hk_dataset_release(d);
}

static void test_undress(void **state) {
    (void)state;
    const struct {
        const char *text;
        char decimal;
        int groups;
        const char *plain, *sign; // NULL: no number
    } cases[] = {
        {"1", '.', 0, "1", ""},
        {"$1,250.50", '.', 0, "1250.50", "$"},
        {"- $ 3", '.', 0, "-3", "$"},
        {"$-3", '.', 0, "-3", "$"},
        {"$--3", '.', 0, NULL, NULL},
        {"-3 €", '.', 0, "-3", "€"},
        {"12.5 %", '.', 0, "12.5", "%"},
        {"%12", '.', 0, NULL, NULL},
        {"$5 €", '.', 0, NULL, NULL},
        {".5%", '.', 0, ".5", "%"},
        {"$", '.', 1, NULL, NULL},
        {"$.", '.', 1, NULL, NULL},
        {"", '.', 1, NULL, NULL},
        {"1,250", '.', 0, NULL, NULL},
        {"1,250", '.', 1, "1250", ""},
        {"1,250,000", '.', 0, "1250000", ""},
        {"1,250.5", '.', 0, "1250.5", ""},
        {"0,250", '.', 1, NULL, NULL},
        {"1,25", '.', 1, NULL, NULL},
        {"1,2500", '.', 1, NULL, NULL},
        {"1250,000", '.', 1, NULL, NULL},
        {"1,250,00", '.', 1, NULL, NULL},
        {"1.250,5", ',', 0, "1250.5", ""},
        {"1.250,5 €", ',', 0, "1250.5", "€"},
        {"1.5", ',', 1, NULL, NULL},
        {"12 kg", '.', 1, NULL, NULL},
        {"1e5", '.', 1, NULL, NULL},
    };
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        const size_t size = strlen(cases[i].text);
        char *const text = memcpy(malloc(size + 1), cases[i].text, size + 1);
        char *const out = malloc(size + 1); // of no byte more, under sanitizers
        const char *sign = NULL;
        const size_t n = hk_number_undress(text, size, cases[i].decimal,
                                           cases[i].groups, out, &sign);
        const char *const plain = cases[i].plain ? cases[i].plain : "";
        if (n != strlen(plain) || memcmp(out, plain, n) != 0 ||
            (n > 0 && strcmp(sign, cases[i].sign) != 0))
            fail_msg("'%s': '%.*s', expected '%s'", text, (int)n, out, plain);
        free(text);
        free(out);
    }
}

static void test_dressed(void **state) {
    (void)state;
    const hk_csv_column c[] = {{.name = "f", .dtype = HK_F32},
                               {.name = "i", .dtype = HK_I32},
                               {.name = "s", .dtype = HK_STRING}};
    hk_csv_options o = options(c, 3);
    o.dressed = 1;
    check("dressed", "$1.5,12%,$3\n\"1,250.25\",\"1,250\",x\n1e2,3,\n", &o,
          "1.5;12;'$3' 1250.25;1250;'x' 100;3;''");
    o.delimiter = ';';
    check("semicolons", "$1,250;1;x\n", &o, "1250;1;'x'");
    static const char *const bad[] = {"1,250;1;x\n", "1 kg;1;x\n", "$;1;x\n"};
    for (size_t i = 0; i < HKI_COUNT(bad); i++) {
        hk_bed b;
        hk_bed_make(&b);
        hk_bed_text(&b, "c.csv", bad[i]);
        hk_check_fault("dressed", hk_data_csv(b.files, 1, &o),
                       "HK_E_INVALID_ARG", "c.csv|row 1|is not a ");
        hk_bed_remove(&b);
    }
}

static void test_missing(void **state) {
    (void)state;
    static const char *const tokens[] = {"?", "NA", "-999"};
    const hk_csv_column c[] = {
        {.name = "i", .dtype = HK_I32, .default_value = "-1"},
        {.name = "f", .dtype = HK_F32, .default_value = "nan"},
        {.name = "s", .dtype = HK_STRING, .default_value = "none"},
        {.name = "z", .dtype = HK_I64},
    };
    hk_csv_options o = options(c, 4);
    o.missing = tokens;
    o.n_missing = 3;
    o.trim = 1;
    check("missing",
          "1,2,three,4\n"
          ",,,\n"
          "?, ?,? , ?\n"
          "NA,NA,NA,NA\n"
          "-999,-999,-999,-999\n"
          "\"?\",\"\",\"NA\",\"-999\"\n"
          "5,6,NAN,8\n"
          "9,-99.9,??,10\n",
          &o,
          "1;2;'three';4 -1;nan;'none';0 -1;nan;'none';0 -1;nan;'none';0 "
          "-1;nan;'none';0 -1;nan;'none';0 5;6;'NAN';8 9;-99.9;'\?\?';10");
    // Required ones.
    hk_csv_column required[] = {c[0], c[1]};
    required[1].required = 1;
    o = options(required, 2);
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "r.csv", "1,2\n3,\n5,6\n");
    hk_check_fault("required", hk_data_csv(b.files, 1, &o),
                   "1;2 HK_E_INVALID_ARG",
                   "r.csv|row 2|byte 6|\"f\"|value is missing");
    hk_bed_remove(&b);
}

static void test_words(void **state) {
    (void)state;
    static const char *const few[] = {"<=50K", ">50K"};
    static const char *const many[] = {"a", "b", "c", "d", "e",
                                       "f", "g", "h", "i", "long words too"};
    const hk_csv_column c[] = {
        {.name = "y",
         .dtype = HK_I32,
         .role = HK_LABEL,
         .strip = ".",
         .vocabulary = few,
         .n_vocabulary = 2},
        {.name = "x",
         .dtype = HK_I64,
         .vocabulary = many,
         .n_vocabulary = 10,
         .allow_unknown = 1,
         .unknown = -1,
         .default_value = "99"},
    };
    hk_csv_options o = options(c, 2);
    o.trim = 1;
    check("words",
          "<=50K,a\n >50K., j\n>50K...,long words too\n<=50K. ,\n>50K,i\n", &o,
          "0;0 1;-1 1;9 0;99 1;8");
    // Characters cut off the end of texts and numbers.
    const hk_csv_column stripped[] = {
        {.name = "s", .dtype = HK_STRING, .strip = "."},
        {.name = "t", .dtype = HK_STRING, .strip = "%;"},
        {.name = "n", .dtype = HK_I32, .strip = "%"},
    };
    const hk_csv_options strip = options(stripped, 3);
    check("strip", "a.,b%;,5%\n..,c,6\nd,;%,7%%\n", &strip,
          "'a';'b';5 '';'c';6 'd';'';7");
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "w.csv", ">50K,a\n<50K,b\n");
    hk_check_fault("unknown", hk_data_csv(b.files, 1, &o),
                   "1;0 HK_E_INVALID_ARG", "row 2|\"y\"|\"<50K\"|vocabulary");
    hk_bed_remove(&b);
}

// ---- headers ---------------------------------------------------------------

static void test_header(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "a.csv", "id,name,\"x y\"\n1,one,1.5\n2,two,2.5\n");
    hk_bed_text(&b, "b.csv", "\xef\xbb\xbfid,name,x y\r\n3,three,3.5\r\n");
    hk_bed_text(&b, "bad.csv", "id,nome,x y\n4,four,4.5\n");
    hk_bed_text(&b, "short.csv", "id,name\n4,four\n");
    hk_bed_text(&b, "empty.csv", "");
    // All columns, types by the rows.
    hk_csv_options o = options(NULL, 0);
    o.header = 1;
    hk_dataset *d = hk_data_csv(b.files, 2, &o);
    assert_ok(hk_dataset_status(d));
    const hk_element *const spec = hk_dataset_spec(d);
    assert_int_equal(spec->count, 3);
    assert_string_equal(spec->values[2].name, "x y");
    assert_int_equal(spec->values[0].dtype, HK_I32);
    assert_int_equal(spec->values[1].dtype, HK_STRING);
    assert_int_equal(spec->values[2].dtype, HK_F32);
    hk_check_run("all", d, -1, "1;'one';1.5 2;'two';2.5 3;'three';3.5");
    // Some, by name, in another order.
    const hk_csv_column c[] = {
        {.name = "x y", .dtype = HK_F64},
        {.name = "id", .dtype = HK_I64, .role = HK_LABEL}};
    o = options(c, 2);
    o.header = 1;
    hk_check_run("by name", hk_data_csv(b.files, 2, &o), -1,
                 "1.5;1 2.5;2 3.5;3");
    const char *const with_empty[] = {b.files[0], b.files[4], b.files[1]};
    hk_check_run("empty file", hk_data_csv(with_empty, 3, &o), -1,
                 "1.5;1 2.5;2 3.5;3");
    // Other headers.
    for (size_t i = 2; i < 4; i++) {
        const char *const files[] = {b.files[0], b.files[i], b.files[1]};
        hk_check_fault("other header", hk_data_csv(files, 3, &o),
                       "1.5;1 2.5;2 HK_E_DATA",
                       i == 2 ? "nome|name" : "names 2");
        hk_iter *const it = hk_test_iter(hk_data_csv(&files[0], 2, &o));
        const hk_element *e;
        assert_ok(hk_iter_next(it, &e));
        assert_ok(hk_iter_next(it, &e));
        assert_status(hk_iter_next(it, &e), HK_E_DATA);
        assert_status(hk_iter_next(it, &e), HK_E_DATA); // again and again
        hk_iter_destroy(it);
        hk_file_options f = hk_file_defaults();
        f.on_error = HK_ON_ERROR_SKIP;
        o.file = &f;
        hk_check_run("other header", hk_data_csv(files, 3, &o), -1,
                     "1.5;1 2.5;2 3.5;3");
        o.file = NULL;
    }
    const hk_csv_column none = {.name = "no", .dtype = HK_F64};
    o.columns = &none;
    o.n_columns = 1;
    hk_check_refused(hk_data_csv(b.files, 2, &o), HK_E_NOT_FOUND, "\"no\"");
    hk_check_refused(hk_data_csv(&b.files[4], 1, &o), HK_E_DATA, "empty.csv");
    hk_bed_remove(&b);
}

static void test_inference(void **state) {
    (void)state;
    static const struct {
        const char *values; // one a row, with blanks between them
        hk_dtype t;
    } cases[] = {
        {"1 2 -3", HK_I32}, {"1 2147483648", HK_I64},
        {"1 2.5", HK_F32},  {"9223372036854775808", HK_F32},
        {"1 1e39", HK_F64}, {"1 x", HK_STRING},
        {"? 5", HK_I32},    {"? ?", HK_I32},
        {"nan 1", HK_F32},
    };
    static const char *const tokens[] = {"?"};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        char text[128];
        hk_bed_make(&b);
        snprintf(text, sizeof text, "%s\n", cases[i].values);
        for (char *p = text; *p != '\0'; p++)
            if (*p == ' ')
                *p = '\n';
        hk_bed_text(&b, "i.csv", text);
        hk_csv_options o = options(NULL, 0);
        o.missing = tokens;
        o.n_missing = 1;
        hk_dataset *const d = hk_data_csv(b.files, 1, &o);
        assert_ok(hk_dataset_status(d));
        assert_string_equal(hk_dataset_spec(d)->values[0].name, "col_0");
        if (hk_dataset_spec(d)->values[0].dtype != cases[i].t)
            fail_msg("%s: %s", cases[i].values,
                     hk_dtype_name(hk_dataset_spec(d)->values[0].dtype));
        hk_dataset_release(d);
        hk_bed_remove(&b);
    }
    // Only the first rows are looked at.
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "i.csv", "1\n2\nx\n");
    hk_csv_options o = options(NULL, 0);
    o.infer_rows = 2;
    hk_check_fault("too late", hk_data_csv(b.files, 1, &o),
                   "1 2 HK_E_INVALID_ARG", "row 3|byte 4|\"x\"");
    hk_bed_remove(&b);
}

static void test_select(void **state) {
    (void)state;
    static const int32_t fields[] = {1, 3};
    hk_csv_options o = options(strings, 2);
    o.select = fields;
    check("select", "a,b,c,d\ne,f,g,h,i\n", &o, "'b';'d' 'f';'h'");
    o.n_fields = 4;
    check("select, 4 fields", "a,b,c,d\n", &o, "'b';'d'");
    check("select, wrong count", "a,b,c,d\ne,f,g,h,i\n", &o,
          "'b';'d' HK_E_INVALID_ARG");
}

// ---- faults ----------------------------------------------------------------

static void test_faults(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *words, *skip;
        uint64_t skipped;
    } cases[] = {
        {"too few fields", "1,2\n3\n5,6\n", "row 2|byte 4|1 fields|2",
         "1;2 5;6", 1},
        {"too many fields", "1,2\n3,4,5\n5,6\n", "row 2|byte 4|3 or more",
         "1;2 5;6", 1},
        {"bad number", "1,2\n3,x\n5,6\n",
         "row 2|byte 6|\"b\"|\"x\"|a whole number", "1;2 5;6", 1},
        {"bad first number", "1,2\nx,4\n5,6\n", "row 2|byte 4|\"a\"", "1;2 5;6",
         1},
        {"quote inside", "1,2\n3,4\"4\n5,6\n", "row 2|byte 7|quote inside",
         "1;2 5;6", 1},
        {"text behind a quote", "1,2\n3,\"4\"4\n5,6\n",
         "row 2|after a closing quote", "1;2 5;6", 1},
        {"quote behind a quote", "1,2\n3,\"4\" \"\n5,6\n", "row 2|quote",
         "1;2 5;6", 1},
        {"open quote", "1,2\n3,\"4\n5,6\n", "row 2|byte 4|ends inside", "1;2",
         1},
        {"NUL", "1,2\n3,\0\n5,6\n", NULL, "1;2 5;6", 1},
        {"not UTF-8 in a number", "1,2\n3,\xff\n5,6\n", "row 2|byte 6",
         "1;2 5;6", 1},
        {"several", "x,2\n1,2\n3\n\"\n", "row 1|byte 0", "1;2", 3},
        {"bad number in a long row",
         "1,2\nx,00000000000000000000000000000000000000000000000000000004\n"
         "5,6\n",
         "row 2", "1;2 5;6", 1},
    };
    const hk_csv_column c[] = {{.name = "a", .dtype = HK_I32},
                               {.name = "b", .dtype = HK_I32}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++) {
        hk_bed b;
        hk_bed_make(&b);
        const size_t size = cases[i].words == NULL ? 12 : strlen(cases[i].text);
        hk_bed_add(&b, "f.csv", cases[i].text, size);
        hk_csv_options o = options(c, 2);
        hk_iter *it = hk_test_iter(hk_data_csv(b.files, 1, &o));
        const hk_element *e;
        hk_status s;
        while ((s = hk_iter_next(it, &e)) == HK_OK)
            continue;
        assert_true(s == HK_E_INVALID_ARG || s == HK_E_DATA);
        char message[512];
        snprintf(message, sizeof message, "%s", hk_last_error());
        // The same fault again and again.
        assert_int_equal(hk_iter_next(it, &e), s);
        assert_string_equal(hk_last_error(), message);
        hk_iter_destroy(it);
        char list[128] = "f.csv|";
        if (cases[i].words != NULL)
            strncat(list, cases[i].words, 100);
        for (char *p = list, *end; *p != '\0'; p = end) {
            end = p + strcspn(p, "|");
            if (*end != '\0')
                *end++ = '\0';
            if (strstr(message, p) == NULL)
                fail_msg("%s: \"%s\" is not in \"%s\"", cases[i].name, p,
                         message);
        }
        hk_file_options f = hk_file_defaults();
        f.on_error = HK_ON_ERROR_SKIP;
        o.file = &f;
        hk_check_run(cases[i].name, hk_data_csv(b.files, 1, &o), -1,
                     cases[i].skip);
        uint64_t n, skipped;
        hk_count_run(hk_data_batch(hk_data_csv(b.files, 1, &o), 2, 0), &n,
                     &skipped);
        if (skipped != cases[i].skipped)
            fail_msg("%s: %llu skipped", cases[i].name,
                     (unsigned long long)skipped);
        hk_bed_remove(&b);
    }
}

static void test_any_bytes(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_add(&b, "b.csv", "caf\xe9,1\nx\0y,2\n\xc3\xa9,3\n", 18);
    const hk_csv_column c[] = {{.name = "a", .dtype = HK_STRING},
                               {.name = "b", .dtype = HK_I32}};
    hk_csv_options o = options(c, 2);
    hk_check_fault("bytes", hk_data_csv(b.files, 1, &o), "HK_E_DATA",
                   "b.csv|row 1|byte 3|0xe9|UTF-8");
    hk_file_options f = hk_file_defaults();
    f.on_error = HK_ON_ERROR_SKIP;
    o.file = &f;
    hk_check_run("skip", hk_data_csv(b.files, 1, &o), -1, "'\xc3\xa9';3");
    f.any_bytes = 1;
    uint64_t n, skipped;
    hk_count_run(hk_data_csv(b.files, 1, &o), &n, &skipped);
    assert_int_equal(n, 3);
    assert_int_equal(skipped, 0);
    hk_bed_remove(&b);
}

static void test_limits(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    char *const text = malloc(200000);
    memset(text, 'x', 200000);
    memcpy(text, "a,\"", 3);
    memcpy(text + 150000, "\",c\nd,e,f\n", 10);
    hk_bed_add(&b, "long.csv", text, 150010);
    hk_csv_options o = options(strings, 3);
    hk_file_options f = hk_file_defaults();
    f.buffer_bytes = 1;
    o.file = &f;
    uint64_t n, skipped;
    hk_count_run(hk_data_csv(b.files, 1, &o), &n, &skipped);
    assert_int_equal(n, 2);
    f.max_record_bytes = 100000;
    hk_check_fault("limit", hk_data_csv(b.files, 1, &o), "HK_E_DATA",
                   "row 1|limit of 100000");
    free(text);
    hk_bed_remove(&b);
}

// ---- boundaries ------------------------------------------------------------

// Rows of all lengths, so that rows, quotes and line ends fall on every place
// of blocks, stretches and windows; against a plain splitter.
typedef struct many {
    hk_bed bed;
    size_t n_rows;
    bool crlf;
} many;

static char *fill_rows(const many *m, size_t *size, char **expected) {
    hki_buf text = {0}, want = {0};
    hki_rng r;
    hki_rng_init(&r, 17, m->n_rows);
    for (size_t i = 0; i < m->n_rows; i++) {
        char word[64];
        const size_t length = (size_t)hki_rng_below(&r, 40);
        const int number = (int)hki_rng_below(&r, 1000000) - 500000;
        const bool quoted = hki_rng_below(&r, 5) == 0;
        memset(word, 'a' + (int)(i % 26), length);
        word[length] = '\0';
        assert_ok(hki_buf_printf(
            &text, quoted ? "%d, \"%s,\n\"\"\" ,%zu%s" : "%d, %s ,%zu%s",
            number, word, i, m->crlf ? "\r\n" : "\n"));
        assert_ok(hki_buf_printf(
            &want, quoted ? "%s%d;'%s,\n\"';%zu" : "%s%d;'%s';%zu",
            i > 0 ? " " : "", number, word, i));
    }
    *size = text.size;
    *expected = strdup(want.data);
    hki_buf_deinit(&want);
    return text.data; // of Hooke's allocator
}

static hk_dataset *make_many(void *user) {
    many *const m = user;
    static const hk_csv_column c[] = {{.name = "n", .dtype = HK_I32},
                                      {.name = "s", .dtype = HK_STRING},
                                      {.name = "i", .dtype = HK_I64}};
    static hk_file_options f;
    hk_csv_options o = options(c, 3);
    f = hk_file_defaults();
    f.buffer_bytes = 1; // windows of the least size
    o.file = &f;
    o.trim = 1;
    return hk_data_csv(m->bed.files, m->bed.n, &o);
}

static void test_boundaries(void **state) {
    (void)state;
    for (int crlf = 0; crlf < 2; crlf++) {
        many m = {.n_rows = 1200, .crlf = crlf};
        size_t size;
        char *expected;
        hk_bed_make(&m.bed);
        char *const text = fill_rows(&m, &size, &expected);
        hk_bed_packed(&m.bed, "many.csv.gz", HKI_GZIP, text, size);
        hk_check_run("many", make_many(&m), -1, expected);
        hk_check_run("many, in batches",
                     hk_data_unbatch(hk_data_batch(make_many(&m), 100, 0)), -1,
                     expected);
        hk_check_levels("many", make_many, &m);
        hki_free(text);
        free(expected);
        hk_bed_remove(&m.bed);
    }
}

static void test_positions(void **state) {
    (void)state;
    many m = {.n_rows = 12};
    size_t size;
    char *expected;
    hk_bed_make(&m.bed);
    char *const text = fill_rows(&m, &size, &expected);
    hk_bed_add(&m.bed, "a.csv", text, size);
    hk_bed_packed(&m.bed, "b.csv.gz", HKI_GZIP, text, size);
    assert_int_equal(hk_check_stops("csv", make_many, &m), 24);
    hki_free(text);
    free(expected);
    hk_bed_remove(&m.bed);
}

// ---- shuffled --------------------------------------------------------------

static hk_status not_third(void *user, const hk_element *e, int *keep) {
    const hk_value *const row = hk_element_find(e, "#");
    (void)user;
    *keep = *(const int64_t *)hk_tensor_data(row->tensor) % 3 != 0;
    return HK_OK;
}

// What training does with a table of which a share is held out.
static hk_dataset *make_shuffled(void *user) {
    const hk_bed *const b = user;
    const hk_select all[] = {{.from = "b"}, {.from = "a"}};
    const hk_csv_column columns[] = {{.name = "a", .dtype = HK_STRING},
                                     {.name = "b", .dtype = HK_F32}};
    const hk_csv_options o = options(columns, 2);
    hk_dataset *d = hk_data_csv(b->files, b->n, &o);
    d = hk_data_filter(hk_data_enumerate(d, "#", 0), not_third, NULL);
    d = hk_data_shuffle(hk_data_select(d, all, 2), 40, 3, 1);
    d = hk_data_normalize(hk_data_repeat(d, 2), "b", 0.5, NULL, NULL, 1);
    return hk_data_prefetch(hk_data_batch(d, 7, 0), 2);
}

// Long and short strings, of `rows` rows.
static void add_table(hk_bed *b, const char *name, int rows) {
    const size_t room = (size_t)rows * 64;
    char *const text = calloc(1, room);
    size_t at = 0;
    for (int i = 0; i < rows; i++)
        at += (size_t)snprintf(
            text + at, room - at, "%s %d,%d\n",
            i % 4 == 0 ? "a word that is longer than others" : "w", i, 2 * i);
    hk_bed_text(b, name, text);
    free(text);
}

// Positions inside and between blocks, in two files.
static void test_shuffled_positions(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_table(&b, "a.csv", 130);
    add_table(&b, "b.csv", 70);
    assert_int_equal(hk_check_stops("csv shuffled", make_shuffled, &b), 38);
    hk_bed_remove(&b);
}

// A shuffle holds rows of blocks, not elements, also after a restore.
static void test_shuffle_memory(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    add_table(&b, "a.csv", 5000);
    const hk_csv_options o = options(strings, 2);
    hk_dataset *const d =
        hk_data_shuffle(hk_data_csv(b.files, 1, &o), 5000, 1, 1);
    hk_iter *it = NULL, *other = NULL;
    const hk_element *e;
    uint8_t *const bytes = malloc(4 << 20);
    size_t size;
    const int64_t live = hki_alloc_live();
    assert_ok(hk_iter_create(d, NULL, &it));
    assert_ok(hk_iter_next(it, &e));
    assert_in_range(hki_alloc_live() - live, 1, 2500); // 1250 are long strings
    assert_ok(hk_iter_save(it, bytes, 4 << 20, &size));
    assert_ok(hk_iter_create(d, NULL, &other));
    const int64_t first = hki_alloc_live();
    assert_ok(hk_iter_restore(other, bytes, size));
    assert_in_range(hki_alloc_live() - first, 1, 2500);
    hk_iter_destroy(other);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    free(bytes);
    hk_bed_remove(&b);
}

static hk_dataset *make_headed(void *user) {
    hk_bed *const b = user;
    hk_csv_options o = options(NULL, 0);
    o.header = 1;
    o.comment = '#';
    o.skip_lines = 1;
    return hk_data_batch(hk_data_csv(b->files, b->n, &o), 2, 0);
}

static void test_header_positions(void **state) {
    (void)state;
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "a.csv", "junk\nx,y\n1,a\n# no\n2,b\n\n3,c\n");
    hk_bed_text(&b, "b.csv", "junk\nx,y\n4,d\n5,e");
    assert_int_equal(hk_check_stops("headed", make_headed, &b), 3);
    hk_bed_remove(&b);
}

// ---- refused ---------------------------------------------------------------

static void test_refused(void **state) {
    (void)state;
    static const char *const null_word[] = {NULL};
    static const char *const twice[] = {"a", "a"};
    static const int32_t bad_select[] = {1, 1};
    hk_bed b;
    hk_bed_make(&b);
    hk_bed_text(&b, "r.csv", "1,2\n");
    for (int i = 0;; i++) {
        hk_csv_column c[2] = {{.name = "a", .dtype = HK_I32},
                              {.name = "b", .dtype = HK_I32}};
        hk_csv_options o = options(c, 2);
        hk_file_options f = hk_file_defaults();
        switch (i) {
        case 0:
            o.delimiter = 0;
            break;
        case 1:
            o.delimiter = '\n';
            break;
        case 2:
            o.quote = '\r';
            break;
        case 3:
            o.quote = ',';
            break;
        case 4:
            o.comment = '"';
            break;
        case 5:
            o.skip_lines = -1;
            break;
        case 6:
            o.n_fields = -1;
            break;
        case 7:
            o.infer_rows = 0;
            break;
        case 8:
            o.n_missing = 1;
            break;
        case 9:
            o.missing = null_word;
            o.n_missing = 1;
            break;
        case 10:
            c[0].name = NULL;
            break;
        case 11:
            c[0].name = "b";
            break;
        case 12:
            c[0].dtype = HK_U8;
            break;
        case 13:
            c[0].role = 9;
            break;
        case 14:
            c[0].default_value = "x";
            break;
        case 15:
            c[0].default_value = "2147483648";
            break;
        case 16:
            c[0].vocabulary = null_word;
            c[0].n_vocabulary = 1;
            break;
        case 17:
            c[0].vocabulary = twice;
            c[0].n_vocabulary = 2;
            break;
        case 18:
            c[0].n_vocabulary = 1;
            break;
        case 19:
            c[0].dtype = HK_STRING;
            c[0].vocabulary = twice;
            c[0].n_vocabulary = 1;
            break;
        case 20:
            o.select = bad_select;
            break;
        case 21:
            o.n_fields = 1;
            break;
        case 22:
            o.columns = NULL;
            break;
        case 23:
            o.struct_size = 3;
            break;
        case 24:
            f.on_error = 9;
            o.file = &f;
            break;
        default:
            hk_bed_remove(&b);
            return;
        }
        const int64_t live = hki_alloc_live();
        hk_dataset *const d = hk_data_csv(b.files, 1, &o);
        if (hk_dataset_status(d) == HK_OK)
            fail_msg("case %d was not refused", i);
        hk_dataset_release(d);
        if (hki_alloc_live() != live)
            fail_msg("case %d leaks", i);
    }
}

static hk_status run_all(void *user) {
    many *const m = user;
    static const char *const words[] = {"x", "y"};
    hk_csv_options o = options(NULL, 0);
    o.header = 1;
    o.missing = words;
    o.n_missing = 2;
    hk_status s = hk_run_status(make_many(m));
    if (s == HK_OK)
        s = hk_run_status(hk_data_batch(make_many(m), 5, 0));
    if (s == HK_OK)
        s = hk_run_status(hk_data_csv(&m->bed.files[1], 1, &o));
    if (s == HK_OK)
        s = hk_run_status(hk_data_batch(
            hk_data_shuffle(hk_data_enumerate(make_many(m), "#", 0), 4, 1, 1),
            2, 0));
    return s;
}

static void test_alloc_failures(void **state) {
    (void)state;
    many m = {.n_rows = 6};
    size_t size;
    char *expected;
    hk_bed_make(&m.bed);
    char *const text = fill_rows(&m, &size, &expected);
    hk_bed_add(&m.bed, "a.csv", text, size);
    hk_bed_text(&m.bed, "h.csv", "a,\"b\"\"c\"\n1,2\n3,\"x\"\"yz\"\n");
    m.bed.n = 1;
    hk_test_alloc_failures("csv", run_all, &m);
    hki_free(text);
    free(expected);
    hk_bed_remove(&m.bed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_decimal_comma),
        cmocka_unit_test(test_undress),
        cmocka_unit_test(test_dressed),
        cmocka_unit_test(test_missing),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_header),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_boundaries),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_shuffled_positions),
        cmocka_unit_test(test_shuffle_memory),
        cmocka_unit_test(test_header_positions),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_alloc_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
