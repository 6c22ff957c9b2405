// test_onednn.c - what the shared suite cannot show about the fast CPU
// backend: work large enough to be split over threads, blocked images kernel
// by kernel, special values, thread counts, failing allocations.
#define _GNU_SOURCE // pthread_getattr_np
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include "hk_test.h"
#include "graph/graph.h"

#ifdef HKI_HAVE_ONEDNN

// libgomp, which oneDNN brings along.
void GOMP_parallel(void (*fn)(void *), void *data, unsigned num_threads,
                   unsigned flags);
int omp_get_max_threads(void);
int omp_get_thread_num(void);

static hki_device *open_device(const hki_backend *be, uint32_t threads,
                               hk_isa isa) {
    const hki_device_options opt = {.threads = threads, .isa = isa};
    hki_device *d;
    assert_ok(be->device_open(&opt, &d));
    return d;
}

static hki_tensor_desc tensor(hk_dtype t, int rank, const int64_t *dims) {
    return (hki_tensor_desc){.dtype = t, .shape = hk_shape_make(rank, dims)};
}

#define F32(...)                                                               \
    tensor(HK_F32,                                                             \
           (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),    \
           (const int64_t[]){__VA_ARGS__})

static hki_kernel_desc call(hki_opcode op, hki_attr attr) {
    return (hki_kernel_desc){.op = op,
                             .attr = attr,
                             .portable = hki_op_by_code(op)->run,
                             .portable_scratch = hki_op_by_code(op)->scratch};
}

static size_t bytes_of(const hki_tensor_desc *t) {
    size_t n = 0;
    if (t->dtype != 0)
        assert_ok(hki_shape_bytes(t->shape, hk_dtype_size(t->dtype), &n));
    return n;
}

// ---- running one kernel -----------------------------------------------------

// Runs the kernel once on host memory; arg: inputs, then outputs.
static hk_status run_on(const hki_backend *be, hki_device *d,
                        const hki_kernel_desc *desc, void *const *arg) {
    hki_kernel *k;
    hki_kernel_state *state;
    hki_queue *q;
    hki_loc loc[HKI_MAX_ARGS] = {0}, scratch = {0};
    assert_ok(be->kernel_create(d, desc, &k));
    assert_ok(be->state_create(k, &state));
    assert_ok(be->queue_create(d, &q));
    assert_ok(be->buffer_create(d, be->kernel_scratch(k), &scratch.buffer));
    for (int i = 0; i < desc->n_in + desc->n_out; i++) {
        const hki_tensor_desc *t =
            i < desc->n_in ? &desc->in[i] : &desc->out[i - desc->n_in];
        if (arg[i] != NULL)
            assert_ok(be->buffer_wrap(d, arg[i], bytes_of(t), &loc[i].buffer));
    }
    assert_ok(be->queue_begin(q, 7, 3));
    const hk_status s = be->kernel_run(k, state, q, loc, scratch);
    assert_ok(be->queue_end(q));
    for (int i = 0; i < HKI_MAX_ARGS; i++)
        if (loc[i].buffer != NULL)
            be->buffer_destroy(loc[i].buffer);
    be->buffer_destroy(scratch.buffer);
    be->queue_destroy(q);
    be->state_destroy(state);
    be->kernel_destroy(k);
    return s;
}

static void fill(const hki_tensor_desc *t, void *data, uint64_t stream) {
    const size_t n = bytes_of(t) / HKI_MAX(hk_dtype_size(t->dtype), 1);
    hki_rng r;
    hki_rng_init(&r, 1, stream);
    for (size_t i = 0; i < n; i++)
        if (t->dtype == HK_F32)
            ((float *)data)[i] = (float)hki_rng_normal(&r);
        else if (t->dtype == HK_U8)
            ((uint8_t *)data)[i] = (uint8_t)hki_rng_below(&r, 4);
        else
            ((int32_t *)data)[i] = (int32_t)hki_rng_below(&r, 10);
}

// Between [N,H,W,C] and [N,C/b,H,W,b].
static void convert(const hki_tensor_desc *t, const char *from, char *to,
                    bool to_blocked) {
    const int64_t b = hki_format_block(t->format), c = t->shape.dim[3];
    const int64_t places = t->shape.dim[1] * t->shape.dim[2];
    const size_t elem = hk_dtype_size(t->dtype);
    for (int64_t n = 0; n < t->shape.dim[0]; n++)
        for (int64_t p = 0; p < places; p++)
            for (int64_t k = 0; k < c; k++) {
                const size_t plain = (size_t)((n * places + p) * c + k);
                const size_t blocked =
                    (size_t)(((n * (c / b) + k / b) * places + p) * b + k % b);
                memcpy(to + (to_blocked ? blocked : plain) * elem,
                       from + (to_blocked ? plain : blocked) * elem, elem);
            }
}

static void compare(const char *what, const hki_tensor_desc *t, const void *got,
                    const void *expected, double tol) {
    const size_t n = bytes_of(t);
    if (t->dtype != HK_F32) {
        assert_memory_equal(got, expected, n);
        return;
    }
    double largest = 0.0;
    for (size_t i = 0; i < n / 4; i++)
        largest = fmax(largest, fabs((double)((const float *)expected)[i]));
    hk_test_floats(what, got, expected, n / 4, tol * largest, 0.0);
}

// The kernel at one ISA level, thread count and image format against the
// portable one on plain images.
static void check(const char *what, const hki_kernel_desc *plain,
                  hki_format format, hk_isa isa, uint32_t threads) {
    const hki_backend *fast = &hki_backend_onednn,
                      *slow = &hki_backend_reference;
    hki_kernel_desc desc = *plain;
    void *a[HKI_MAX_ARGS] = {0}, *b[HKI_MAX_ARGS] = {0};
    const int n = desc.n_in + desc.n_out;
    for (int i = 0; i < n; i++) {
        hki_tensor_desc *t =
            i < desc.n_in ? &desc.in[i] : &desc.out[i - desc.n_in];
        if (t->dtype == 0)
            continue;
        assert_ok(hki_zalloc_array(bytes_of(t), 1, &a[i]));
        assert_ok(hki_zalloc_array(bytes_of(t), 1, &b[i]));
        if (i < desc.n_in)
            fill(t, a[i], (uint64_t)i);
        const bool image = t->shape.rank == 4 && t->shape.dim[3] % 16 == 0 &&
                           !(desc.op == HKI_OP_conv2d && i == 1) &&
                           !(desc.op == HKI_OP_conv2d_grad_input && i == 1) &&
                           !(desc.op == HKI_OP_conv2d_grad_filter && i == 2);
        if (image && format != HKI_PLAIN)
            t->format = format;
        if (t->format != HKI_PLAIN)
            convert(t, a[i], b[i], true);
        else
            memcpy(b[i], a[i], bytes_of(t));
    }
    // Batch norm's variances are not negative.
    if (desc.op == HKI_OP_batch_norm_grad)
        for (size_t i = 0; i < bytes_of(&desc.in[4]) / 4; i++)
            ((float *)b[4])[i] = ((float *)a[4])[i] =
                fabsf(((float *)a[4])[i]) + 0.1f;
    hki_device *ds = open_device(slow, 1, HK_ISA_BASE);
    hki_device *df = open_device(fast, threads, isa);
    assert_ok(run_on(slow, ds, plain, a));
    assert_ok(run_on(fast, df, &desc, b));
    for (int i = desc.n_in; i < n; i++) {
        const hki_tensor_desc *t = &desc.out[i - desc.n_in];
        void *got;
        assert_ok(hki_zalloc_array(bytes_of(t), 1, &got));
        if (t->format != HKI_PLAIN)
            convert(t, b[i], got, false);
        else
            memcpy(got, b[i], bytes_of(t));
        compare(what, t, got, a[i], 2e-5);
        hki_free(got);
    }
    slow->device_close(ds);
    fast->device_close(df);
    for (int i = 0; i < n; i++) {
        hki_free(a[i]);
        hki_free(b[i]);
    }
}

static void check_all(const char *what, const hki_kernel_desc *d,
                      bool blocked) {
    for (hk_isa isa = HK_ISA_BASE; isa <= hki_isa_best(); isa++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            check(what, d, HKI_PLAIN, isa, threads);
            if (blocked)
                check(what, d, HKI_BLOCKED_8, isa, threads);
            if (blocked)
                check(what, d, HKI_BLOCKED_16, isa, threads);
        }
}

// ---- large work -----------------------------------------------------------

static void large_elementwise(void **state) {
    (void)state;
    hki_kernel_desc d = call(HKI_OP_unary, (hki_attr){.mode = HKI_U_GELU});
    d.n_in = d.n_out = 1;
    d.in[0] = d.out[0] = F32(3, 17, 1031);
    check_all("gelu", &d, false);
    d = call(HKI_OP_binary, (hki_attr){.mode = HKI_B_SUB});
    d.n_in = 2;
    d.n_out = 1;
    d.in[0] = d.out[0] = F32(40, 7, 201);
    d.in[1] = F32(7, 1);
    check_all("sub [40,7,201] [7,1]", &d, false);
    d.in[1] = F32(201);
    check_all("sub [40,7,201] [201]", &d, false);
    d.in[0] = F32(40, 1, 201);
    d.in[1] = F32(7, 201);
    check_all("sub [40,1,201] [7,201]", &d, false);
    d = call(HKI_OP_dropout, (hki_attr){.stream = 5});
    d.n_in = 2;
    d.n_out = 1;
    d.in[0] = d.out[0] = F32(70001);
    d.in[1] = tensor(HK_F32, 0, NULL);
    static float rate = 0.3f;
    for (hk_isa isa = HK_ISA_BASE; isa <= hki_isa_best(); isa++) {
        // The mask is the same to the bit.
        static float x[70001], y[2][70001];
        fill(&d.in[0], x, 1);
        for (int i = 0; i < 2; i++) {
            const hki_backend *be =
                i == 0 ? &hki_backend_reference : &hki_backend_onednn;
            hki_device *dev =
                open_device(be, i == 0 ? 1 : 3, i == 0 ? HK_ISA_BASE : isa);
            void *const arg[] = {x, &rate, y[i]};
            assert_ok(run_on(be, dev, &d, arg));
            be->device_close(dev);
        }
        for (int i = 0; i < 70001; i++)
            assert_int_equal(y[0][i] == 0.0f, y[1][i] == 0.0f);
    }
}

static void large_reductions(void **state) {
    (void)state;
    static const struct {
        uint32_t axes;
        int64_t out[3];
        int rank;
    } cases[] = {
        {7, {0}, 0}, {6, {130}, 1}, {1, {9, 77}, 2}, {2, {130, 77}, 2}};
    for (size_t i = 0; i < HKI_COUNT(cases); i++)
        for (int mode = HKI_R_SUM; mode <= HKI_R_MAX; mode++) {
            hki_kernel_desc d = call(
                HKI_OP_reduce, (hki_attr){.mode = mode, .axes = cases[i].axes});
            d.n_in = d.n_out = 1;
            d.in[0] = F32(130, 9, 77);
            d.out[0] = tensor(HK_F32, cases[i].rank, cases[i].out);
            check_all("reduce [130,9,77]", &d, false);
        }
    for (int act = HKI_U_NONE; act <= HKI_U_RELU; act++) {
        hki_kernel_desc d = call(HKI_OP_act_bias_grad, (hki_attr){.act = act});
        d.n_in = d.n_out = 2;
        d.in[0] = d.in[1] = d.out[0] = F32(5, 17, 9, 48);
        d.out[1] = F32(48);
        check_all("act_bias_grad", &d, true);
    }
}

static void large_norms(void **state) {
    (void)state;
    for (int residual = 0; residual < 2; residual++) {
        const hki_attr a = {.eps = 1e-3, .act = HKI_U_RELU, .mode = residual};
        hki_kernel_desc d = call(HKI_OP_batch_norm, a);
        d.n_in = 4;
        d.n_out = 3;
        d.in[0] = d.out[0] = F32(6, 13, 11, 32);
        d.in[1] = d.in[2] = d.out[1] = d.out[2] = F32(32);
        d.in[3] = residual ? d.in[0] : (hki_tensor_desc){0};
        check_all("batch_norm", &d, true);
        d = call(HKI_OP_batch_norm_grad, a);
        d.n_in = 6;
        d.n_out = 3 + residual;
        d.in[0] = d.in[1] = d.in[5] = d.out[0] = d.out[3] = F32(6, 13, 11, 32);
        d.in[2] = d.in[3] = d.in[4] = d.out[1] = d.out[2] = F32(32);
        check_all("batch_norm_grad", &d, true);
    }
    hki_kernel_desc d = call(HKI_OP_layer_norm, (hki_attr){.eps = 1e-5});
    d.n_in = d.n_out = 3;
    d.in[0] = d.out[0] = F32(250, 101);
    d.in[1] = d.in[2] = F32(101);
    d.out[1] = d.out[2] = F32(250);
    check_all("layer_norm", &d, false);
    d = call(HKI_OP_softmax, (hki_attr){0});
    d.n_in = d.n_out = 1;
    d.in[0] = d.out[0] = F32(250, 101);
    check_all("softmax", &d, false);
}

static void large_images(void **state) {
    (void)state;
    hki_attr a = {.ksize = {3, 3}, .stride = {2, 2}, .pad = {0, 1, 0, 1}};
    hki_kernel_desc d = call(HKI_OP_max_pool, a);
    d.n_in = 1;
    d.n_out = 2;
    d.in[0] = F32(4, 16, 16, 48);
    d.out[0] = F32(4, 8, 8, 48);
    d.out[1] = tensor(HK_U8, 4, (const int64_t[]){4, 8, 8, 48});
    check_all("max_pool", &d, true);
    d = call(HKI_OP_avg_pool, a);
    d.n_in = d.n_out = 1;
    d.in[0] = F32(4, 16, 16, 48);
    d.out[0] = F32(4, 8, 8, 48);
    check_all("avg_pool", &d, true);
    for (int window = 2; window <= 3; window++) {
        a = (hki_attr){.ksize = {window, window},
                       .stride = {2, 2},
                       .act = HKI_U_RELU,
                       .rank = 4,
                       .dims = {4, 17, 17, 48}};
        d = call(HKI_OP_max_pool_grad, a);
        d.n_in = 3;
        d.n_out = 1;
        d.in[0] = d.in[2] = F32(4, 8, 8, 48);
        d.in[1] = tensor(HK_U8, 4, (const int64_t[]){4, 8, 8, 48});
        d.out[0] = F32(4, 17, 17, 48);
        check_all("max_pool_grad", &d, true);
    }
}

// Every layout a convolution can meet, Winograd included.
static void convolutions(void **state) {
    (void)state;
    for (int depth = 1; depth <= 64; depth *= 4) {
        const hki_attr a = {.stride = {1, 1},
                            .dilation = {1, 1},
                            .pad = {1, 1, 1, 1},
                            .groups = 1,
                            .act = HKI_U_RELU};
        hki_kernel_desc d = call(HKI_OP_conv2d, a);
        d.n_in = 3;
        d.n_out = 1;
        d.in[0] = F32(3, 12, 10, depth);
        d.in[1] = F32(3, 3, depth, 32);
        d.in[2] = F32(32);
        d.out[0] = F32(3, 12, 10, 32);
        check_all("conv2d", &d, true);
        hki_attr g = a;
        g.act = HKI_U_NONE;
        g.rank = 4;
        memcpy(g.dims, d.in[0].shape.dim, sizeof g.dims);
        d = call(HKI_OP_conv2d_grad_input, g);
        d.n_in = 2;
        d.n_out = 1;
        d.in[0] = F32(3, 12, 10, 32);
        d.in[1] = F32(3, 3, depth, 32);
        d.out[0] = F32(3, 12, 10, depth);
        check_all("conv2d_grad_input", &d, true);
        memcpy(g.dims, d.in[1].shape.dim, sizeof g.dims);
        g.mode = 1;
        d = call(HKI_OP_conv2d_grad_filter, g);
        d.n_in = d.n_out = 2;
        d.in[0] = F32(3, 12, 10, depth);
        d.in[1] = F32(3, 12, 10, 32);
        d.out[0] = F32(3, 3, depth, 32);
        d.out[1] = F32(32);
        check_all("conv2d_grad_filter", &d, true);
    }
}

// ---- special values -------------------------------------------------------

// Infinities and NaN come out of every function as from the portable kernel.
static void special_values(void **state) {
    (void)state;
    // Subnormal numbers count as zero while a queue runs.
    float x[] = {INFINITY, -INFINITY, NAN,    0.0f, -0.0f, 3e38f,
                 -3e38f,   89.0f,     -89.0f, 1.0f, -1.0f};
    const hki_tensor_desc t = F32(HKI_COUNT(x));
    for (hk_isa isa = HK_ISA_BASE; isa <= hki_isa_best(); isa++)
        for (int fn = HKI_U_RELU; fn < HKI_U_NOT; fn++) {
            const hki_attr a = {.mode = fn, .alpha = 0.5, .beta = 2.0};
            hki_kernel_desc d = call(HKI_OP_unary, a);
            float y[2][HKI_COUNT(x)];
            d.n_in = d.n_out = 1;
            d.in[0] = d.out[0] = t;
            for (int i = 0; i < 2; i++) {
                const hki_backend *be =
                    i == 0 ? &hki_backend_reference : &hki_backend_onednn;
                hki_device *dev =
                    open_device(be, 1, i == 0 ? HK_ISA_BASE : isa);
                void *const arg[] = {x, y[i]};
                assert_ok(run_on(be, dev, &d, arg));
                be->device_close(dev);
            }
            // Results below the smallest normal number may be cut.
            hk_test_floats("unary", y[1], y[0], HKI_COUNT(x), 1e-37, 1e-6);
        }
}

// oneDNN's fused relu makes 0 of a NaN; Hooke's convolution does not.
static void nan_stays_visible(void **state) {
    (void)state;
    const hki_attr a = {
        .stride = {1, 1}, .dilation = {1, 1}, .groups = 1, .act = HKI_U_RELU};
    for (int where = 0; where < 3; where++) {
        hki_kernel_desc d = call(HKI_OP_conv2d, a);
        float x[2 * 4] = {1, 2, 3, 4, 5, 6, 7, 8}, w[4 * 3] = {1, 1, 1}, b[3];
        float y[2 * 3];
        float *const in[] = {x, w, b};
        memset(b, 0, sizeof b);
        in[where][0] = NAN;
        d.n_in = 3;
        d.n_out = 1;
        d.in[0] = F32(2, 1, 1, 4);
        d.in[1] = F32(1, 1, 4, 3);
        d.in[2] = F32(3);
        d.out[0] = F32(2, 1, 1, 3);
        hki_device *dev = open_device(&hki_backend_onednn, 1, hki_isa_best());
        void *const arg[] = {x, w, b, y};
        assert_ok(run_on(&hki_backend_onednn, dev, &d, arg));
        assert_true(isnan(y[0]));
        hki_backend_onednn.device_close(dev);
    }
}

// ---- threads and failures -------------------------------------------------

typedef struct inside {
    hki_queue *q;
    hk_status status;
} inside;

static void begin_inside(void *user) {
    inside *p = user;
    HKI_TSAN_ACQUIRE(p);
    const hk_status s = hki_backend_onednn.queue_begin(p->q, 0, 0);
    if (s == HK_OK)
        hki_backend_onednn.queue_end(p->q);
    if (omp_get_thread_num() == 0)
        p->status = s;
    HKI_TSAN_RELEASE(p);
}

static void thread_counts(void **state) {
    (void)state;
    const hki_backend *be = &hki_backend_onednn;
    hki_device *d = open_device(be, 2, hki_isa_best());
    inside p;
    assert_ok(be->queue_create(d, &p.q));
    const int before = omp_get_max_threads();
    assert_status(be->queue_end(p.q), HK_E_STATE);
    assert_ok(be->queue_begin(p.q, 0, 0));
    assert_int_equal(omp_get_max_threads(), 2);
    assert_status(be->queue_begin(p.q, 0, 0), HK_E_STATE);
    assert_ok(be->queue_end(p.q));
    assert_int_equal(omp_get_max_threads(), before);
    // A primitive for two threads must not run where one is all there is.
    HKI_TSAN_RELEASE(&p);
    GOMP_parallel(begin_inside, &p, 2, 0);
    HKI_TSAN_ACQUIRE(&p);
    assert_int_equal(p.status, HK_E_STATE);
    be->queue_destroy(p.q);

    hki_kernel_desc desc = call(HKI_OP_unary, (hki_attr){.mode = HKI_U_NEG});
    desc.n_in = desc.n_out = 1;
    desc.in[0] = desc.out[0] = F32(4);
    hki_kernel *k;
    assert_ok(be->kernel_create(d, &desc, &k));
    assert_ok(be->queue_create(d, &p.q));
    const hki_loc none[2] = {{0}};
    assert_status(be->kernel_run(k, NULL, p.q, none, none[0]), HK_E_STATE);
    be->queue_destroy(p.q);
    be->kernel_destroy(k);
    be->device_close(d);
}

static hk_status make_everything(void *user) {
    const hki_backend *be = user;
    const hki_device_options opt = {.threads = 2, .isa = hki_isa_best()};
    hki_device *d = NULL;
    hki_queue *q = NULL;
    hki_kernel *k[2] = {0};
    hki_kernel_state *s[2] = {0};
    hki_kernel_desc desc[2] = {
        call(HKI_OP_conv2d, (hki_attr){.stride = {1, 1},
                                       .dilation = {1, 1},
                                       .groups = 1,
                                       .act = HKI_U_RELU}),
        call(HKI_OP_dense, (hki_attr){0})};
    desc[0].n_in = desc[1].n_in = 2;
    desc[0].n_out = desc[1].n_out = 1;
    desc[0].in[0] = F32(2, 5, 5, 16);
    desc[0].in[1] = F32(3, 3, 16, 16);
    desc[0].out[0] = F32(2, 3, 3, 16);
    desc[1].in[0] = desc[1].in[1] = desc[1].out[0] = F32(16, 16);
    hk_status st = be->device_open(&opt, &d);
    if (st == HK_OK)
        st = be->queue_create(d, &q);
    for (int i = 0; i < 2 && st == HK_OK; i++) {
        st = be->kernel_create(d, &desc[i], &k[i]);
        if (st == HK_OK)
            st = be->state_create(k[i], &s[i]);
    }
    for (int i = 0; i < 2; i++) {
        be->state_destroy(s[i]);
        be->kernel_destroy(k[i]);
    }
    be->queue_destroy(q);
    be->device_close(d);
    return st;
}

// ---- signals ----------------------------------------------------------------

static char *stack_low, *stack_high; // of the thread that the tests run in
static volatile sig_atomic_t rang, astray;

static void on_alarm(int number) {
    (void)number;
    char here;
    rang++;
    if (&here < stack_low || &here >= stack_high)
        astray++;
}

static void find_stack(void) {
    pthread_attr_t a;
    void *low;
    size_t size;
    assert_int_equal(pthread_getattr_np(pthread_self(), &a), 0);
    assert_int_equal(pthread_attr_getstack(&a, &low, &size), 0);
    pthread_attr_destroy(&a);
    stack_low = low;
    stack_high = stack_low + size;
}

// A product with a long inner dimension: the generated kernel then has its
// stack pointer in a buffer of its own.
static void multiply(uint32_t threads, int trans) {
    const hki_backend *const be = &hki_backend_onednn;
    hki_device *const d = open_device(be, threads, hki_isa_best());
    hki_kernel_desc desc =
        call(HKI_OP_matmul,
             (hki_attr){.trans_a = trans == 1, .trans_b = trans == 2});
    desc.n_in = 2;
    desc.n_out = 1;
    desc.in[0] = trans == 1 ? F32(784, 64) : F32(64, 784);
    desc.in[1] = trans == 2 ? F32(128, 784) : F32(784, 128);
    desc.out[0] = F32(64, 128);
    float *arg[3];
    for (int i = 0; i < 3; i++) {
        const hki_tensor_desc *const t = i < 2 ? &desc.in[i] : &desc.out[0];
        assert_non_null(arg[i] = malloc(bytes_of(t)));
        if (i < 2)
            fill(t, arg[i], (uint64_t)i);
    }
    for (int i = 0; i < 100; i++)
        assert_ok(run_on(be, d, &desc, (void *[]){arg[0], arg[1], arg[2]}));
    for (int i = 0; i < 3; i++)
        free(arg[i]);
    be->device_close(d);
}

// A handler runs on the program's own stack only, never in a kernel.
static void signals_wait(void **state) {
    (void)state;
    const struct itimerval often = {{0, 100}, {0, 100}},
                           never = {{0, 0}, {0, 0}};
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    find_stack();
    assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
    assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
    for (uint32_t threads = 1; threads <= 2; threads++)
        for (int trans = 0; trans < 3; trans++)
            multiply(threads, trans);
    assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
    assert_true(rang > 0);
    assert_int_equal(astray, 0);
}

static void allocation_failures(void **state) {
    (void)state;
    hk_test_alloc_failures("onednn backend", make_everything,
                           (void *)(uintptr_t)&hki_backend_onednn);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_wait), // before others start threads
        cmocka_unit_test(large_elementwise),
        cmocka_unit_test(large_reductions),
        cmocka_unit_test(large_norms),
        cmocka_unit_test(large_images),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(special_values),
        cmocka_unit_test(nan_stays_visible),
        cmocka_unit_test(thread_counts),
        cmocka_unit_test(allocation_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void) {
    return 0;
}

#endif
