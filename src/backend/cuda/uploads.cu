// uploads.cu - what a run begins with goes up beside the run before it.
//
// Batch, labels and scalars are gathered in one block, which travels on a
// stream of its own to a block of the card; there a kernel puts them where the
// run reads them, when the run before is done with those. A few blocks take
// turns.
#include "backend/cuda/cuda.h"

#define BLOCKS_IN_TURN 4
#define PIECE_ALIGN 256
#define LONG_PIECE ((size_t)256 << 10) // bytes: not gathered where it is pinned
#define MOVES 16                       // of one launch
#define WORD 16                        // bytes

typedef struct block {
    void *host, *card;
    size_t bytes;
    hki_mark *sent;  // behind its copies
    hki_mark *taken; // behind the kernels that read it
} block;

struct hki_uploads {
    hki_card *card;
    hki_side *side;
    block blocks[BLOCKS_IN_TURN];
    unsigned next;
    size_t *begin; // of each piece in its block
    size_t n_begin;
};

void hki_uploads_destroy(hki_uploads *u) {
    if (u == NULL)
        return;
    for (int i = 0; i < BLOCKS_IN_TURN; i++) {
        block *const b = &u->blocks[i];
        hki_card_free_host(u->card, b->host);
        hki_card_free(u->card, b->card);
        hki_mark_destroy(b->sent);
        hki_mark_destroy(b->taken);
    }
    hki_side_destroy(u->side);
    hki_free(u->begin);
    hki_free(u);
}

static hk_status make_uploads(hki_uploads *u) {
    HKI_TRY(hki_side_create(u->card, &u->side));
    for (int i = 0; i < BLOCKS_IN_TURN; i++) {
        HKI_TRY(hki_mark_create(u->card, &u->blocks[i].sent));
        HKI_TRY(hki_mark_create(u->card, &u->blocks[i].taken));
    }
    return HK_OK;
}

hk_status hki_uploads_create(hki_card *c, hki_uploads **out) {
    hki_uploads *u;
    HKI_TRY(hki_zalloc_array(1, sizeof *u, &u));
    u->card = c;
    const hk_status s = make_uploads(u);
    if (s != HK_OK) {
        hki_uploads_destroy(u);
        return s;
    }
    *out = u;
    return HK_OK;
}

// The next block, with nothing under way and room for n bytes.
static hk_status take_block(hki_uploads *u, size_t n, block **out) {
    block *const b = &u->blocks[u->next++ % BLOCKS_IN_TURN];
    HKI_TRY(hki_mark_wait(b->taken));
    if (b->bytes < n) {
        hki_card_free_host(u->card, b->host);
        hki_card_free(u->card, b->card);
        b->host = b->card = NULL;
        b->bytes = 0;
        HKI_TRY(hki_card_alloc_host(u->card, n, &b->host));
        HKI_TRY(hki_card_alloc(u->card, n, &b->card));
        b->bytes = n;
    }
    *out = b;
    return HK_OK;
}

static size_t padded(size_t n) {
    return (n + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
}

static bool goes_alone(const hki_write *w) {
    return w->pinned && w->bytes >= LONG_PIECE;
}

typedef struct move {
    const unsigned char *from;
    unsigned char *to;
    size_t bytes;
} move;

typedef struct moves {
    move of[MOVES];
} moves;

// A row of blocks for each; both ends are aligned to words.
HKI_KERNEL void put_in_place(const __grid_constant__ moves m) {
    const move w = m.of[blockIdx.y];
    const size_t words = w.bytes / WORD;
    const size_t all = (size_t)gridDim.x * blockDim.x;
    const size_t self = (size_t)hki_self();
    for (size_t i = self; i < words; i += all)
        ((float4 *)w.to)[i] = ((const float4 *)w.from)[i];
    const size_t left = words * WORD + self;
    if (left < w.bytes)
        w.to[left] = w.from[left];
}

static void launch_moves(const moves *m, int n) {
    size_t most = 0;
    for (int i = 0; i < n; i++)
        most = m->of[i].bytes > most ? m->of[i].bytes : most;
    const unsigned blocks = hki_blocks((int64_t)(most / WORD), HKI_THREADS * 4);
    HKI_LAUNCH(put_in_place, dim3(blocks < 256 ? blocks : 256, (unsigned)n),
               HKI_THREADS, *m);
}

static void put_all(const block *b, const hki_write *w, const size_t *begin,
                    size_t n, void *(*at)(hki_loc)) {
    moves m = {};
    int count = 0;
    for (size_t i = 0; i < n; i++) {
        m.of[count++] = move{(const unsigned char *)b->card + begin[i],
                             (unsigned char *)at(w[i].to), w[i].bytes};
        if (count == MOVES || i + 1 == n) {
            launch_moves(&m, count);
            count = 0;
        }
    }
}

// Short pieces first, gathered; the others behind them.
static size_t lay_out(const hki_write *w, size_t n, size_t *begin,
                      size_t *gathered) {
    size_t end = 0;
    for (int alone = 0; alone < 2; alone++) {
        for (size_t i = 0; i < n; i++)
            if (goes_alone(&w[i]) == (alone == 1)) {
                begin[i] = end;
                end += padded(w[i].bytes);
            }
        if (alone == 0)
            *gathered = end;
    }
    return end;
}

static hk_status copy_up(hki_uploads *u, const block *b, const hki_write *w,
                         const size_t *begin, size_t n, size_t gathered) {
    for (size_t i = 0; i < n; i++)
        if (!goes_alone(&w[i]))
            memcpy((char *)b->host + begin[i], w[i].from, w[i].bytes);
    if (gathered > 0)
        HKI_TRY(hki_side_up(u->side, b->card, b->host, gathered));
    for (size_t i = 0; i < n; i++)
        if (goes_alone(&w[i]))
            HKI_TRY(hki_side_up(u->side, (char *)b->card + begin[i], w[i].from,
                                w[i].bytes));
    return hki_side_mark(u->side, b->sent);
}

static hk_status make_room(hki_uploads *u, size_t n) {
    if (u->n_begin >= n)
        return HK_OK;
    hki_free(u->begin);
    u->begin = NULL;
    u->n_begin = 0;
    HKI_TRY(hki_alloc_array(n, sizeof *u->begin, &u->begin));
    u->n_begin = n;
    return HK_OK;
}

hk_status hki_uploads_send(hki_uploads *u, const hki_write *w, size_t n,
                           void *(*at)(hki_loc)) {
    size_t gathered = 0;
    block *b;
    if (n == 0)
        return HK_OK;
    HKI_TRY(make_room(u, n));
    HKI_TRY(take_block(u, lay_out(w, n, u->begin, &gathered), &b));
    HKI_TRY(copy_up(u, b, w, u->begin, n, gathered));
    HKI_TRY(hki_mark_follow(b->sent));
    put_all(b, w, u->begin, n, at);
    HKI_TRY(hki_card_check(u->card, "an upload"));
    return hki_mark_set(b->taken);
}
