// input_pipeline.c - an input pipeline from end to end: drawn digits, shuffled,
// normalised and batched in a thread of their own; stopped in the middle, and
// gone on with in a second iterator to the bit.
//
// docs/data.md explains it line by line.
#include "hooke/data.h"
#include "hooke/digits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != HK_OK) {                                                 \
            fprintf(stderr, "%s\n", hk_last_error());                          \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

static hk_dataset *training_data(int64_t seed) {
    hk_dataset *d = hk_data_digits(NULL, 0, 2000); // "image", "label"
    d = hk_data_shuffle(d, 2000, seed, 1);
    d = hk_data_repeat(d, HK_DATA_FOREVER);
    d = hk_data_normalize(d, "image", 1.0 / 255, NULL, NULL, 1);
    d = hk_data_batch(d, 64, 1);
    return hk_data_prefetch(d, HK_DATA_AUTO);
}

// What a training step would eat.
static double sum_of(const hk_element *e) {
    const hk_value *const image = hk_element_find(e, "image");
    const float *const x = hk_tensor_data(image->tensor);
    double sum = 0;
    for (int64_t i = 0; i < hk_tensor_count(image->tensor); i++)
        sum += (double)x[i];
    return sum;
}

int main(void) {
    hk_dataset *d = training_data(42);
    CHECK(hk_dataset_status(d)); // the first error of the whole chain
    hk_iter *it;
    const hk_element *e;
    CHECK(hk_iter_create(d, NULL, &it));
    for (int i = 0; i < 50; i++)
        CHECK(hk_iter_next(it, &e));

    // The position behind 50 batches, whatever was prefetched.
    size_t size;
    CHECK(hk_iter_save(it, NULL, 0, &size));
    void *const position = malloc(size);
    if (position == NULL)
        return 1;
    CHECK(hk_iter_save(it, position, size, &size));

    hk_iter *second;
    CHECK(hk_iter_create(d, NULL, &second));
    CHECK(hk_iter_restore(second, position, size));
    double difference = 0, last = 0;
    for (int i = 0; i < 50; i++) {
        CHECK(hk_iter_next(it, &e));
        last = sum_of(e);
        CHECK(hk_iter_next(second, &e));
        difference += last - sum_of(e);
    }
    hk_iter_info stats;
    CHECK(hk_iter_get_info(it, &stats));
    printf("position: %zu bytes; batch 100 sums to %.3f; difference %g\n", size,
           last, difference);
    printf("%llu batches, waited %.4f s for them\n",
           (unsigned long long)stats.delivered, stats.wait_seconds);
    free(position);
    hk_iter_destroy(second);
    hk_iter_destroy(it);
    hk_dataset_release(d);
    return difference != 0;
}
