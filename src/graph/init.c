// init.c - initial values of variables, as TensorFlow 1.12 computes them.
//
// Variance scaling: with fan = fan_in (He), or the mean of fan_in and fan_out
// (Glorot), the values have variance v = scale / max(1, fan). "Uniform" draws
// from +-sqrt(3 v). "Normal" draws a normal truncated at two deviations; that
// cut takes variance away, so the deviation before it is
// sqrt(v) / 0.87962566103423978.
//
// All arithmetic is in double; one rounding to float at the end.
#include "graph/init.h"
#include "base/base.h"
#include "tensor/tensor.h"
#include <float.h>
#include <math.h>

// Standard deviation of a standard normal truncated to [-2, 2].
#define TRUNCATED_STDDEV 0.87962566103423978
// A new direction shorter than this, after projection, is mostly rounding.
#define ORTHOGONAL_MIN_NORM 1e-6

// ---- descriptions -----------------------------------------------------------

hk_init hk_init_make(hk_init_kind kind, double a, double b) {
    return (hk_init){.kind = kind, .a = a, .b = b};
}

// ---- checks -----------------------------------------------------------------

static bool fits_float(double v) {
    return fabs(v) <= (double)FLT_MAX;
}

static hk_status check_parameters(const hk_init *init, const char *name) {
    if (!fits_float(init->a) || !fits_float(init->b))
        return hki_fail(HK_E_INVALID_ARG,
                        "initialiser of '%s': parameters %g and %g are not "
                        "finite floats",
                        name, init->a, init->b);
    switch (init->kind) {
    case HK_INIT_NORMAL:
    case HK_INIT_TRUNCATED_NORMAL:
        if (init->b < 0.0)
            return hki_fail(HK_E_INVALID_ARG,
                            "initialiser of '%s': standard deviation %g is "
                            "negative",
                            name, init->b);
        return HK_OK;
    case HK_INIT_UNIFORM:
        if (init->a > init->b)
            return hki_fail(HK_E_INVALID_ARG,
                            "initialiser of '%s': low %g is above high %g",
                            name, init->a, init->b);
        return HK_OK;
    case HK_INIT_ZEROS:
    case HK_INIT_ONES:
    case HK_INIT_CONSTANT:
    case HK_INIT_GLOROT_UNIFORM:
    case HK_INIT_GLOROT_NORMAL:
    case HK_INIT_HE_UNIFORM:
    case HK_INIT_HE_NORMAL:
    case HK_INIT_ORTHOGONAL:
    case HK_INIT_ARRAY:
        return HK_OK;
    }
    return hki_fail(HK_E_INVALID_ARG, "initialiser of '%s': unknown kind %d",
                    name, (int)init->kind);
}

static hk_status check(const hk_init *init, const hk_shape *shape,
                       const char *name, int64_t *count) {
    if (init == NULL || shape == NULL || name == NULL)
        return hki_fail(HK_E_INVALID_ARG, "initialiser: NULL argument");
    HKI_TRY(check_parameters(init, name));
    HKI_TRY(hk_shape_count(*shape, count));
    char text[HKI_SHAPE_TEXT];
    if (init->kind == HK_INIT_ORTHOGONAL && shape->rank < 2)
        return hki_fail(HK_E_SHAPE,
                        "initialiser of '%s': orthogonal needs at least two "
                        "dimensions, but the shape is %s",
                        name, hki_shape_text(*shape, text));
    if (init->kind == HK_INIT_ARRAY && init->values == NULL && *count > 0)
        return hki_fail(HK_E_INVALID_ARG,
                        "initialiser of '%s': there are no values for shape %s",
                        name, hki_shape_text(*shape, text));
    return HK_OK;
}

hk_status hki_init_check(const hk_init *init, hk_shape shape,
                         const char *name) {
    int64_t count;
    return check(init, &shape, name, &count);
}

// ---- values -----------------------------------------------------------------

static void fill_constant(double value, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)value;
}

static void fill_uniform(hki_rng *r, double low, double high, int64_t n,
                         float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(low + (high - low) * hki_rng_uniform(r));
}

static void fill_normal(hki_rng *r, double mean, double stddev, int64_t n,
                        float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(mean + stddev * hki_rng_normal(r));
}

// Values beyond two deviations are drawn again (about one in 22).
static void fill_truncated(hki_rng *r, double mean, double stddev, int64_t n,
                           float *out) {
    for (int64_t i = 0; i < n; i++) {
        double z;
        do
            z = hki_rng_normal(r);
        while (fabs(z) > 2.0);
        out[i] = (float)(mean + stddev * z);
    }
}

// Inputs and outputs that one unit sees. Kernels are [in, out] or
// [kh, kw, in, out]; the leading dimensions are the receptive field.
static void fans(const hk_shape *s, double *fan_in, double *fan_out) {
    *fan_in = *fan_out = 1.0;
    if (s->rank == 1)
        *fan_in = *fan_out = (double)s->dim[0];
    if (s->rank < 2)
        return;
    double field = 1.0;
    for (int i = 0; i < s->rank - 2; i++)
        field *= (double)s->dim[i];
    *fan_in = field * (double)s->dim[s->rank - 2];
    *fan_out = field * (double)s->dim[s->rank - 1];
}

static void fill_scaled(const hk_init *init, const hk_shape *shape, hki_rng *r,
                        int64_t n, float *out) {
    const bool he =
        init->kind == HK_INIT_HE_UNIFORM || init->kind == HK_INIT_HE_NORMAL;
    const bool uniform = init->kind == HK_INIT_HE_UNIFORM ||
                         init->kind == HK_INIT_GLOROT_UNIFORM;
    double fan_in, fan_out;
    fans(shape, &fan_in, &fan_out);
    const double fan = he ? fan_in : (fan_in + fan_out) / 2.0;
    const double variance = (he ? 2.0 : 1.0) / HKI_MAX(1.0, fan);
    if (uniform) {
        const double limit = sqrt(3.0 * variance);
        fill_uniform(r, -limit, limit, n, out);
    } else {
        fill_truncated(r, 0.0, sqrt(variance) / TRUNCATED_STDDEV, n, out);
    }
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

// Draws v, takes away its part along the `k` unit vectors before it and gives
// it length one. Two rounds of modified Gram-Schmidt leave v orthogonal to
// working precision (Giraud et al. 2005). A random matrix has full rank but
// for bad luck, which is drawn again.
static void orthogonal_row(hki_rng *r, const double *before, int64_t k,
                           int64_t m, double *v) {
    double norm;
    do {
        for (int64_t i = 0; i < m; i++)
            v[i] = hki_rng_normal(r);
        for (int round = 0; round < 2; round++)
            for (int64_t j = 0; j < k; j++) {
                const double *const q = before + j * m;
                const double along = dot(q, v, m);
                for (int64_t i = 0; i < m; i++)
                    v[i] -= along * q[i];
            }
        norm = sqrt(dot(v, v, m));
    } while (norm < ORTHOGONAL_MIN_NORM);
    for (int64_t i = 0; i < m; i++)
        v[i] /= norm;
}

// The shape counts as a matrix [rows, cols] with cols = the last dimension;
// its shorter side becomes orthonormal. This is Q of the QR factorisation of
// a normal matrix with the diagonal of R made positive (Gram-Schmidt does
// that by itself), so Q is uniform over the orthogonal matrices.
static hk_status fill_orthogonal(const hk_init *init, const hk_shape *shape,
                                 hki_rng *r, int64_t n, float *out) {
    if (n == 0)
        return HK_OK;
    const int64_t cols = shape->dim[shape->rank - 1];
    const int64_t rows = n / cols;
    const int64_t k = HKI_MIN(rows, cols);
    const int64_t m = HKI_MAX(rows, cols);
    double *q; // [k, m]
    HKI_TRY(hki_alloc_array((size_t)n, sizeof *q, &q));
    for (int64_t j = 0; j < k; j++)
        orthogonal_row(r, q, j, m, q + j * m);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            out[i * cols + j] =
                (float)(init->a * (rows < cols ? q[i * m + j] : q[j * m + i]));
    hki_free(q);
    return HK_OK;
}

hk_status hki_init_fill(const hk_init *init, hk_shape shape, uint64_t seed,
                        const char *name, float *out) {
    int64_t n;
    HKI_TRY(check(init, &shape, name, &n));
    if (out == NULL && n > 0)
        return hki_fail(HK_E_INVALID_ARG, "initialiser of '%s': out is NULL",
                        name);
    hki_rng r;
    hki_rng_init(&r, seed, hki_hash(HKI_HASH_INIT, name, strlen(name)));
    switch (init->kind) {
    case HK_INIT_ZEROS:
        fill_constant(0.0, n, out);
        break;
    case HK_INIT_ONES:
        fill_constant(1.0, n, out);
        break;
    case HK_INIT_CONSTANT:
        fill_constant(init->a, n, out);
        break;
    case HK_INIT_NORMAL:
        fill_normal(&r, init->a, init->b, n, out);
        break;
    case HK_INIT_TRUNCATED_NORMAL:
        fill_truncated(&r, init->a, init->b, n, out);
        break;
    case HK_INIT_UNIFORM:
        fill_uniform(&r, init->a, init->b, n, out);
        break;
    case HK_INIT_GLOROT_UNIFORM:
    case HK_INIT_GLOROT_NORMAL:
    case HK_INIT_HE_UNIFORM:
    case HK_INIT_HE_NORMAL:
        fill_scaled(init, &shape, &r, n, out);
        break;
    case HK_INIT_ORTHOGONAL:
        return fill_orthogonal(init, &shape, &r, n, out);
    case HK_INIT_ARRAY:
        if (n > 0)
            memcpy(out, init->values, (size_t)n * sizeof *out);
        break;
    }
    return HK_OK;
}
