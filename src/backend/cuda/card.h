// backend/cuda/card.h - what is asked of a graphics card: memory, streams,
// graphs, products, convolutions. card.cu asks CUDA; tests/cuda/card.cc plays a
// card on the host, so that every kernel runs where there is none.
//
// Every host thread has one stream of a card: what a thread asks for happens
// in its order, and threads do not wait for each other.
#ifndef HKI_CUDA_CARD_H
#define HKI_CUDA_CARD_H
extern "C" {
#include "backend/backend.h"
}

typedef struct hki_card hki_card;   // one of the machine's
typedef struct hki_graph hki_graph; // a recorded sequence of launches

typedef struct hki_card_info {
    char name[128];
    uint64_t bytes, free_bytes;
    int major, minor; // compute capability
    int processors;
} hki_card_info;

// How many there are. HK_E_BACKEND with a sentence where there is no driver,
// it is too old, or there is no card.
hk_status hki_card_count(int *out);
const char *hki_card_version(void); // of the libraries, as they are loaded
// Cards stay open: the same number gives the same one.
hk_status hki_card_open(int number, hki_card **out);
// Launches of the calling thread go there from now on.
hk_status hki_card_use(const hki_card *c);
void hki_card_get_info(const hki_card *c, hki_card_info *out);

hk_status hki_card_alloc(hki_card *c, size_t bytes, void **out); // zeroed
void hki_card_free(hki_card *c, void *p);
// Memory of the host that the card reaches, and reads at full speed.
hk_status hki_card_alloc_host(hki_card *c, size_t bytes, void **out);
void hki_card_free_host(hki_card *c, void *p);
// The same for memory that somebody else has allocated.
hk_status hki_card_pin(hki_card *c, void *host, size_t bytes);
void hki_card_unpin(hki_card *c, void *host);

// ---- the stream of the calling thread ---------------------------------------

typedef struct hki_mark hki_mark; // a point in a stream

// Bytes of hki_card_alloc_host go up or come down; returns at once.
hk_status hki_card_up(hki_card *c, void *to, const void *from, size_t n);
hk_status hki_card_down(hki_card *c, void *to, const void *from, size_t n);
hk_status hki_card_move(hki_card *c, void *to, const void *from, size_t n);
hk_status hki_card_zero(hki_card *c, void *at, size_t n);
hk_status hki_card_wait(hki_card *c);     // for this thread's work
hk_status hki_card_wait_all(hki_card *c); // for everybody's
// Until this thread's work has written `value`, or more, to host memory; it may
// go on after that.
hk_status hki_card_wait_for(hki_card *c, const uint64_t *at, uint64_t value);
hk_status hki_mark_create(hki_card *c, hki_mark **out);
void hki_mark_destroy(hki_mark *m);
hk_status hki_mark_set(hki_mark *m); // behind what was asked for so far
hk_status hki_mark_wait(hki_mark *m);
hk_status hki_mark_follow(hki_mark *m); // what is asked for next waits for it
// Whether launches since the last look were taken.
hk_status hki_card_check(hki_card *c, const char *what);

// Copies beside what the thread has asked for.
typedef struct hki_side hki_side;
hk_status hki_side_create(hki_card *c, hki_side **out);
void hki_side_destroy(hki_side *s);
hk_status hki_side_up(hki_side *s, void *to, const void *from, size_t n);
hk_status hki_side_mark(hki_side *s, hki_mark *m); // behind its copies

// What is launched between the two is recorded instead. end gives the graph.
hk_status hki_graph_begin(hki_card *c);
hk_status hki_graph_end(hki_card *c, hki_graph **out);
// While it is recorded: what follows goes to a lane. Lanes of a graph run
// beside each other but for marks they follow; it begins and ends in lane 0.
#define HKI_GRAPH_LANES 8
void hki_graph_lane(hki_card *c, int lane);
hk_status hki_graph_launch(hki_card *c, hki_graph *g);
void hki_graph_destroy(hki_graph *g);

// ---- products ---------------------------------------------------------------

// Row-major: c[m, n] = act(op(a) op(b) + bias), `batch` times at a distance of
// stride elements each (0: the same again).
typedef struct hki_product {
    int64_t m, n, k, batch;
    bool trans_a, trans_b; // a is [k, m], b is [n, k]
    int64_t stride_a, stride_b, stride_c;
    bool relu, bias;        // bias: n floats, added to every row
    hk_precision precision; // BF16: a and b are bfloat16
} hki_product;

typedef struct hki_product_plan hki_product_plan;
hk_status hki_product_create(hki_card *c, const hki_product *p,
                             hki_product_plan **out);
void hki_product_destroy(hki_product_plan *p);
size_t hki_product_scratch(const hki_product_plan *p);
hk_status hki_product_run(const hki_product_plan *p, const void *a,
                          const void *b, const float *bias, float *c,
                          void *scratch);

// ---- convolutions -----------------------------------------------------------

typedef enum hki_conv_way {
    HKI_CONV_FORWARD = 0, // x, w -> y
    HKI_CONV_INPUT = 1,   // dz, w -> dx
    HKI_CONV_FILTER = 2   // x, dz -> dw
} hki_conv_way;

// By a library: x [n, h, w, c], y [n, oh, ow, oc], filters [oc, kh, kw,
// c / groups], as much padding at the bottom as at the top.
typedef struct hki_conv {
    hki_conv_way way;
    int n, h, w, c, oh, ow, oc;
    int kh, kw, sh, sw, dh, dw;
    int top, left, groups;
    hk_precision precision;
} hki_conv;

static inline double hki_conv_flop(const hki_conv *d) {
    return 2.0 * d->n * d->oh * d->ow * d->oc * d->kh * d->kw *
           (d->c / d->groups);
}

const char *hki_conv_version(void); // of the library, or that there is none
typedef struct hki_conv_plan hki_conv_plan;
// *out is NULL where there is no library, or it is not the way to do this.
hk_status hki_conv_create(hki_card *c, const hki_conv *d, hki_conv_plan **out);
void hki_conv_destroy(hki_conv_plan *p);
size_t hki_conv_scratch(const hki_conv_plan *p);
hk_status hki_conv_run(const hki_conv_plan *p, const float *a, const float *b,
                       float *to, void *scratch);

#endif // HKI_CUDA_CARD_H
