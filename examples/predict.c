// predict.c - predictions for a CSV file by an export, without training code.
//
//     hooke export my.yaml --format folder -o exports
//     predict exports/1700000000 new.csv
#include <hooke/hooke.h>
#include <stdio.h>
#include <stdlib.h>

static void check(hk_status s) {
    if (s == HK_OK)
        return;
    fprintf(stderr, "predict: %s\n", hk_last_error());
    exit(1);
}

// The columns that the model reads, by the names in the file's first line.
static hk_dataset *read_csv(const hk_exported *x, const char *path) {
    const hk_element *in = hk_exported_inputs(x);
    hk_csv_column columns[1024] = {0};
    hk_csv_options o;
    hk_csv_options_init(&o, sizeof o);
    for (size_t i = 0; i < in->count && i < 1024; i++) {
        const hk_dtype t = in->values[i].dtype;
        columns[i].name = in->values[i].name;
        columns[i].dtype = t;
        columns[i].default_value = t == HK_F32 ? "nan" : NULL; // an empty cell
        o.n_columns = i + 1;
    }
    o.columns = columns;
    o.header = o.trim = 1;
    return hk_data_csv(&path, 1, &o);
}

static void print(const hk_exported *x, const hk_element *e) {
    const hk_value *k = hk_element_find(e, "class_ids");
    const hk_value *v = hk_element_find(e, k ? "probabilities" : "predictions");
    const int64_t id = k ? *(const int64_t *)hk_tensor_data(k->tensor) : 0;
    const char *name = hk_exported_class(x, id);
    if (k)
        name ? printf("%s,", name) : printf("%lld,", (long long)id);
    for (int64_t i = 0, n = v ? hk_tensor_count(v->tensor) : 0; i < n; i++)
        printf("%.9g%s", (double)((const float *)hk_tensor_data(v->tensor))[i],
               i + 1 < n ? "," : "\n");
}

int main(int argc, char **argv) {
    hk_context *ctx;
    hk_exported *x;
    hk_predictor *p;
    const hk_element *e;
    hk_status s;
    if (argc != 3)
        return fprintf(stderr, "usage: predict EXPORT FILE.csv\n"), 2;
    check(hk_context_create(NULL, &ctx));
    check(hk_exported_open(ctx, argv[1], &x));
    check(hk_exported_predict(x, read_csv(x, argv[2]), &p));
    while ((s = hk_predictor_next(p, &e)) == HK_OK)
        print(x, e);
    check(s == HK_E_END ? HK_OK : s);
}
