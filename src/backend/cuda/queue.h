// backend/cuda/queue.h - queues of the CUDA backend and what is run on them,
// for the files that hold its table: backend.cu, queues.cu, runs.cu.
#ifndef HKI_CUDA_QUEUE_H
#define HKI_CUDA_QUEUE_H
#include "backend/cuda/cuda.h"

struct hki_buffer {
    hki_card *card;
    void *at;
};

#define HKI_N_STAGES 4

struct hki_queue {
    hki_device *device;
    hki_stage stages[HKI_N_STAGES];
    unsigned next;
    void *room; // on the card, for vectors
    size_t room_bytes;
    double (*sums)[2]; // of the host
    size_t n_sums;
    hki_exchange_sums *exchanged; // of the host; NULL: none
    hki_uploads *uploads;
    hki_control *control; // on the card
    hki_control has;      // what it holds
    bool has_control;     // it holds something
    hki_control now;      // of the run under way
    hki_blame *blame;
    const hki_captured *launched; // the last one; NULL: none, or it is gone
    hki_shown *shown;
    uint64_t n_early; // values that launches will have shown
    bool begun;
    pthread_t user; // the thread that used it last
    bool used;
};

// A run as one piece.
struct hki_captured {
    hki_queue *queue;
    hki_graph *graph;
    hki_kernel_call *calls; // to explain what went wrong
    bool random, early;
};

static inline void *hki_cuda_at(hki_loc l) {
    return l.buffer == NULL ? NULL : (char *)l.buffer->at + l.offset;
}

// ---- queues.cu --------------------------------------------------------------

hk_status hki_cuda_queue_create(hki_device *d, hki_queue **out);
void hki_cuda_queue_destroy(hki_queue *q);
hk_status hki_cuda_queue_begin(hki_queue *q, uint64_t seed, uint64_t step);
hk_status hki_cuda_queue_end(hki_queue *q);
hk_status hki_cuda_queue_pin(hki_queue *q, uint32_t first_cpu);
hk_status hki_cuda_write_bytes(hki_queue *q, hki_loc to, const void *from,
                               size_t n);
hk_status hki_cuda_write_many(hki_queue *q, const hki_write *w, size_t n);
hk_status hki_cuda_read_bytes(hki_queue *q, void *to, hki_loc from, size_t n);
hk_status hki_cuda_read_many(hki_queue *q, const hki_read *r, size_t n);
hk_status hki_cuda_host_alloc(hki_device *d, size_t bytes, void **out);
void hki_cuda_host_free(hki_device *d, void *p);

// ---- runs.cu ----------------------------------------------------------------

// Whether what was launched and is over went well.
hk_status hki_cuda_check_launched(hki_queue *q);
hk_status hki_cuda_kernel_run(const hki_kernel *k, hki_kernel_state *s,
                              hki_queue *q, const hki_loc *args,
                              hki_loc scratch);
hk_status hki_cuda_kernel_run_many(hki_queue *q, const hki_kernel_call *calls,
                                   size_t n, size_t *failed);
hk_status hki_cuda_plan_capture(hki_queue *q, const hki_kernel_call *calls,
                                size_t n, const hki_early *early,
                                hki_captured **out);
hk_status hki_cuda_plan_launch(hki_queue *q, hki_captured *c, size_t *failed);
hk_status hki_cuda_plan_early(hki_queue *q, hki_captured *c, void *to,
                              size_t *failed);
void hki_cuda_plan_release(hki_captured *c);

#endif // HKI_CUDA_QUEUE_H
