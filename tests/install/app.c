// app.c - a small program that uses an installed Hooke: prints its version, and
// what it computes with.
#include <hooke/backend.h>
#include <hooke/context.h>
#include <hooke/tensor.h>
#include <stdio.h>

int main(void) {
    const hk_shape shape = hk_shape_make(2, (int64_t[]){2, 3});
    hk_context *ctx;
    hk_tensor *t;
    if (hk_context_create(NULL, &ctx) != HK_OK)
        return 1;
    if (hk_tensor_create(HK_F32, shape, &t) != HK_OK) {
        hk_context_destroy(ctx);
        return 1;
    }
    printf("hooke %s\n", hk_version());
    hk_tensor_release(t);
    hk_context_destroy(ctx);

    hk_backend_info best;
    if (hk_backend_get_info(0, &best) != HK_OK) {
        fprintf(stderr, "%s\n", hk_last_error());
        return 1;
    }
    printf("%s %s\n", best.name, best.file);
    return 0;
}
