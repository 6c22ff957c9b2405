// schedule.c - learning rates as pure functions of a step.
//
// Saved, little-endian: u32 kind | u32 staircase | u32 cycle | u32
// warmup_shift | f64 values in the order of `fields` | u64 seed | u64 n |
// n f64 boundaries | n + 1 f64 values (piecewise only); as a blob of its own
// "HKSCHED1" goes before it and a hash after it.
#include "optim/optim.h"
#include <math.h>
#include <stdatomic.h>

#define PI 3.14159265358979323846

struct hk_schedule {
    atomic_int refs;
    hk_schedule_options opt; // boundaries and values are this schedule's own
};

static const char magic[8] = {'H', 'K', 'S', 'C', 'H', 'E', 'D', '1'};

// The plain numbers of the options, in the order they are saved.
static const struct field {
    const char *name;
    size_t offset;
    double low;
    bool above_low;
} fields[] = {
#define FIELD(name, low, above)                                                \
    { #name, offsetof(hk_schedule_options, name), low, above }
    FIELD(learning_rate, 0, false),
    FIELD(decay_steps, 0, true),
    FIELD(decay_rate, 0, false),
    FIELD(end_learning_rate, 0, false),
    FIELD(power, 0, false),
    FIELD(alpha, 0, false),
    FIELD(beta, 0, false),
    FIELD(num_periods, 0, false),
    FIELD(t_mul, 0, true),
    FIELD(m_mul, 0, true),
    FIELD(initial_variance, 0, false),
    FIELD(variance_decay, 0, false),
    FIELD(warmup_steps, 0, false),
    FIELD(warmup_start, 0, false),
#undef FIELD
};

void hk_schedule_options_init(hk_schedule_options *opt, size_t struct_size,
                              hk_schedule_kind kind) {
    const hk_schedule_options d = {
        .learning_rate = 0.01,
        .decay_steps = 1000,
        .decay_rate = 0.96,
        .end_learning_rate = 0.0001,
        .power = 1,
        .beta = 0.001,
        .num_periods = 0.5,
        .t_mul = 2,
        .m_mul = 1,
        .initial_variance = 1,
        .variance_decay = 0.55,
        .kind = kind,
        .warmup_shift = 1,
    };
    hki_options_init(opt, struct_size, &d, sizeof d);
}

// ---- values -----------------------------------------------------------------

static double piecewise(const hk_schedule_options *o, double s) {
    size_t i;
    HKI_FIRST(i, o->n_boundaries, !(s > o->boundaries[i]));
    return o->values[i];
}

static double polynomial(const hk_schedule_options *o, double s) {
    double steps = o->decay_steps;
    if (o->cycle)
        steps *= s == 0 ? 1 : ceil(s / steps);
    else
        s = fmin(s, steps);
    return (o->learning_rate - o->end_learning_rate) *
               pow(1 - s / steps, o->power) +
           o->end_learning_rate;
}

static double cosine(const hk_schedule_options *o, double s) {
    const double f = fmin(s, o->decay_steps) / o->decay_steps;
    return o->learning_rate *
           ((1 - o->alpha) * 0.5 * (1 + cos(PI * f)) + o->alpha);
}

// Position inside period i, whose length is t^i.
static double in_period(double f, double t, double i) {
    const double length = pow(t, i);
    return (f - (1 - length) / (1 - t)) / length;
}

static double cosine_restarts(const hk_schedule_options *o, double s) {
    const double f = s / o->decay_steps, t = o->t_mul;
    double i = floor(f), at = f - i;
    if (t != 1) {
        i = floor(log(1 - f * (1 - t)) / log(t));
        // At a restart the logarithms may fall just short of the integer.
        i += in_period(f, t, i) >= 1;
        at = in_period(f, t, i);
    }
    return o->learning_rate *
           ((1 - o->alpha) * 0.5 * pow(o->m_mul, i) * (1 + cos(PI * at)) +
            o->alpha);
}

// noise is added to the linear part.
static double linear_cosine(const hk_schedule_options *o, double s,
                            double noise) {
    const double d = o->decay_steps;
    const double linear = (d - s) / d + noise;
    const double wave = 0.5 * (1 + cos(2 * PI * o->num_periods * s / d));
    return o->learning_rate * ((o->alpha + linear) * wave + o->beta);
}

// A Gaussian that depends on the seed and the step alone.
static double noise_at(const hk_schedule_options *o, double s) {
    uint64_t bits;
    memcpy(&bits, &s, sizeof bits);
    hki_rng r;
    hki_rng_init(&r, o->seed, bits);
    const double variance = o->initial_variance / pow(1 + s, o->variance_decay);
    return sqrt(variance) * hki_rng_normal(&r);
}

static double plain_value(const hk_schedule_options *o, double s) {
    double p = s / o->decay_steps;
    if (o->staircase)
        p = floor(p);
    const double capped = fmin(s, o->decay_steps);
    switch (o->kind) {
    case HK_SCHEDULE_CONSTANT:
        return o->learning_rate;
    case HK_SCHEDULE_EXPONENTIAL:
        return o->learning_rate * pow(o->decay_rate, p);
    case HK_SCHEDULE_PIECEWISE:
        return piecewise(o, s);
    case HK_SCHEDULE_POLYNOMIAL:
        return polynomial(o, s);
    case HK_SCHEDULE_NATURAL_EXP:
        return o->learning_rate * exp(-o->decay_rate * p);
    case HK_SCHEDULE_INVERSE_TIME:
        return o->learning_rate / (1 + o->decay_rate * p);
    case HK_SCHEDULE_COSINE:
        return cosine(o, s);
    case HK_SCHEDULE_COSINE_RESTARTS:
        return cosine_restarts(o, s);
    case HK_SCHEDULE_LINEAR_COSINE:
        return linear_cosine(o, capped, 0);
    case HK_SCHEDULE_NOISY_LINEAR_COSINE:
        return linear_cosine(o, capped, noise_at(o, capped));
    }
    return (double)NAN;
}

double hk_schedule_value(const hk_schedule *s, double step) {
    if (s == NULL)
        return (double)NAN;
    const hk_schedule_options *const o = &s->opt;
    const double w = o->warmup_steps;
    const double start = o->warmup_shift ? 0 : w; // of the schedule proper
    if (w > 0 && step < w)
        return o->warmup_start +
               (plain_value(o, start) - o->warmup_start) * step / w;
    return plain_value(o, o->warmup_shift ? step - w : step);
}

// ---- create -----------------------------------------------------------------

static double field_value(const hk_schedule_options *o, const struct field *f) {
    double v;
    memcpy(&v, (const char *)o + f->offset, sizeof v);
    return v;
}

static hk_status check_piecewise(const hk_schedule_options *o) {
    if (o->values == NULL || (o->n_boundaries > 0 && o->boundaries == NULL))
        return hki_fail(HK_E_INVALID_ARG,
                        "schedule: piecewise needs boundaries and values");
    for (size_t i = 0; i <= o->n_boundaries; i++)
        if (!isfinite(o->values[i]) || o->values[i] < 0)
            return hki_fail(HK_E_INVALID_ARG,
                            "schedule: values[%zu] is %g; it has to be finite "
                            "and at least 0",
                            i, o->values[i]);
    for (size_t i = 0; i < o->n_boundaries; i++)
        if (!isfinite(o->boundaries[i]) ||
            (i > 0 && o->boundaries[i] <= o->boundaries[i - 1]))
            return hki_fail(
                HK_E_INVALID_ARG,
                "schedule: boundaries[%zu] is %g; boundaries have to rise", i,
                o->boundaries[i]);
    return HK_OK;
}

static hk_status check(const hk_schedule_options *o) {
    if ((int)o->kind < HK_SCHEDULE_CONSTANT ||
        (int)o->kind > HK_SCHEDULE_NOISY_LINEAR_COSINE)
        return hki_fail(HK_E_INVALID_ARG, "schedule: unknown kind %d",
                        (int)o->kind);
    for (size_t i = 0; i < HKI_COUNT(fields); i++) {
        const struct field *const f = &fields[i];
        const double v = field_value(o, f);
        if (!isfinite(v))
            return hki_fail(HK_E_NOT_FINITE, "schedule: %s is %g", f->name, v);
        if (v < f->low || (f->above_low && v == f->low))
            return hki_fail(HK_E_INVALID_ARG, "schedule: %s is %g", f->name, v);
    }
    if (o->kind == HK_SCHEDULE_COSINE_RESTARTS && o->t_mul < 1)
        return hki_fail(HK_E_INVALID_ARG,
                        "schedule: t_mul is %g; it has to be at least 1",
                        o->t_mul);
    if (o->staircase > 1 || o->cycle > 1 || o->warmup_shift > 1)
        return hki_fail(
            HK_E_INVALID_ARG,
            "schedule: staircase, cycle and warmup_shift have to be 0 or 1");
    return o->kind == HK_SCHEDULE_PIECEWISE ? check_piecewise(o) : HK_OK;
}

static hk_status copy_doubles(const double *from, size_t n,
                              const double **out) {
    double *copy;
    HKI_TRY(hki_alloc_array(n, sizeof *copy, &copy));
    if (n > 0)
        memcpy(copy, from, n * sizeof *copy);
    *out = copy;
    return HK_OK;
}

HKI_SCOPED_HANDLE(hk_schedule, hk_schedule_release)

// A schedule of checked options.
static hk_status build(const hk_schedule_options *o, hk_schedule **out) {
    HKI_SCOPED(hk_schedule_release_at) hk_schedule *s = NULL;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    atomic_init(&s->refs, 1);
    s->opt = *o;
    s->opt.boundaries = s->opt.values = NULL;
    if (o->kind == HK_SCHEDULE_PIECEWISE) {
        HKI_TRY(
            copy_doubles(o->boundaries, o->n_boundaries, &s->opt.boundaries));
        HKI_TRY(copy_doubles(o->values, o->n_boundaries + 1, &s->opt.values));
    } else {
        s->opt.n_boundaries = 0;
    }
    return HKI_HAND_ON(out, s);
}

hk_status hk_schedule_create(const hk_schedule_options *opt,
                             hk_schedule **out) {
    hk_schedule_options o;
    if (opt == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "schedule: options or out is NULL");
    hk_schedule_options_init(&o, sizeof o, HK_SCHEDULE_CONSTANT);
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "schedule"));
    HKI_TRY(check(&o));
    return build(&o, out);
}

hk_schedule *hk_schedule_retain(hk_schedule *s) {
    if (s != NULL)
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void hk_schedule_release(hk_schedule *s) {
    if (s == NULL ||
        atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1)
        return;
    // Own copies; the options show them as const.
    hki_free((void *)(uintptr_t)s->opt.boundaries);
    hki_free((void *)(uintptr_t)s->opt.values);
    hki_free(s);
}

// ---- bytes ------------------------------------------------------------------

void hki_schedule_write(const hk_schedule *s, hki_writer *w) {
    const hk_schedule_options *const o = &s->opt;
    hki_write_u32(w, (uint32_t)o->kind);
    hki_write_u32(w, o->staircase);
    hki_write_u32(w, o->cycle);
    hki_write_u32(w, o->warmup_shift);
    for (size_t i = 0; i < HKI_COUNT(fields); i++)
        hki_write_f64(w, field_value(o, &fields[i]));
    hki_write_u64(w, o->seed);
    hki_write_u64(w, o->n_boundaries);
    for (size_t i = 0; i < o->n_boundaries; i++)
        hki_write_f64(w, o->boundaries[i]);
    for (size_t i = 0; o->values != NULL && i <= o->n_boundaries; i++)
        hki_write_f64(w, o->values[i]);
}

// Reads the two lists into fresh memory.
static hk_status read_lists(hki_reader *r, hk_schedule_options *o,
                            double **lists) {
    if (o->n_boundaries > r->size / sizeof(double))
        return hki_fail(HK_E_DATA, "schedule: the saved lists are truncated");
    const size_t n = 2 * o->n_boundaries + 1;
    HKI_TRY(hki_alloc_array(n, sizeof(double), lists));
    for (size_t i = 0; i < n; i++)
        (*lists)[i] = hki_read_f64(r);
    o->boundaries = *lists;
    o->values = *lists + o->n_boundaries;
    return HK_OK;
}

static hk_status read_and_build(hki_reader *r, double **lists,
                                hk_schedule **out) {
    hk_schedule_options o = {.struct_size = sizeof o};
    o.kind = (hk_schedule_kind)hki_read_u32(r);
    o.staircase = hki_read_u32(r);
    o.cycle = hki_read_u32(r);
    o.warmup_shift = hki_read_u32(r);
    for (size_t i = 0; i < HKI_COUNT(fields); i++) {
        const double v = hki_read_f64(r);
        memcpy((char *)&o + fields[i].offset, &v, sizeof v);
    }
    o.seed = hki_read_u64(r);
    o.n_boundaries = (size_t)hki_read_u64(r);
    if (o.kind == HK_SCHEDULE_PIECEWISE)
        HKI_TRY(read_lists(r, &o, lists));
    if (!r->ok)
        return hki_fail(HK_E_DATA, "schedule: the saved state is truncated");
    HKI_TRY(check(&o));
    return build(&o, out);
}

hk_status hki_schedule_read(hki_reader *r, hk_schedule **out) {
    HKI_FREED double *lists = NULL;
    return read_and_build(r, &lists, out);
}

static void write_blob(const void *object, hki_writer *w) {
    hki_write_bytes(w, magic, sizeof magic);
    hki_schedule_write(object, w);
}

hk_status hk_schedule_save(const hk_schedule *s, void *buf, size_t capacity,
                           size_t *size) {
    return hki_save(s, write_blob, "schedule: save", buf, capacity, size);
}

hk_status hk_schedule_load(const void *bytes, size_t size, hk_schedule **out) {
    hki_reader r;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "schedule: out is NULL");
    HKI_TRY(hki_reader_init(&r, bytes, size, "schedule"));
    const unsigned char *const m = hki_read_skip(&r, sizeof magic);
    if (m == NULL || memcmp(m, magic, sizeof magic) != 0)
        return hki_fail(HK_E_DATA,
                        "schedule: the bytes are not a saved schedule");
    hk_schedule *s;
    HKI_TRY(hki_schedule_read(&r, &s));
    if (r.size != 0) {
        hk_schedule_release(s);
        return hki_fail(HK_E_DATA,
                        "schedule: there are bytes after the saved state");
    }
    *out = s;
    return HK_OK;
}
