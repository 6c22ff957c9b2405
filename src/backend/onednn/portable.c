// portable.c - the way back: an operator's portable kernel on this backend's
// memory, and small helpers of the makers.
//
// Portable kernels know plain images only (but for reorder); blocked ones are
// copied through the scratch block on the way in and out.
#include "backend/onednn/cpu.h"

bool hki_cpu_f32(const hki_tensor_desc *t) {
    return t->dtype == HK_F32;
}

bool hki_cpu_factors(const hki_tensor_desc *a, const hki_tensor_desc *b) {
    return a->dtype == b->dtype && (a->dtype == HK_F32 || a->dtype == HK_BF16);
}

int64_t hki_cpu_elements(const hki_tensor_desc *t) {
    int64_t n = 1;
    for (int i = 0; i < t->shape.rank; i++)
        n *= t->shape.dim[i];
    return n;
}

hki_tiles hki_cpu_tiles(const hki_tensor_desc *t) {
    const int rank = t->shape.rank;
    const int64_t channels = rank > 0 ? t->shape.dim[rank - 1] : 1;
    const int64_t block = hki_format_block(t->format);
    if (block == 0) {
        int64_t rows = 1;
        for (int i = 0; i + 1 < rank; i++)
            rows *= t->shape.dim[i];
        return (hki_tiles){
            .tiles = 1, .rows = rows, .width = channels, .blocks = 1};
    }
    const int64_t blocks = channels / block;
    return (hki_tiles){.tiles = t->shape.dim[0] * blocks,
                       .rows = t->shape.dim[1] * t->shape.dim[2],
                       .width = block,
                       .blocks = blocks};
}

hk_status hki_cpu_plan(hki_kernel *k, size_t size) {
    return hki_zalloc_array(1, size, &k->plan);
}

void hki_cpu_split(const hki_kernel *k, int64_t items, int64_t cost,
                   int64_t align, hki_team_fn fn, const void *args) {
    const hki_work w = {.items = items, .cost = cost, .align = align};
    hki_team_for(k->device->threads, &w, fn, args);
}

int hki_cpu_split_parts(const hki_kernel *k, int64_t items, int64_t cost,
                        int64_t align) {
    const hki_work w = {.items = items, .cost = cost, .align = align};
    return hki_team_parts(k->device->threads, &w);
}

// ---- portable kernels ------------------------------------------------------

static size_t tensor_bytes(const hki_tensor_desc *t) {
    return (size_t)hki_cpu_elements(t) * hk_dtype_size(t->dtype);
}

size_t hki_cpu_portable_scratch(const hki_kernel_desc *d) {
    size_t n = d->portable_scratch != NULL ? d->portable_scratch(d) : 0;
    n = HKI_CPU_ALIGN(n);
    for (int i = 0; i < d->n_in; i++)
        if (d->in[i].format != HKI_PLAIN)
            n += HKI_CPU_ALIGN(tensor_bytes(&d->in[i]));
    for (int i = 0; i < d->n_out; i++)
        if (d->out[i].format != HKI_PLAIN)
            n += HKI_CPU_ALIGN(tensor_bytes(&d->out[i]));
    return n;
}

// Copies an image of any type between its blocked and its plain form.
static void convert(const hki_tensor_desc *t, char *blocked, char *plain,
                    bool to_plain) {
    const hki_tiles g = hki_cpu_tiles(t);
    const size_t elem = hk_dtype_size(t->dtype);
    const size_t run = (size_t)g.width * elem, pitch = run * (size_t)g.blocks;
    for (int64_t tile = 0; tile < g.tiles; tile++) {
        const int64_t image = tile / g.blocks, block = tile % g.blocks;
        char *p =
            plain + (size_t)(image * g.rows) * pitch + (size_t)block * run;
        char *b = blocked + (size_t)(tile * g.rows) * run;
        for (int64_t r = 0; r < g.rows; r++, p += pitch, b += run)
            memcpy(to_plain ? p : b, to_plain ? b : p, run);
    }
}

// direct: the kernel (a reorder) looks at the format itself.
static hki_view view_of(const hki_tensor_desc *t, void *data, char **spare,
                        bool input, bool direct) {
    hki_view v = {.data = data,
                  .dtype = t->dtype,
                  .format = direct ? t->format : HKI_PLAIN,
                  .shape = t->shape,
                  .count = t->dtype != 0 ? hki_cpu_elements(t) : 0};
    if (direct || t->format == HKI_PLAIN || data == NULL)
        return v;
    v.data = *spare;
    *spare += HKI_CPU_ALIGN(tensor_bytes(t));
    if (input)
        convert(t, data, v.data, true);
    return v;
}

hk_status hki_cpu_run_portable(const hki_cpu_call *c) {
    const hki_kernel_desc *d = &c->k->desc;
    const size_t own = d->portable_scratch != NULL ? d->portable_scratch(d) : 0;
    const bool direct = d->op == HKI_OP_reorder;
    char *spare = c->run.scratch;
    if (own > 0)
        spare += HKI_CPU_ALIGN(own);
    hki_view in[HKI_MAX_ARGS] = {0}, out[HKI_MAX_ARGS] = {0};
    for (int i = 0; i < d->n_in; i++)
        in[i] = view_of(&d->in[i], c->in[i], &spare, true, direct);
    for (int i = 0; i < d->n_out; i++)
        out[i] = view_of(&d->out[i], c->out[i], &spare, false, direct);
    HKI_TRY(d->portable(&d->attr, &c->run, in, out));
    for (int i = 0; i < d->n_out; i++)
        if (!direct && d->out[i].format != HKI_PLAIN && c->out[i] != NULL)
            convert(&d->out[i], c->out[i], out[i].data, false);
    return HK_OK;
}
