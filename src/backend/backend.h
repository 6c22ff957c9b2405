// backend/backend.h - the kernel seam: what the graph asks of a device.
//
// A backend is one const table. A plan asks it to create one kernel per
// operator call (shapes, types and attributes fixed); a session asks it to
// run the kernel on places in buffers. Places are (buffer, offset), never raw
// pointers, so that a device with memory of its own can implement the table.
//
// Kernels are immutable and shared by threads. What one thread of execution
// needs beside them (library memory objects) is a kernel state, one per
// session. Queues are in-order.
#ifndef HKI_BACKEND_H
#define HKI_BACKEND_H
#include "hooke/backend.h"
#include "backend/operators.h"
#include "base/base.h"
#include "tensor/tensor.h"

// How the elements of a 4-D image [N,H,W,C] lie in memory. Everything else is
// always plain. Blocked formats need C to be a multiple of the block.
typedef enum hki_format {
    HKI_PLAIN = 0,     // row-major: channels last
    HKI_BLOCKED_8 = 1, // [N, C/8, H, W, 8]
    HKI_BLOCKED_16 = 2 // [N, C/16, H, W, 16]
} hki_format;

int hki_format_block(hki_format f); // 0, 8, 16

// ---- kernels --------------------------------------------------------------

#define HKI_MAX_ARGS 16 // inputs + outputs of one call

typedef struct hki_tensor_desc {
    hk_dtype dtype; // 0: optional input that is absent
    hki_format format;
    hk_shape shape;
} hki_tensor_desc;

// A tensor in host memory, row-major (or in its format). What portable
// kernels work on. An absent optional input has data NULL and dtype 0.
typedef struct hki_view {
    void *data;
    hk_dtype dtype;
    hki_format format;
    hk_shape shape;
    int64_t count;
} hki_view;

// What varies from run to run.
typedef struct hki_kernel_run {
    uint64_t seed; // of the session
    uint64_t step; // counts runs; random operators mix it in
    void *scratch; // as many bytes as the kernel asked for
} hki_kernel_run;

// Portable kernel: float32 and float64 storage, arithmetic in double, plain
// format, one thread. It is the oracle for every other kernel. Data errors
// (a label out of range) are a status with the operator's name and values.
typedef hk_status (*hki_portable_fn)(const hki_attr *a,
                                     const hki_kernel_run *run,
                                     const hki_view *in, const hki_view *out);
// Scratch bytes of the portable kernel; NULL where it needs none.
typedef struct hki_kernel_desc hki_kernel_desc;
typedef size_t (*hki_scratch_fn)(const hki_kernel_desc *d);

struct hki_kernel_desc {
    hki_opcode op;
    int n_in, n_out;
    hki_attr attr;
    hki_tensor_desc in[HKI_MAX_ARGS];
    hki_tensor_desc out[HKI_MAX_ARGS];
    hki_portable_fn portable;
    hki_scratch_fn portable_scratch;
};

typedef struct hki_device hki_device;
typedef struct hki_buffer hki_buffer;
typedef struct hki_queue hki_queue;
typedef struct hki_kernel hki_kernel;
typedef struct hki_kernel_state hki_kernel_state;
typedef struct hki_captured hki_captured;
typedef struct hki_shared hki_shared;

typedef struct hki_loc {
    hki_buffer *buffer; // NULL: absent optional input
    size_t offset;      // bytes
} hki_loc;

typedef struct hki_device_options {
    uint32_t threads;       // library threads of each queue, >= 1
    hk_isa isa;             // not AUTO
    uint32_t card;          // of several devices of a kind
    hk_precision precision; // DEFAULT: TF32, where there is a choice
} hki_device_options;

// The convolution regions of a plan ask which format pays.
typedef struct hki_conv_info {
    int64_t channels_in, channels_out;
    int32_t ksize[2], stride[2], dilation[2];
    int32_t groups;
} hki_conv_info;

// One kernel with its arguments.
typedef struct hki_kernel_call {
    const hki_kernel *kernel;
    hki_kernel_state *state;
    const hki_loc *args;
    hki_loc scratch;
} hki_kernel_call;

typedef struct hki_read {
    void *to;
    hki_loc from;
    size_t bytes;
} hki_read;

typedef struct hki_write {
    hki_loc to;
    const void *from;
    size_t bytes;
    bool pinned; // of host_alloc, and as it is until a value of the run is read
} hki_write;

// A value of a run that the host wants as soon as it is there.
typedef struct hki_early {
    hki_loc at;
    size_t bytes; // at most 8
    size_t call;  // the number of the call that makes it
} hki_early;

typedef struct hki_backend {
    const char *name;
    const char *(*version)(void); // of the library behind it; NULL: none
    size_t align; // bytes, of every value in a run; a power of two
    // How many calls of a recorded run may be behind the one that is launched:
    // bytes of a value are used again that much later.
    uint32_t steps_under_way;

    // Elsewhere than on CPUs, else NULL: how many devices there are (an error
    // says why none), and one in words.
    hk_status (*device_count)(uint32_t *out);
    hk_status (*device_text)(uint32_t card, char *text, size_t size);

    hk_status (*device_open)(const hki_device_options *opt, hki_device **out);
    void (*device_close)(hki_device *d); // after all that was made from it

    // Zeroed memory, with that alignment.
    hk_status (*buffer_create)(hki_device *d, size_t bytes, hki_buffer **out);
    // Optional: a buffer over borrowed host memory. NULL where memory is apart:
    // then buffer_rewrap and buffer_host are NULL as well, and buffer_address
    // and vectors are not.
    hk_status (*buffer_wrap)(hki_device *d, void *host, size_t bytes,
                             hki_buffer **out);
    // Points a wrapping buffer elsewhere, without allocating.
    void (*buffer_rewrap)(hki_buffer *b, void *host, size_t bytes);
    void (*buffer_destroy)(hki_buffer *b);
    void *(*buffer_host)(const hki_buffer *b); // its address, for the host
    // Its address for `vectors`; of no use to the host.
    void *(*buffer_address)(const hki_buffer *b);
    // What is done to vectors beside kernels (backend/vector.h).
    const struct hki_vector_ops *vectors;
    // For tests, may be NULL: the host is not to touch its copy of a vector
    // until it is opened again, which fails if it has.
    void (*host_close)(void *host, size_t bytes);
    hk_status (*host_open)(const void *host, size_t bytes);

    // Values in host memory at which devices and the host take turns: a
    // device's work on them (vectors->exchange) comes behind what was asked for
    // before, and the host waits before it looks at them or changes them.
    // Nobody asks while another one asks or uses them. May be NULL: then
    // nothing but the host works on a center.
    hk_status (*shared_create)(hki_device *d, void *host, size_t bytes,
                               hki_shared **out);
    void (*shared_destroy)(hki_shared *s);
    hk_status (*shared_wait)(hki_shared *s);

    hk_status (*queue_create)(hki_device *d, hki_queue **out);
    void (*queue_destroy)(hki_queue *q);
    // Brackets a batch of kernel runs by the calling thread. begin sets the
    // library's thread count for this thread (and refuses with HK_E_STATE
    // where it cannot be had); end waits for the work and restores it.
    hk_status (*queue_begin)(hki_queue *q, uint64_t seed, uint64_t step);
    hk_status (*queue_end)(hki_queue *q);
    // Pins the calling thread and the queue's library threads to CPUs from
    // first_cpu on.
    hk_status (*queue_pin)(hki_queue *q, uint32_t first_cpu);
    hk_status (*write)(hki_queue *q, hki_loc to, const void *from, size_t n);
    hk_status (*read)(hki_queue *q, void *to, hki_loc from, size_t n);
    // What a run begins with, all at once: on its way while earlier runs go on.
    // May be NULL, as may the memory that goes there soonest.
    hk_status (*write_many)(hki_queue *q, const hki_write *w, size_t n);
    hk_status (*host_alloc)(hki_device *d, size_t bytes, void **out);
    void (*host_free)(hki_device *d, void *p);
    // Several at once; may be NULL where none of them is waited for.
    hk_status (*read_many)(hki_queue *q, const hki_read *r, size_t n);

    // HK_E_UNSUPPORTED where the backend has no kernel for it.
    hk_status (*kernel_create)(hki_device *d, const hki_kernel_desc *desc,
                               hki_kernel **out);
    void (*kernel_destroy)(hki_kernel *k);
    size_t (*kernel_scratch)(const hki_kernel *k);   // bytes
    const char *(*kernel_note)(const hki_kernel *k); // "winograd"; or ""
    hk_status (*state_create)(const hki_kernel *k, hki_kernel_state **out);
    void (*state_destroy)(hki_kernel_state *s);
    // args: inputs, then outputs. Allocates nothing of Hooke's.
    hk_status (*kernel_run)(const hki_kernel *k, hki_kernel_state *s,
                            hki_queue *q, const hki_loc *args, hki_loc scratch);

    // Runs n independent kernels, in any order or at once; calls hold what
    // kernel_run takes. May be NULL: then they run one by one. On a failure
    // *failed is the number of a kernel whose message is hk_last_error().
    hk_status (*kernel_run_many)(hki_queue *q, const hki_kernel_call *calls,
                                 size_t n, size_t *failed);
    // The calls of a whole run, in order, recorded once and launched as one
    // piece, between queue_begin and queue_end as single calls are; the places
    // in them stay the same as long as it lives. What changes from run to run
    // is not recorded: seed and step come with queue_begin, which keeps them
    // where recorded kernels look, and run-time scalars lie in a buffer. May be
    // NULL: then kernels are run one by one, as on CPUs. early: NULL for none.
    hk_status (*plan_capture)(hki_queue *q, const hki_kernel_call *calls,
                              size_t n, const hki_early *early,
                              hki_captured **out);
    // On a failure *failed is the number of a call, as for kernel_run_many.
    hk_status (*plan_launch)(hki_queue *q, hki_captured *c, size_t *failed);
    // The early value of the last launch: the rest of the run may be under way
    // still. Fails as the launch does where a call before it has. May be NULL:
    // then it is read when the run is over.
    hk_status (*plan_early)(hki_queue *q, hki_captured *c, void *to,
                            size_t *failed);
    void (*plan_release)(hki_captured *c);

    // Is this operator better run beside its like than split over threads?
    bool (*runs_beside)(const hki_device *d, hki_opcode op);

    // Best image format for a region that holds these convolutions, a
    // function of shapes and ISA level only: threads are chosen after it.
    hki_format (*image_format)(const hki_device *d, const hki_conv_info *c,
                               size_t n);
} hki_backend;

extern const hki_backend hki_backend_reference;
extern const hki_backend hki_backend_onednn;
extern const hki_backend hki_backend_apart; // for tests
extern const hki_backend hki_backend_cuda;  // in its plug-in

// The engine where it is inside of this library; NULL where it is a plug-in.
const hki_backend *hki_engine_inside(void);

// By name ("reference", "onednn", "apart"; NULL: HOOKE_BACKEND of the
// environment, or the best of this build), loaded where
// it is a plug-in. HK_E_NOT_FOUND if unknown or not in this build,
// HK_E_BACKEND where its plug-in cannot be loaded.
hk_status hki_backend_find(const char *name, const hki_backend **out);

#endif // HKI_BACKEND_H
