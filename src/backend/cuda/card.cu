// card.cu - cards as the CUDA runtime and cuBLASLt have them.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include "backend/cuda/card.h"
#include "backend/cuda/cuda_launch.h"

#define MAX_CARDS 16
#define EAGER_LOOKS 65536               // at a value that is to come
#define MOST_SCRATCH ((size_t)32 << 20) // what it recommends for Hopper

#define VALUE_ALIGN 16 // bytes, of what cuBLASLt is given; of scratch more

struct hki_card {
    int number;
    cublasLtHandle_t blas;
    cudaStream_t lanes[HKI_GRAPH_LANES]; // but for the first: of who records
    hki_card_info info;
};

// The calling thread's own, or a lane of what it records.
static thread_local cudaStream_t current_stream = cudaStreamPerThread;

cudaStream_t hki_stream(void) {
    return current_stream;
}

static hk_status told(const char *what, cudaError_t e) {
    return hki_fail(e == cudaErrorMemoryAllocation ? HK_E_NO_MEMORY
                                                   : HK_E_BACKEND,
                    "cuda: %s: %s", what, cudaGetErrorString(e));
}

#define CUDA(what, call)                                                       \
    do {                                                                       \
        const cudaError_t e_ = (call);                                         \
        if (e_ != cudaSuccess)                                                 \
            return told(what, e_);                                             \
    } while (0)

static hk_status blas_told(const char *what, cublasStatus_t s) {
    return hki_fail(s == CUBLAS_STATUS_ALLOC_FAILED ? HK_E_NO_MEMORY
                                                    : HK_E_BACKEND,
                    "cuda: %s: %s", what, cublasLtGetStatusString(s));
}

#define BLAS(what, call)                                                       \
    do {                                                                       \
        const cublasStatus_t s_ = (call);                                      \
        if (s_ != CUBLAS_STATUS_SUCCESS)                                       \
            return blas_told(what, s_);                                        \
    } while (0)

// ---- cards ------------------------------------------------------------------

static hk_status old_driver(void) {
    int has = 0;
    (void)cudaDriverGetVersion(&has);
    if (has == 0)
        return hki_fail(HK_E_BACKEND,
                        "cuda: the GPU driver of this machine does not answer; "
                        "check it with nvidia-smi, or use --device cpu");
    return hki_fail(
        HK_E_BACKEND,
        "cuda: the GPU driver of this machine is for CUDA %d.%d, but this "
        "build needs %d.%d; install a newer driver, or use --device cpu",
        has / 1000, has % 1000 / 10, CUDART_VERSION / 1000,
        CUDART_VERSION % 1000 / 10);
}

hk_status hki_card_count(int *out) {
    const cudaError_t e = cudaGetDeviceCount(out);
    if (e == cudaErrorInsufficientDriver)
        return old_driver();
    if (e == cudaErrorNoDevice || (e == cudaSuccess && *out == 0))
        return hki_fail(HK_E_BACKEND,
                        "cuda: the driver shows no device; check "
                        "CUDA_VISIBLE_DEVICES, or use --device cpu");
    return e == cudaSuccess ? HK_OK : told("counting devices", e);
}

const char *hki_card_version(void) {
    static char text[96];
    const size_t blas = cublasLtGetVersion();
    snprintf(text, sizeof text, "CUDA %d.%d, cuBLASLt %zu.%zu.%zu, %s",
             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, blas / 10000,
             blas / 100 % 100, blas % 100, hki_conv_version());
    return text;
}

// Threads start on card 0.
static hk_status use(const hki_card *c) {
    static thread_local int current = 0;
    if (current == c->number)
        return HK_OK;
    CUDA("choosing a device", cudaSetDevice(c->number));
    current = c->number;
    return HK_OK;
}

hk_status hki_card_use(const hki_card *c) {
    return use(c);
}

static hk_status open_card(int number, hki_card *c) {
    cudaDeviceProp p;
    size_t free_bytes = 0, bytes = 0;
    c->number = number;
    CUDA("choosing a device", cudaSetDevice(number));
    CUDA("asking a device", cudaGetDeviceProperties(&p, number));
    CUDA("asking for memory", cudaMemGetInfo(&free_bytes, &bytes));
    snprintf(c->info.name, sizeof c->info.name, "%.100s", p.name);
    c->info.bytes = bytes;
    c->info.free_bytes = free_bytes;
    c->info.major = p.major;
    c->info.minor = p.minor;
    c->info.processors = p.multiProcessorCount;
    for (int i = 1; i < HKI_GRAPH_LANES; i++)
        CUDA("a stream",
             cudaStreamCreateWithFlags(&c->lanes[i], cudaStreamNonBlocking));
    BLAS("opening cuBLASLt", cublasLtCreate(&c->blas));
    return HK_OK;
}

hk_status hki_card_open(int number, hki_card **out) {
    static hki_mutex lock = HKI_MUTEX_INIT;
    static hki_card cards[MAX_CARDS];
    static bool is_open[MAX_CARDS];
    int n = 0;
    HKI_TRY(hki_card_count(&n));
    if (number < 0 || number >= n || number >= MAX_CARDS)
        return hki_fail(HK_E_NOT_FOUND,
                        "cuda: there is no device %d; the machine has %d",
                        number, n);
    hki_mutex_lock(&lock);
    const hk_status s =
        is_open[number] ? HK_OK : open_card(number, &cards[number]);
    is_open[number] = s == HK_OK;
    hki_mutex_unlock(&lock);
    *out = &cards[number];
    return s == HK_OK ? use(*out) : s;
}

void hki_card_get_info(const hki_card *c, hki_card_info *out) {
    *out = c->info;
}

// ---- memory -----------------------------------------------------------------

static hk_status no_memory(const hki_card *c, size_t bytes) {
    size_t free_bytes = 0, all = 0;
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &all);
    return hki_fail(HK_E_NO_MEMORY,
                    "cuda: device %d (%s) has %.1f MiB free of %.1f, but %.1f "
                    "more are needed; use a smaller batch, fewer workers on "
                    "this device, or --device cpu",
                    c->number, c->info.name, (double)free_bytes / 0x1p20,
                    (double)all / 0x1p20, (double)bytes / 0x1p20);
}

hk_status hki_card_alloc(hki_card *c, size_t bytes, void **out) {
    HKI_TRY(use(c));
    *out = NULL;
    const size_t n = bytes > 0 ? bytes : 1;
    const cudaError_t e = cudaMalloc(out, n);
    if (e == cudaErrorMemoryAllocation)
        return no_memory(c, n);
    if (e != cudaSuccess)
        return told("memory", e);
    CUDA("memory", cudaMemsetAsync(*out, 0, n, current_stream));
    CUDA("memory", cudaStreamSynchronize(current_stream));
    return HK_OK;
}

void hki_card_free(hki_card *c, void *p) {
    if (p != NULL && use(c) == HK_OK)
        (void)cudaFree(p);
}

hk_status hki_card_alloc_host(hki_card *c, size_t bytes, void **out) {
    HKI_TRY(use(c));
    *out = NULL;
    CUDA("pinned memory",
         cudaHostAlloc(out, bytes > 0 ? bytes : 1,
                       cudaHostAllocPortable | cudaHostAllocMapped));
    return HK_OK;
}

void hki_card_free_host(hki_card *c, void *p) {
    if (p != NULL && use(c) == HK_OK)
        (void)cudaFreeHost(p);
}

hk_status hki_card_pin(hki_card *c, void *host, size_t bytes) {
    HKI_TRY(use(c));
    const cudaError_t e =
        cudaHostRegister(host, bytes, cudaHostRegisterPortable);
    if (e == cudaSuccess)
        return HK_OK;
    (void)cudaGetLastError();
    return told("pinning memory", e);
}

void hki_card_unpin(hki_card *c, void *host) {
    if (use(c) == HK_OK)
        (void)cudaHostUnregister(host);
}

// ---- streams ----------------------------------------------------------------

hk_status hki_card_up(hki_card *c, void *to, const void *from, size_t n) {
    HKI_TRY(use(c));
    CUDA("copying from host to device",
         cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, current_stream));
    return HK_OK;
}

hk_status hki_card_down(hki_card *c, void *to, const void *from, size_t n) {
    HKI_TRY(use(c));
    CUDA("copying from device to host",
         cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToHost, current_stream));
    return HK_OK;
}

hk_status hki_card_move(hki_card *c, void *to, const void *from, size_t n) {
    HKI_TRY(use(c));
    CUDA("copying", cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice,
                                    current_stream));
    return HK_OK;
}

hk_status hki_card_zero(hki_card *c, void *at, size_t n) {
    HKI_TRY(use(c));
    CUDA("zeroing", cudaMemsetAsync(at, 0, n, current_stream));
    return HK_OK;
}

hk_status hki_card_wait(hki_card *c) {
    HKI_TRY(use(c));
    CUDA("a run", cudaStreamSynchronize(current_stream));
    return HK_OK;
}

// A card cannot be waited for while one of its streams is recorded.
static hki_mutex recording = HKI_MUTEX_INIT;

hk_status hki_card_wait_all(hki_card *c) {
    HKI_TRY(use(c));
    hki_mutex_lock(&recording);
    const cudaError_t e = cudaDeviceSynchronize();
    hki_mutex_unlock(&recording);
    return e == cudaSuccess ? HK_OK : told("a run", e);
}

// Looks now and then whether there is still somebody to wait for.
// Small steps are over in a tenth of a millisecond, in which the host looks all
// the time; for longer ones it sleeps in between.
hk_status hki_card_wait_for(hki_card *c, const uint64_t *at, uint64_t value) {
    const struct timespec nap = {0, 20000};
    cudaError_t e = cudaErrorNotReady;
    HKI_TRY(use(c));
    for (int64_t i = 1; __atomic_load_n(at, __ATOMIC_ACQUIRE) < value; i++) {
        if (e == cudaSuccess)
            return hki_fail(HK_E_BACKEND, "cuda: a run ended without a value");
        if (i > EAGER_LOOKS)
            nanosleep(&nap, NULL);
        if (i % 1024 == 0)
            e = cudaStreamQuery(current_stream);
        if (e != cudaSuccess && e != cudaErrorNotReady)
            return told("a run", e);
    }
    return HK_OK;
}

hk_status hki_card_check(hki_card *c, const char *what) {
    (void)c;
    CUDA(what, cudaGetLastError());
    return HK_OK;
}

struct hki_mark {
    hki_card *card;
    cudaEvent_t event;
};

hk_status hki_mark_create(hki_card *c, hki_mark **out) {
    HKI_TRY(use(c));
    hki_mark *m;
    HKI_TRY(hki_zalloc_array(1, sizeof *m, &m));
    m->card = c;
    const cudaError_t e =
        cudaEventCreateWithFlags(&m->event, cudaEventDisableTiming);
    if (e != cudaSuccess) {
        hki_free(m);
        return told("an event", e);
    }
    *out = m;
    return HK_OK;
}

void hki_mark_destroy(hki_mark *m) {
    if (m == NULL)
        return;
    if (use(m->card) == HK_OK)
        (void)cudaEventDestroy(m->event);
    hki_free(m);
}

hk_status hki_mark_set(hki_mark *m) {
    HKI_TRY(use(m->card));
    CUDA("an event", cudaEventRecord(m->event, current_stream));
    return HK_OK;
}

hk_status hki_mark_wait(hki_mark *m) {
    HKI_TRY(use(m->card));
    CUDA("a copy", cudaEventSynchronize(m->event));
    return HK_OK;
}

hk_status hki_mark_follow(hki_mark *m) {
    CUDA("an event", cudaStreamWaitEvent(current_stream, m->event, 0));
    return HK_OK;
}

struct hki_side {
    hki_card *card;
    cudaStream_t stream;
};

hk_status hki_side_create(hki_card *c, hki_side **out) {
    HKI_TRY(use(c));
    hki_side *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->card = c;
    const cudaError_t e =
        cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) {
        hki_free(s);
        return told("a stream", e);
    }
    *out = s;
    return HK_OK;
}

void hki_side_destroy(hki_side *s) {
    if (s == NULL)
        return;
    if (use(s->card) == HK_OK)
        (void)cudaStreamDestroy(s->stream);
    hki_free(s);
}

hk_status hki_side_up(hki_side *s, void *to, const void *from, size_t n) {
    HKI_TRY(use(s->card));
    CUDA("copying from host to device",
         cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, s->stream));
    return HK_OK;
}

hk_status hki_side_mark(hki_side *s, hki_mark *m) {
    HKI_TRY(use(s->card));
    CUDA("an event", cudaEventRecord(m->event, s->stream));
    return HK_OK;
}

// ---- graphs -----------------------------------------------------------------

struct hki_graph {
    cudaGraphExec_t exec;
};

void hki_graph_lane(hki_card *c, int lane) {
    current_stream = lane == 0 ? cudaStreamPerThread : c->lanes[lane];
}

hk_status hki_graph_begin(hki_card *c) {
    HKI_TRY(use(c));
    hki_mutex_lock(&recording);
    const cudaError_t e = cudaStreamBeginCapture(
        current_stream, cudaStreamCaptureModeThreadLocal);
    if (e == cudaSuccess)
        return HK_OK;
    hki_mutex_unlock(&recording);
    return told("recording", e);
}

static hk_status make_graph(cudaGraph_t from, hki_graph **out) {
    hki_graph *g;
    HKI_TRY(hki_zalloc_array(1, sizeof *g, &g));
    const cudaError_t e = cudaGraphInstantiate(&g->exec, from, 0);
    if (e != cudaSuccess) {
        hki_free(g);
        return told("a graph", e);
    }
    *out = g;
    return HK_OK;
}

hk_status hki_graph_end(hki_card *c, hki_graph **out) {
    cudaGraph_t graph = NULL;
    (void)c;
    const cudaError_t e = cudaStreamEndCapture(current_stream, &graph);
    hki_mutex_unlock(&recording);
    if (e != cudaSuccess)
        return told("recording", e);
    const hk_status s = make_graph(graph, out);
    (void)cudaGraphDestroy(graph);
    return s;
}

hk_status hki_graph_launch(hki_card *c, hki_graph *g) {
    HKI_TRY(use(c));
    CUDA("launching a graph", cudaGraphLaunch(g->exec, current_stream));
    return HK_OK;
}

void hki_graph_destroy(hki_graph *g) {
    if (g == NULL)
        return;
    (void)cudaGraphExecDestroy(g->exec);
    hki_free(g);
}

// ---- products ---------------------------------------------------------------
//
// cuBLASLt counts in columns: a row-major c = a b is the column-major
// c^T = b^T a^T, so that operands change places and nothing is transposed.

struct hki_product_plan {
    hki_card *card;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c; // as cuBLASLt has them: a is our b
    cublasLtMatmulAlgo_t algo;
    size_t scratch;
    bool bias;
};

void hki_product_destroy(hki_product_plan *p) {
    if (p == NULL)
        return;
    if (p->a != NULL)
        (void)cublasLtMatrixLayoutDestroy(p->a);
    if (p->b != NULL)
        (void)cublasLtMatrixLayoutDestroy(p->b);
    if (p->c != NULL)
        (void)cublasLtMatrixLayoutDestroy(p->c);
    if (p->op != NULL)
        (void)cublasLtMatmulDescDestroy(p->op);
    hki_free(p);
}

// rows and columns as stored row by row.
static hk_status make_layout(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                             int64_t rows, int64_t columns, int64_t batch,
                             int64_t stride) {
    const int32_t n = (int32_t)batch;
    BLAS("a layout", cublasLtMatrixLayoutCreate(out, type, (uint64_t)columns,
                                                (uint64_t)rows, columns));
    if (batch == 1)
        return HK_OK;
    BLAS("a layout",
         cublasLtMatrixLayoutSetAttribute(
             *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
    BLAS("a layout", cublasLtMatrixLayoutSetAttribute(
                         *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                         &stride, sizeof stride));
    return HK_OK;
}

static hk_status describe(hki_product_plan *p, const hki_product *d) {
    const bool bf16 = d->precision == HK_PRECISION_BF16;
    const cudaDataType_t factors = bf16 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasOperation_t ta = d->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t tb = d->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t end =
        d->bias
            ? (d->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
            : (d->relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
    BLAS("a product",
         cublasLtMatmulDescCreate(&p->op,
                                  d->precision == HK_PRECISION_FP32 || bf16
                                      ? CUBLAS_COMPUTE_32F
                                      : CUBLAS_COMPUTE_32F_FAST_TF32,
                                  CUDA_R_32F));
    BLAS("a product", cublasLtMatmulDescSetAttribute(
                          p->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta));
    BLAS("a product", cublasLtMatmulDescSetAttribute(
                          p->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb));
    BLAS("a product",
         cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                        &end, sizeof end));
    HKI_TRY(make_layout(&p->a, factors, d->trans_b ? d->n : d->k,
                        d->trans_b ? d->k : d->n, d->batch, d->stride_b));
    HKI_TRY(make_layout(&p->b, factors, d->trans_a ? d->k : d->m,
                        d->trans_a ? d->m : d->k, d->batch, d->stride_a));
    return make_layout(&p->c, CUDA_R_32F, d->m, d->n, d->batch, d->stride_c);
}

// The library's first choice for the shapes: the same at every start. A
// placeholder stands for the address of the bias, which asks for nothing.
static hk_status choose(hki_product_plan *p) {
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    cublasLtMatmulPreference_t want;
    cublasLtMatmulHeuristicResult_t found = {};
    const size_t most = MOST_SCRATCH;
    const uint32_t align = VALUE_ALIGN;
    int n = 0;
    BLAS("a product", cublasLtMatmulPreferenceCreate(&want));
    (void)cublasLtMatmulPreferenceSetAttribute(
        want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    for (int i = 0; i < 4; i++)
        (void)cublasLtMatmulPreferenceSetAttribute(want, aligned[i], &align,
                                                   sizeof align);
    const cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(
        p->card->blas, p->op, p->a, p->b, p->c, p->c, want, 1, &found, &n);
    (void)cublasLtMatmulPreferenceDestroy(want);
    if (s != CUBLAS_STATUS_SUCCESS)
        return blas_told("choosing a product", s);
    if (n == 0)
        return hki_fail(
            HK_E_BACKEND,
            "cuda: cuBLASLt offers no algorithm for a matrix product");
    p->algo = found.algo;
    p->scratch = found.workspaceSize;
    return HK_OK;
}

hk_status hki_product_create(hki_card *c, const hki_product *d,
                             hki_product_plan **out) {
    HKI_TRY(use(c));
    hki_product_plan *p;
    HKI_TRY(hki_zalloc_array(1, sizeof *p, &p));
    p->card = c;
    p->bias = d->bias;
    hk_status s = describe(p, d);
    if (s == HK_OK)
        s = choose(p);
    if (s != HK_OK) {
        hki_product_destroy(p);
        return s;
    }
    *out = p;
    return HK_OK;
}

size_t hki_product_scratch(const hki_product_plan *p) {
    return p->scratch;
}

hk_status hki_product_run(const hki_product_plan *p, const void *a,
                          const void *b, const float *bias, float *c,
                          void *scratch) {
    const float one = 1, zero = 0;
    HKI_TRY(use(p->card));
    // The description is shared by sessions: a copy carries the address.
    cublasLtMatmulDesc_t op = p->op;
    cublasLtMatmulDescOpaque_t with_bias;
    if (p->bias) {
        with_bias = *(const cublasLtMatmulDescOpaque_t *)p->op;
        op = &with_bias;
        BLAS("a product",
             cublasLtMatmulDescSetAttribute(
                 op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    }
    BLAS("a product", cublasLtMatmul(p->card->blas, op, &one, b, p->a, a, p->b,
                                     &zero, c, p->c, c, p->c, &p->algo, scratch,
                                     p->scratch, current_stream));
    return HK_OK;
}
