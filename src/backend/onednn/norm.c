// norm.c - batch norm, affine, layer norm.
#include <math.h>
#include "backend/onednn/cpu.h"

// Scratch of the batch norm kernels: sums [parts, 2, channels], then four
// float vectors of `channels`.
typedef struct norm_scratch {
    double *sum;
    float *a, *b, *c, *pivot;
} norm_scratch;

static size_t vector_bytes(int64_t channels) {
    return HKI_CPU_ALIGN((size_t)channels * sizeof(float));
}

static size_t sum_bytes(const hki_kernel *k, int64_t channels) {
    return HKI_CPU_ALIGN((size_t)k->device->threads * 2 * (size_t)channels *
                         sizeof(double));
}

static norm_scratch scratch_of(const hki_cpu_call *c, int64_t channels) {
    char *at = c->run.scratch;
    norm_scratch s = {.sum = (double *)(void *)at};
    at += sum_bytes(c->k, channels);
    float **const vector[] = {&s.a, &s.b, &s.c, &s.pivot};
    for (size_t i = 0; i < HKI_COUNT(vector); i++) {
        *vector[i] = (float *)(void *)at;
        at += vector_bytes(channels);
    }
    return s;
}

static void reserve(hki_kernel *k, int64_t channels) {
    k->scratch_bytes = sum_bytes(k, channels) + 4 * vector_bytes(channels);
}

// Sum over the parts of entry j.
static double total(const double *sum, int parts, int64_t stride, int64_t j) {
    double t = 0.0;
    for (int i = 0; i < parts; i++)
        t += sum[i * stride + j];
    return t;
}

// Mean of the first rows: near enough to the mean for sums of squares.
static void make_pivot(const hki_tiles *t, const float *x, float *pivot) {
    const int64_t rows = HKI_MIN(t->rows, 16);
    for (int64_t tile = 0; tile < t->blocks; tile++) {
        const float *p = x + tile * t->rows * t->width;
        float *to = pivot + tile * t->width;
        for (int64_t j = 0; j < t->width; j++) {
            float s = 0.0f;
            for (int64_t r = 0; r < rows; r++)
                s += p[r * t->width + j];
            to[j] = s / (float)rows;
        }
    }
}

static bool same_images(const hki_tensor_desc *a, const hki_tensor_desc *b) {
    return hki_cpu_f32(b) && a->format == b->format;
}

// ---- batch norm ------------------------------------------------------------

static hk_status run_batch_norm(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_NORM_X]);
    const int64_t channels = t.width * t.blocks, rows = t.tiles * t.rows;
    const int parts = hki_cpu_split_parts(k, rows, t.width, 1);
    const norm_scratch s = scratch_of(c, channels);
    const float *gamma = c->in[HKI_NORM_GAMMA];
    float *mean = c->out[HKI_NORM_MEAN], *var = c->out[HKI_NORM_VAR];
    hki_norm_args p = {.t = t,
                       .channels = channels,
                       .x = c->in[HKI_NORM_X],
                       .residual = c->in[HKI_NORM_RESIDUAL],
                       .out = c->out[HKI_NORM_Y],
                       .pivot = s.pivot,
                       .sum = s.sum,
                       .a = s.a,
                       .b = c->in[HKI_NORM_BETA],
                       .relu = k->desc.attr.act == HKI_U_RELU};
    memset(s.sum, 0, (size_t)(parts * 2 * channels) * sizeof *s.sum);
    make_pivot(&t, p.x, s.pivot);
    hki_cpu_split(k, rows, t.width, 1, k->device->norm->stats, &p);
    const double inv = (double)t.blocks / (double)rows;
    for (int64_t j = 0; j < channels; j++) {
        const double d = total(s.sum, parts, 2 * channels, j) * inv;
        const double q = total(s.sum, parts, 2 * channels, channels + j) * inv;
        const double m = (double)s.pivot[j] + d, v = HKI_MAX(q - d * d, 0.0);
        const double scale = (double)gamma[j] / sqrt(v + k->desc.attr.eps);
        s.a[j] = (float)scale;
        s.pivot[j] = (float)m;
        if (mean != NULL)
            mean[j] = (float)m;
        if (var != NULL)
            var[j] = (float)(q != q ? q : v); // a NaN stays visible
    }
    hki_cpu_split(k, rows, t.width, 1, k->device->norm->apply, &p);
    return HK_OK;
}

hk_status hki_make_batch_norm(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int act = d->attr.act;
    if (!hki_cpu_f32(&d->in[HKI_NORM_X]) ||
        !same_images(&d->in[HKI_NORM_X], &d->out[HKI_NORM_Y]) ||
        (hki_cpu_present(d, HKI_NORM_RESIDUAL) &&
         !same_images(&d->in[HKI_NORM_X], &d->in[HKI_NORM_RESIDUAL])) ||
        hki_cpu_elements(&d->in[HKI_NORM_X]) == 0 ||
        (act != HKI_U_NONE && act != HKI_U_RELU))
        return HK_OK;
    const hki_tiles t = hki_cpu_tiles(&d->in[HKI_NORM_X]);
    reserve(k, t.width * t.blocks);
    k->run = run_batch_norm;
    return HK_OK;
}

// dx = scale (dz - (dbeta + h dgamma) / m), h = (x - mean) rstd, written as
// (dz - c) a + (x - mean) b. A wanted dres holds dz after the first pass.
static hk_status run_batch_norm_grad(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_NORM_GRAD_DY]);
    const int64_t channels = t.width * t.blocks, rows = t.tiles * t.rows;
    const int parts = hki_cpu_split_parts(k, rows, t.width, 1);
    const norm_scratch s = scratch_of(c, channels);
    const float *gamma = c->in[HKI_NORM_GRAD_GAMMA],
                *mean = c->in[HKI_NORM_GRAD_MEAN],
                *var = c->in[HKI_NORM_GRAD_VAR];
    float *dgamma = c->out[HKI_NORM_GRAD_DGAMMA],
          *dbeta = c->out[HKI_NORM_GRAD_DBETA];
    hki_norm_args p = {
        .t = t,
        .channels = channels,
        .dy = c->in[HKI_NORM_GRAD_DY],
        .x = c->in[HKI_NORM_GRAD_X],
        .dy2 = c->in[HKI_NORM_GRAD_DY2],
        .y = k->desc.attr.act == HKI_U_RELU ? c->in[HKI_NORM_GRAD_Y] : NULL,
        .out = c->out[HKI_NORM_GRAD_DX],
        .dres = k->desc.attr.mode != 0 ? c->out[HKI_NORM_GRAD_DRESIDUAL] : NULL,
        .pivot = mean,
        .sum = s.sum,
        .a = s.a,
        .b = s.b,
        .c = s.c,
    };
    if (p.dy2 != NULL && p.dres == NULL) // the sum waits in dx for its turn
        p.dres = p.out;
    memset(s.sum, 0, (size_t)(parts * 2 * channels) * sizeof *s.sum);
    hki_cpu_split(k, rows, t.width, 1, k->device->norm->grad_sum, &p);
    const double inv = (double)t.blocks / (double)rows;
    for (int64_t j = 0; j < channels; j++) {
        const double sz = total(s.sum, parts, 2 * channels, j);
        const double sx = total(s.sum, parts, 2 * channels, channels + j);
        const double rstd = 1.0 / sqrt((double)var[j] + k->desc.attr.eps);
        const double scale = (double)gamma[j] * rstd;
        s.a[j] = (float)scale;
        s.b[j] = (float)(-scale * rstd * rstd * sx * inv);
        s.c[j] = (float)(sz * inv);
        if (dgamma != NULL)
            dgamma[j] = (float)(sx * rstd);
        if (dbeta != NULL)
            dbeta[j] = (float)sz;
    }
    if (p.dres != NULL) {
        p.dy = p.dres;
        p.y = NULL;
    }
    hki_cpu_split(k, rows, t.width, 1, k->device->norm->grad, &p);
    return HK_OK;
}

hk_status hki_make_batch_norm_grad(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int act = d->attr.act;
    if (!hki_cpu_f32(&d->in[HKI_NORM_GRAD_DY]) ||
        !same_images(&d->in[HKI_NORM_GRAD_DY], &d->in[HKI_NORM_GRAD_X]) ||
        (hki_cpu_present(d, HKI_NORM_GRAD_Y) &&
         !same_images(&d->in[HKI_NORM_GRAD_DY], &d->in[HKI_NORM_GRAD_Y])) ||
        (hki_cpu_present(d, HKI_NORM_GRAD_DY2) &&
         !same_images(&d->in[HKI_NORM_GRAD_DY], &d->in[HKI_NORM_GRAD_DY2])) ||
        !same_images(&d->in[HKI_NORM_GRAD_DY], &d->out[HKI_NORM_GRAD_DX]) ||
        (d->n_out > 3 && !same_images(&d->in[HKI_NORM_GRAD_DY],
                                      &d->out[HKI_NORM_GRAD_DRESIDUAL])) ||
        hki_cpu_elements(&d->in[HKI_NORM_GRAD_DY]) == 0 ||
        (act != HKI_U_NONE && act != HKI_U_RELU))
        return HK_OK;
    const hki_tiles t = hki_cpu_tiles(&d->in[HKI_NORM_GRAD_DY]);
    reserve(k, t.width * t.blocks);
    k->run = run_batch_norm_grad;
    return HK_OK;
}

static hk_status run_affine(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_AFFINE_X]);
    const hki_norm_args p = {.t = t,
                             .channels = t.width * t.blocks,
                             .x = c->in[HKI_AFFINE_X],
                             .a = c->in[HKI_AFFINE_SCALE],
                             .b = c->in[HKI_AFFINE_SHIFT],
                             .residual = c->in[HKI_AFFINE_RESIDUAL],
                             .out = c->out[0],
                             .relu = k->desc.attr.act == HKI_U_RELU};
    hki_cpu_split(k, t.tiles * t.rows, t.width, 1, k->device->norm->apply, &p);
    return HK_OK;
}

hk_status hki_make_affine(hki_kernel *k) {
    const hki_kernel_desc *d = &k->desc;
    const int act = d->attr.act;
    if (hki_cpu_f32(&d->in[HKI_AFFINE_X]) &&
        same_images(&d->in[HKI_AFFINE_X], &d->out[0]) &&
        (!hki_cpu_present(d, HKI_AFFINE_RESIDUAL) ||
         same_images(&d->in[HKI_AFFINE_X], &d->in[HKI_AFFINE_RESIDUAL])) &&
        hki_cpu_elements(&d->in[HKI_AFFINE_X]) > 0 &&
        (act == HKI_U_NONE || act == HKI_U_RELU))
        k->run = run_affine;
    return HK_OK;
}

// ---- layer norm ------------------------------------------------------------

static hk_status run_layer_norm(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_LAYER_X]);
    const hki_layer_args p = {.n = t.width,
                              .x = c->in[HKI_LAYER_X],
                              .gamma = c->in[HKI_LAYER_GAMMA],
                              .beta = c->in[HKI_LAYER_BETA],
                              .y = c->out[HKI_LAYER_Y],
                              .mean = c->out[HKI_LAYER_MEAN],
                              .rstd = c->out[HKI_LAYER_RSTD],
                              .eps = k->desc.attr.eps};
    hki_cpu_split(k, t.rows, t.width, 1, k->device->norm->layer, &p);
    return HK_OK;
}

hk_status hki_make_layer_norm(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[HKI_LAYER_X];
    if (hki_cpu_f32(x) && x->format == HKI_PLAIN && hki_cpu_elements(x) > 0)
        k->run = run_layer_norm;
    return HK_OK;
}

static hk_status run_layer_norm_grad(const hki_cpu_call *c) {
    const hki_kernel *k = c->k;
    const hki_tiles t = hki_cpu_tiles(&k->desc.in[HKI_LAYER_GRAD_DY]);
    const int parts = hki_cpu_split_parts(k, t.rows, t.width, 1);
    double *sum = c->run.scratch;
    float *dgamma = c->out[HKI_LAYER_GRAD_DGAMMA],
          *dbeta = c->out[HKI_LAYER_GRAD_DBETA];
    const hki_layer_args p = {.n = t.width,
                              .dy = c->in[HKI_LAYER_GRAD_DY],
                              .x = c->in[HKI_LAYER_GRAD_X],
                              .gamma = c->in[HKI_LAYER_GRAD_GAMMA],
                              .mean_in = c->in[HKI_LAYER_GRAD_MEAN],
                              .rstd_in = c->in[HKI_LAYER_GRAD_RSTD],
                              .y = c->out[HKI_LAYER_GRAD_DX],
                              .sum = sum};
    memset(sum, 0, (size_t)(parts * 2 * t.width) * sizeof *sum);
    hki_cpu_split(k, t.rows, t.width, 1, k->device->norm->layer_grad, &p);
    for (int64_t j = 0; j < t.width; j++) {
        if (dgamma != NULL)
            dgamma[j] = (float)total(sum, parts, 2 * t.width, j);
        if (dbeta != NULL)
            dbeta[j] = (float)total(sum, parts, 2 * t.width, t.width + j);
    }
    return HK_OK;
}

hk_status hki_make_layer_norm_grad(hki_kernel *k) {
    const hki_tensor_desc *x = &k->desc.in[HKI_LAYER_GRAD_DY];
    if (!hki_cpu_f32(x) || x->format != HKI_PLAIN || hki_cpu_elements(x) == 0)
        return HK_OK;
    k->scratch_bytes = sum_bytes(k, hki_cpu_tiles(x).width);
    k->run = run_layer_norm_grad;
    return HK_OK;
}
