// tf_estimator_3_tfrecord_input.c - an input_fn over a TFRecord file: map,
// shuffle, batch, prefetch.
//
// In TensorFlow:
//     dataset = tf.data.TFRecordDataset(data_path)
//     dataset = dataset.map(...)  # parsing and preprocessing
//     dataset = dataset.shuffle(buffer_size=1000).batch(batch_size)
//     dataset = dataset.prefetch(buffer_size=tf.data.AUTOTUNE)
//     ...
//     estimator.train(lambda: input_fn('train_data.tfrecord', 64), steps=150)
// The calls have the same names here, the function of the map is in C, and the
// position in the data is part of the checkpoint.
#include <stdlib.h>
#include <unistd.h>
#include "hooke/digits.h"
#include "hooke/writers.h"
#include "tf_common.h"

static hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m) {
    hk_node *net = hk_dense(g, hk_feature(m, "pixels"), 64, HK_ACT_RELU, NULL);
    hk_node *logits = hk_dense(g, net, 10, HK_ACT_NONE, NULL);
    hk_node *classes = hk_argmax(g, logits, -1);
    hk_spec_prediction(m, "class", classes);
    if (mode == HK_PREDICT)
        return HK_OK;
    hk_node *labels = hk_label(m, "label");
    hk_spec_loss(
        m, hk_sparse_softmax_cross_entropy(g, labels, logits, NULL, NULL));
    hk_spec_metric(m, "accuracy", HK_METRIC_ACCURACY, labels, classes, NULL,
                   NULL);
    return hk_spec_optimizer(m, HK_OPT_ADAM, 2e-3);
}

// What the lambda captures.
typedef struct input_args {
    const char *data_path;
    int64_t batch_size;
} input_args;

// dataset.map(preprocess): bytes become numbers from 0 to 1. The label, which
// it does not touch, stays.
static hk_status preprocess(void *user, const hk_map_call *call) {
    const hk_value *in = hk_element_find(call->in, "pixels");
    const uint8_t *bytes = hk_tensor_data(in->tensor);
    hk_tensor *pixels;
    (void)user;
    const hk_status s = hk_builder_tensor(call->out, "pixels", NULL, &pixels);
    if (s != HK_OK)
        return s;
    float *numbers = hk_tensor_data(pixels);
    for (int i = 0; i < HK_DIGITS_PIXELS; i++)
        numbers[i] = (float)bytes[i] / 255;
    return HK_OK;
}

static hk_dataset *map_pixels(hk_dataset *d) {
    const hk_value spec[] = {{.name = "pixels",
                              .role = HK_FEATURE,
                              .form = HK_DENSE_FORM,
                              .dtype = HK_F32,
                              .shape = {.rank = 1, .dim = {HK_DIGITS_PIXELS}}},
                             {.name = "label",
                              .role = HK_LABEL,
                              .form = HK_DENSE_FORM,
                              .dtype = HK_I64}};
    hk_map_options o;
    hk_map_options_init(&o, sizeof o);
    o.spec = spec;
    o.n_spec = 2;
    o.parallel = HK_DATA_AUTO; // num_parallel_calls
    return hk_data_map(d, preprocess, NULL, &o);
}

static hk_status input_fn(void *user, const hk_input_call *call,
                          hk_dataset **out) {
    const input_args *args = user;
    const hk_example_feature features[] = {
        {.name = "pixels",
         .kind = HK_RAW_LEN,
         .dtype = HK_U8,
         .shape = {.rank = 1, .dim = {HK_DIGITS_PIXELS}}},
        {.name = "label",
         .kind = HK_FIXED_LEN,
         .dtype = HK_I64,
         .role = HK_LABEL}};
    hk_dataset *d = hk_data_tfrecord(&args->data_path, 1, NULL);
    d = hk_data_parse_example(d, features, 2, NULL);
    d = map_pixels(d);
    if (call->mode == HK_TRAIN) {
        d = hk_data_shuffle(d, 1000, (int64_t)call->seed, 1);
        d = hk_data_repeat(d, HK_DATA_FOREVER);
    }
    d = hk_data_batch(d, args->batch_size, call->mode == HK_TRAIN);
    *out = hk_data_prefetch(d, HK_DATA_AUTO);
    return hk_dataset_status(*out);
}

// A file of drawn digits: {"pixels": 784 bytes, "label": n}.
static void write_file(const char *path, int64_t count) {
    hk_record_writer *w;
    hk_example_builder *b;
    CHECK(hk_record_writer_create(path, NULL, &w));
    CHECK(hk_example_builder_create(&b));
    for (int64_t i = 0; i < count; i++) {
        uint8_t image[HK_DIGITS_PIXELS];
        int32_t digit;
        CHECK(hk_digits_draw(NULL, (uint64_t)i, 1, HK_U8, image, &digit));
        const hk_bytes pixels = {image, sizeof image};
        const int64_t label = digit;
        const void *bytes;
        size_t size;
        CHECK(hk_example_add(b, "pixels", HK_STRING, &pixels, 1));
        CHECK(hk_example_add(b, "label", HK_I64, &label, 1));
        CHECK(hk_example_finish(b, &bytes, &size));
        CHECK(hk_record_write(w, bytes, size));
    }
    hk_example_builder_destroy(b);
    CHECK(hk_record_writer_close(w));
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/hooke-digits-%ld.tfrecord",
             tmp ? tmp : "/tmp", (long)getpid());
    write_file(path, 3000);

    hk_context *ctx;
    hk_estimator *e;
    CHECK(hk_context_create(NULL, &ctx));
    hk_estimator_options o;
    hk_estimator_options_init(&o, sizeof o);
    o.model_fn = model_fn;
    CHECK(hk_estimator_create(ctx, &o, &e));
    input_args args = {path, 64};
    const hk_source in = hk_source_function(input_fn, &args);
    hk_train_options t;
    hk_train_options_init(&t, sizeof t);
    t.steps = 150;
    hk_train_result trained;
    CHECK(hk_estimator_train(e, &in, &t, &trained));
    hk_eval_result *r;
    double accuracy;
    CHECK(hk_estimator_evaluate(e, &in, NULL, &r));
    CHECK(hk_eval_result_get(r, "accuracy", NULL, &accuracy));
    printf("%lld examples seen; accuracy on the file's %lld: %.3f\n",
           (long long)trained.examples, (long long)r->examples, accuracy);
    EXPECT(trained.examples == 150 * 64);
    EXPECT(r->examples == 3000); // the short last batch, too
    EXPECT(accuracy > 0.85);
    hk_eval_result_destroy(r);
    hk_estimator_destroy(e);
    hk_context_destroy(ctx);
    return remove(path);
}
