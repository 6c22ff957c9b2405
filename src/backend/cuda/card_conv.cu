// card_conv.cu - convolutions as cuDNN has them.
//
// The library is large and not on every machine: it is loaded when the first
// convolution asks for it, and done without where it is not found. It chooses
// by shape, among ways that give the same result every time.
#include <cstdio>
#include <dlfcn.h>
#include <cuda_runtime.h>
#include "backend/cuda/card.h"
#include "backend/cuda/cuda_launch.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>

#define MAX_CARDS 16
#define MOST_SCRATCH ((size_t)128 << 20)
#define MAX_WAYS 8
// Below, its launches and the reordering of filters cost more than the work.
#define SMALL_FLOP 3e8

#define CALLS(X)                                                               \
    X(GetVersion)                                                              \
    X(Create)                                                                  \
    X(SetStream)                                                               \
    X(GetErrorString)                                                          \
    X(CreateTensorDescriptor)                                                  \
    X(SetTensor4dDescriptor)                                                   \
    X(DestroyTensorDescriptor)                                                 \
    X(CreateFilterDescriptor)                                                  \
    X(SetFilter4dDescriptor)                                                   \
    X(DestroyFilterDescriptor)                                                 \
    X(CreateConvolutionDescriptor)                                             \
    X(SetConvolution2dDescriptor)                                              \
    X(SetConvolutionGroupCount)                                                \
    X(SetConvolutionMathType)                                                  \
    X(DestroyConvolutionDescriptor)                                            \
    X(GetConvolutionForwardAlgorithm_v7)                                       \
    X(GetConvolutionBackwardDataAlgorithm_v7)                                  \
    X(GetConvolutionBackwardFilterAlgorithm_v7)                                \
    X(ConvolutionForward)                                                      \
    X(ConvolutionBackwardData)                                                 \
    X(ConvolutionBackwardFilter)

static struct {
    pthread_once_t once;
    bool is_there;
#define POINTER(name) decltype(&cudnn##name) name;
    CALLS(POINTER)
#undef POINTER
} dnn = {PTHREAD_ONCE_INIT, false};

static void load(void) {
    void *const lib = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        return;
#define FIND(name)                                                             \
    *(void **)&dnn.name = dlsym(lib, "cudnn" #name);                           \
    if (dnn.name == NULL)                                                      \
        return;
    CALLS(FIND)
#undef FIND
    dnn.is_there = true;
}

// One of each card, used by one thread at a time: launches are short, and
// recorded once.
static hki_mutex lock = HKI_MUTEX_INIT;
static cudnnHandle_t handles[MAX_CARDS];

// Of the thread's card, with its stream; NULL: the library does not start.
static cudnnHandle_t handle_locked(void) {
    int card = 0;
    if (cudaGetDevice(&card) != cudaSuccess || card >= MAX_CARDS)
        return NULL;
    if (handles[card] == NULL &&
        dnn.Create(&handles[card]) != CUDNN_STATUS_SUCCESS)
        handles[card] = NULL;
    if (handles[card] != NULL &&
        dnn.SetStream(handles[card], hki_stream()) != CUDNN_STATUS_SUCCESS)
        return NULL;
    return handles[card];
}

struct hki_conv_plan {
    hki_card *card;
    hki_conv d;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    int algo;
    size_t scratch;
};

void hki_conv_destroy(hki_conv_plan *p) {
    if (p == NULL)
        return;
    if (p->x != NULL)
        (void)dnn.DestroyTensorDescriptor(p->x);
    if (p->y != NULL)
        (void)dnn.DestroyTensorDescriptor(p->y);
    if (p->w != NULL)
        (void)dnn.DestroyFilterDescriptor(p->w);
    if (p->conv != NULL)
        (void)dnn.DestroyConvolutionDescriptor(p->conv);
    hki_free(p);
}

size_t hki_conv_scratch(const hki_conv_plan *p) {
    return p->scratch;
}

// ---- describing and choosing ------------------------------------------------

static bool ok(cudnnStatus_t s) {
    return s == CUDNN_STATUS_SUCCESS;
}

static bool describe(hki_conv_plan *p) {
    const hki_conv *const d = &p->d;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnTensorFormat_t last = CUDNN_TENSOR_NHWC;
    return ok(dnn.CreateTensorDescriptor(&p->x)) &&
           ok(dnn.CreateTensorDescriptor(&p->y)) &&
           ok(dnn.CreateFilterDescriptor(&p->w)) &&
           ok(dnn.CreateConvolutionDescriptor(&p->conv)) &&
           ok(dnn.SetTensor4dDescriptor(p->x, last, type, d->n, d->c, d->h,
                                        d->w)) &&
           ok(dnn.SetTensor4dDescriptor(p->y, last, type, d->n, d->oc, d->oh,
                                        d->ow)) &&
           ok(dnn.SetFilter4dDescriptor(p->w, type, last, d->oc,
                                        d->c / d->groups, d->kh, d->kw)) &&
           ok(dnn.SetConvolution2dDescriptor(p->conv, d->top, d->left, d->sh,
                                             d->sw, d->dh, d->dw,
                                             CUDNN_CROSS_CORRELATION, type)) &&
           ok(dnn.SetConvolutionGroupCount(p->conv, d->groups)) &&
           // The default is TF32 where floats are multiplied.
           ok(dnn.SetConvolutionMathType(p->conv,
                                         d->precision == HK_PRECISION_FP32
                                             ? CUDNN_FMA_MATH
                                             : CUDNN_DEFAULT_MATH));
}

// The first of what the library proposes that has one result, and no less
// precision than asked for.
template <typename Found>
static bool pick(hki_conv_plan *p, const Found *found, int n) {
    const bool fp32 = p->d.precision == HK_PRECISION_FP32;
    for (int i = 0; i < n; i++) {
        const cudnnMathType_t math = found[i].mathType;
        if (!ok(found[i].status) ||
            found[i].determinism != CUDNN_DETERMINISTIC ||
            found[i].memory > MOST_SCRATCH ||
            math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
            (fp32 && math == CUDNN_TENSOR_OP_MATH))
            continue;
        p->algo = (int)found[i].algo;
        p->scratch = found[i].memory;
        return fp32 || ok(dnn.SetConvolutionMathType(p->conv, math));
    }
    return false;
}

static bool choose(hki_conv_plan *p, cudnnHandle_t h) {
    int n = 0;
    if (p->d.way == HKI_CONV_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t found[MAX_WAYS];
        return ok(dnn.GetConvolutionForwardAlgorithm_v7(
                   h, p->x, p->w, p->conv, p->y, MAX_WAYS, &n, found)) &&
               pick(p, found, n);
    }
    if (p->d.way == HKI_CONV_INPUT) {
        cudnnConvolutionBwdDataAlgoPerf_t found[MAX_WAYS];
        return ok(dnn.GetConvolutionBackwardDataAlgorithm_v7(
                   h, p->w, p->y, p->conv, p->x, MAX_WAYS, &n, found)) &&
               pick(p, found, n);
    }
    cudnnConvolutionBwdFilterAlgoPerf_t found[MAX_WAYS];
    return ok(dnn.GetConvolutionBackwardFilterAlgorithm_v7(
               h, p->x, p->y, p->conv, p->w, MAX_WAYS, &n, found)) &&
           pick(p, found, n);
}

// ---- running ----------------------------------------------------------------

static cudnnStatus_t run_locked(const hki_conv_plan *p, cudnnHandle_t h,
                                const float *a, const float *b, float *to,
                                void *scratch) {
    const float one = 1, zero = 0;
    if (p->d.way == HKI_CONV_FORWARD)
        return dnn.ConvolutionForward(h, &one, p->x, a, p->w, b, p->conv,
                                      (cudnnConvolutionFwdAlgo_t)p->algo,
                                      scratch, p->scratch, &zero, p->y, to);
    if (p->d.way == HKI_CONV_INPUT)
        return dnn.ConvolutionBackwardData(
            h, &one, p->w, b, p->y, a, p->conv,
            (cudnnConvolutionBwdDataAlgo_t)p->algo, scratch, p->scratch, &zero,
            p->x, to);
    return dnn.ConvolutionBackwardFilter(
        h, &one, p->x, a, p->y, b, p->conv,
        (cudnnConvolutionBwdFilterAlgo_t)p->algo, scratch, p->scratch, &zero,
        p->w, to);
}

static cudnnStatus_t run_once(const hki_conv_plan *p, const float *a,
                              const float *b, float *to, void *scratch) {
    hki_mutex_lock(&lock);
    const cudnnHandle_t h = handle_locked();
    const cudnnStatus_t s = h == NULL ? CUDNN_STATUS_NOT_INITIALIZED
                                      : run_locked(p, h, a, b, to, scratch);
    hki_mutex_unlock(&lock);
    return s;
}

hk_status hki_conv_run(const hki_conv_plan *p, const float *a, const float *b,
                       float *to, void *scratch) {
    HKI_TRY(hki_card_use(p->card));
    const cudnnStatus_t s = run_once(p, a, b, to, scratch);
    if (!ok(s))
        return hki_fail(HK_E_BACKEND, "cuda: a convolution: %s",
                        dnn.GetErrorString(s));
    return HK_OK;
}

// Runs it on zeros: what the library proposes is not always what it does, and
// what it loads it loads now, not while a run is recorded.
static hk_status try_out(const hki_conv_plan *p, bool *works) {
    const hki_conv *const d = &p->d;
    const size_t x = (size_t)d->n * d->h * d->w * d->c;
    const size_t y = (size_t)d->n * d->oh * d->ow * d->oc;
    const size_t w = (size_t)d->oc * d->kh * d->kw * (d->c / d->groups);
    const size_t a = d->way == HKI_CONV_INPUT ? y : x;
    const size_t b = d->way == HKI_CONV_FILTER ? y : w;
    const size_t to = d->way == HKI_CONV_FORWARD ? y
                      : d->way == HKI_CONV_INPUT ? x
                                                 : w;
    const size_t most = a > b ? a > to ? a : to : b > to ? b : to;
    const size_t each = (most * sizeof(float) + 255) / 256 * 256;
    void *at;
    HKI_TRY(hki_card_alloc(p->card, 3 * each + p->scratch, &at));
    char *const base = (char *)at;
    *works = ok(run_once(p, (const float *)base, (const float *)(base + each),
                         (float *)(base + 2 * each), base + 3 * each));
    const hk_status s = hki_card_wait(p->card);
    hki_card_free(p->card, at);
    return s;
}

const char *hki_conv_version(void) {
    static char text[32];
    pthread_once(&dnn.once, load);
    if (!dnn.is_there)
        return "no cuDNN 9";
    const size_t v = dnn.GetVersion();
    snprintf(text, sizeof text, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100,
             v % 100);
    return text;
}

static bool plan_it(hki_conv_plan *p) {
    hki_mutex_lock(&lock);
    const cudnnHandle_t h = handle_locked();
    const bool is_planned = h != NULL && describe(p) && choose(p, h);
    hki_mutex_unlock(&lock);
    return is_planned;
}

hk_status hki_conv_create(hki_card *c, const hki_conv *d, hki_conv_plan **out) {
    hki_conv_plan *p;
    bool works = false;
    *out = NULL;
    if (hki_conv_flop(d) < SMALL_FLOP)
        return HK_OK;
    pthread_once(&dnn.once, load);
    if (!dnn.is_there)
        return HK_OK;
    HKI_TRY(hki_card_use(c));
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    p->card = c;
    p->d = *d;
    const hk_status s = plan_it(p) ? try_out(p, &works) : HK_OK;
    if (s == HK_OK && works)
        *out = p;
    else
        hki_conv_destroy(p);
    return s;
}

#else // built without its header: every convolution is our own

const char *hki_conv_version(void) {
    return "built without cuDNN";
}

hk_status hki_conv_create(hki_card *c, const hki_conv *d, hki_conv_plan **out) {
    (void)c;
    (void)d;
    *out = NULL;
    return HK_OK;
}

void hki_conv_destroy(hki_conv_plan *p) {
    (void)p;
}

size_t hki_conv_scratch(const hki_conv_plan *p) {
    (void)p;
    return 0;
}

hk_status hki_conv_run(const hki_conv_plan *p, const float *a, const float *b,
                       float *to, void *scratch) {
    (void)p;
    (void)a;
    (void)b;
    (void)to;
    (void)scratch;
    return hki_fail(HK_E_INTERNAL,
                    "cuda: a convolution needs cuDNN, which was not found");
}

#endif
