// apart.c - a backend for tests, whose memory the host cannot reach.
//
// Kernels and passes are those of the best engine of this build, so that
// results are the same bits; memory is what differs. Buffers are pages that can
// be touched only while the device works, between the begin and the end of a
// queue or inside a pass over vectors. The host's copy of a vector that is
// newer here holds a pattern, NaN to whoever reads it, and is looked at before
// it is used again, so that a write which would be lost is noticed. An address
// of the host where one of the device belongs is refused. What passes its tests
// here works on a device with memory of its own.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backend/apart/apart.h"
#include "backend/vector.h"

struct hki_device {
    const hki_backend *inner;
    hki_device *device;
    hki_place home; // of the passes over vectors
};

struct hki_buffer {
    const hki_backend *backend;
    hki_buffer *inner; // over memory
    void *memory;
    size_t bytes, pages; // pages: bytes of them
    hki_buffer *next;
};

struct hki_queue {
    hki_device *d;
    hki_queue *inner;
};

struct hki_kernel {
    hki_device *d;
    hki_kernel *inner;
    int n_args;
};

struct hki_kernel_state {
    const hki_backend *backend;
    hki_kernel_state *inner;
};

// ---- reach ------------------------------------------------------------------

// One memory for all devices of the process, as a card has it: sessions of
// several plans work on the same values.
static struct {
    hki_mutex lock; // guards the rest
    hki_buffer *buffers;
    int open; // who works at present
} card = {.lock = HKI_MUTEX_INIT};

static void protect(const hki_buffer *b, bool open) {
    if (b->pages > 0)
        (void)mprotect(b->memory, b->pages,
                       open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void change_open(int by) {
    hki_mutex_lock(&card.lock);
    const bool was = card.open > 0;
    card.open += by;
    const bool is = card.open > 0;
    for (const hki_buffer *b = card.buffers; was != is && b != NULL;
         b = b->next)
        protect(b, is);
    hki_mutex_unlock(&card.lock);
}

// Does an address belong to the device?
static bool is_here(const void *at) {
    bool found = false;
    hki_mutex_lock(&card.lock);
    for (const hki_buffer *b = card.buffers; !found && b != NULL; b = b->next)
        found = (const char *)at >= (const char *)b->memory &&
                (const char *)at < (const char *)b->memory + b->bytes;
    hki_mutex_unlock(&card.lock);
    return found;
}

// ---- device -----------------------------------------------------------------

static void device_close(hki_device *d) {
    if (d == NULL)
        return;
    if (d->device != NULL)
        d->inner->device_close(d->device);
    hki_free(d);
}

static hk_status device_open(const hki_device_options *opt, hki_device **out) {
    hki_device *d;
    HKI_TRY(hki_zalloc_array(1, sizeof *d, &d));
    hk_status s = hki_backend_find("onednn", &d->inner);
    if (s == HK_E_NOT_FOUND)
        s = hki_backend_find("reference", &d->inner);
    if (s == HK_OK)
        s = hki_place_home(&d->home, opt->isa, opt->threads, "apart");
    if (s == HK_OK)
        s = d->inner->device_open(opt, &d->device);
    HKI_TRY_OR(s, device_close(d));
    *out = d;
    return HK_OK;
}

// ---- buffers ----------------------------------------------------------------

static hk_status map_pages(hki_buffer *b) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (b->bytes == 0)
        return HK_OK;
    b->pages = (b->bytes + page - 1) / page * page;
    void *const at = mmap(NULL, b->pages, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        b->pages = 0;
        return hki_fail(HK_E_NO_MEMORY, "isolated device: cannot map %zu bytes",
                        b->bytes);
    }
    b->memory = at;
    return HK_OK;
}

static void unmap(hki_buffer *b) {
    if (b->inner != NULL)
        b->backend->buffer_destroy(b->inner);
    if (b->pages > 0)
        munmap(b->memory, b->pages);
    hki_free(b);
}

static hk_status buffer_create(hki_device *d, size_t bytes, hki_buffer **out) {
    hki_buffer *b;
    HKI_TRY(hki_zalloc_array(1, sizeof *b, &b));
    b->backend = d->inner;
    b->bytes = bytes;
    hk_status s = map_pages(b);
    if (s == HK_OK)
        s = d->inner->buffer_wrap(d->device, b->memory, bytes, &b->inner);
    HKI_TRY_OR(s, unmap(b));
    hki_mutex_lock(&card.lock);
    b->next = card.buffers;
    card.buffers = b;
    protect(b, card.open > 0);
    hki_mutex_unlock(&card.lock);
    *out = b;
    return HK_OK;
}

static void buffer_destroy(hki_buffer *b) {
    if (b == NULL)
        return;
    hki_mutex_lock(&card.lock);
    hki_buffer **at = &card.buffers;
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    hki_mutex_unlock(&card.lock);
    unmap(b);
}

static void *buffer_address(const hki_buffer *b) {
    return b->memory;
}

static hki_loc inner_loc(hki_loc at) {
    return (hki_loc){at.buffer != NULL ? at.buffer->inner : NULL, at.offset};
}

// ---- the host's copies ------------------------------------------------------

#define PATTERN UINT32_C(0x7fbadbad) // a NaN

static void host_close(void *host, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(uint32_t); i++)
        ((uint32_t *)host)[i] = PATTERN;
}

static hk_status host_open(const void *host, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(uint32_t); i++)
        if (((const uint32_t *)host)[i] != PATTERN)
            return hki_fail(HK_E_INTERNAL,
                            "isolated device: the host wrote to float %zu of "
                            "%zu of a vector that is newer on the device",
                            i, bytes / sizeof(uint32_t));
    return HK_OK;
}

// ---- queues -----------------------------------------------------------------

static void queue_destroy(hki_queue *q) {
    if (q != NULL && q->inner != NULL)
        q->d->inner->queue_destroy(q->inner);
    hki_free(q);
}

static hk_status queue_create(hki_device *d, hki_queue **out) {
    hki_queue *q;
    HKI_TRY(hki_zalloc_array(1, sizeof *q, &q));
    q->d = d;
    HKI_TRY_OR(d->inner->queue_create(d->device, &q->inner), queue_destroy(q));
    *out = q;
    return HK_OK;
}

static hk_status queue_begin(hki_queue *q, uint64_t seed, uint64_t step) {
    HKI_TRY(q->d->inner->queue_begin(q->inner, seed, step));
    change_open(1);
    return HK_OK;
}

static hk_status queue_end(hki_queue *q) {
    HKI_TRY(q->d->inner->queue_end(q->inner));
    change_open(-1);
    return HK_OK;
}

static hk_status queue_pin(hki_queue *q, uint32_t first_cpu) {
    return q->d->inner->queue_pin(q->inner, first_cpu);
}

static hk_status write_bytes(hki_queue *q, hki_loc to, const void *from,
                             size_t n) {
    if (n > 0 && is_here(from))
        return hki_fail(
            HK_E_INTERNAL,
            "isolated device: the source of a write is device memory");
    change_open(1);
    const hk_status s = q->d->inner->write(q->inner, inner_loc(to), from, n);
    change_open(-1);
    return s;
}

static hk_status read_bytes(hki_queue *q, void *to, hki_loc from, size_t n) {
    if (n > 0 && is_here(to))
        return hki_fail(
            HK_E_INTERNAL,
            "isolated device: the target of a read is device memory");
    change_open(1);
    const hk_status s = q->d->inner->read(q->inner, to, inner_loc(from), n);
    change_open(-1);
    return s;
}

// ---- kernels ----------------------------------------------------------------

static void kernel_destroy(hki_kernel *k) {
    if (k != NULL && k->inner != NULL)
        k->d->inner->kernel_destroy(k->inner);
    hki_free(k);
}

static hk_status kernel_create(hki_device *d, const hki_kernel_desc *desc,
                               hki_kernel **out) {
    hki_kernel *k;
    HKI_TRY(hki_zalloc_array(1, sizeof *k, &k));
    k->d = d;
    k->n_args = desc->n_in + desc->n_out;
    HKI_TRY_OR(d->inner->kernel_create(d->device, desc, &k->inner),
               kernel_destroy(k));
    *out = k;
    return HK_OK;
}

static size_t kernel_scratch(const hki_kernel *k) {
    return k->d->inner->kernel_scratch(k->inner);
}

static const char *kernel_note(const hki_kernel *k) {
    return k->d->inner->kernel_note(k->inner);
}

static void state_destroy(hki_kernel_state *s) {
    if (s != NULL && s->inner != NULL)
        s->backend->state_destroy(s->inner);
    hki_free(s);
}

static hk_status state_create(const hki_kernel *k, hki_kernel_state **out) {
    hki_kernel_state *s;
    HKI_TRY(hki_zalloc_array(1, sizeof *s, &s));
    s->backend = k->d->inner;
    HKI_TRY_OR(s->backend->state_create(k->inner, &s->inner), state_destroy(s));
    *out = s;
    return HK_OK;
}

static hk_status kernel_run(const hki_kernel *k, hki_kernel_state *s,
                            hki_queue *q, const hki_loc *args,
                            hki_loc scratch) {
    hki_loc inner[HKI_MAX_ARGS];
    for (int i = 0; i < k->n_args; i++)
        inner[i] = inner_loc(args[i]);
    return k->d->inner->kernel_run(k->inner, s->inner, q->inner, inner,
                                   inner_loc(scratch));
}

// One by one, which gives the same bits.
static hk_status kernel_run_many(hki_queue *q, const hki_kernel_call *calls,
                                 size_t n, size_t *failed) {
    for (*failed = 0; *failed < n; ++*failed) {
        const hki_kernel_call *const c = &calls[*failed];
        HKI_TRY(kernel_run(c->kernel, c->state, q, c->args, c->scratch));
    }
    return HK_OK;
}

// Places are recorded, too: who moves a vector has to record again.
struct hki_captured {
    size_t n;
    hki_kernel_call *calls;
    hki_loc *args; // HKI_MAX_ARGS per call
};

static void plan_release(hki_captured *c) {
    if (c == NULL)
        return;
    hki_free(c->calls);
    hki_free(c->args);
    hki_free(c);
}

static hk_status record(hki_captured *c, const hki_kernel_call *calls,
                        size_t n) {
    HKI_TRY(hki_zalloc_array(n, sizeof *c->calls, &c->calls));
    HKI_TRY(hki_zalloc_array(n * HKI_MAX_ARGS, sizeof *c->args, &c->args));
    for (size_t i = 0; i < n; i++) {
        hki_loc *const args = c->args + i * HKI_MAX_ARGS;
        memcpy(args, calls[i].args,
               (size_t)calls[i].kernel->n_args * sizeof *args);
        c->calls[i] = calls[i];
        c->calls[i].args = args;
    }
    c->n = n;
    return HK_OK;
}

static hk_status plan_capture(hki_queue *q, const hki_kernel_call *calls,
                              size_t n, const hki_early *early,
                              hki_captured **out) {
    hki_captured *c;
    (void)q;
    (void)early;
    HKI_TRY(hki_zalloc_array(1, sizeof *c, &c));
    HKI_TRY_OR(record(c, calls, n), plan_release(c));
    *out = c;
    return HK_OK;
}

static hk_status plan_launch(hki_queue *q, hki_captured *c, size_t *failed) {
    return kernel_run_many(q, c->calls, c->n, failed);
}

static bool runs_beside(const hki_device *d, hki_opcode op) {
    return d->inner->runs_beside != NULL &&
           d->inner->runs_beside(d->device, op);
}

static hki_format image_format(const hki_device *d, const hki_conv_info *c,
                               size_t n) {
    return d->inner->image_format(d->device, c, n);
}

static const char *version(void) {
    return "for tests";
}

const hki_backend hki_backend_apart = {
    .name = "apart",
    .align = 64,
    .version = version,
    .device_open = device_open,
    .device_close = device_close,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .buffer_address = buffer_address,
    .vectors = &hki_vector_ops_apart,
    .host_close = host_close,
    .host_open = host_open,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_begin = queue_begin,
    .queue_end = queue_end,
    .queue_pin = queue_pin,
    .write = write_bytes,
    .read = read_bytes,
    .kernel_create = kernel_create,
    .kernel_destroy = kernel_destroy,
    .kernel_scratch = kernel_scratch,
    .kernel_note = kernel_note,
    .state_create = state_create,
    .state_destroy = state_destroy,
    .kernel_run = kernel_run,
    .kernel_run_many = kernel_run_many,
    .plan_capture = plan_capture,
    .plan_launch = plan_launch,
    .plan_release = plan_release,
    .runs_beside = runs_beside,
    .image_format = image_format,
};

// ---- for the passes ---------------------------------------------------------

hk_status hki_apart_enter(const void *const *here, size_t n_here,
                          const void *const *there, size_t n_there) {
    for (size_t i = 0; i < n_here; i++)
        if (here[i] != NULL && !is_here(here[i]))
            return hki_fail(
                HK_E_INTERNAL,
                "isolated device: address %zu of a pass is host memory", i);
    for (size_t i = 0; i < n_there; i++)
        if (is_here(there[i]))
            return hki_fail(
                HK_E_INTERNAL,
                "isolated device: the rows of a pass are in device memory");
    change_open(1);
    return HK_OK;
}

void hki_apart_leave(void) {
    change_open(-1);
}

const hki_place *hki_apart_home(const hki_place *p) {
    return &p->device->home;
}
