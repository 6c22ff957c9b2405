// layout_bytes.c - a layout with its shares as bytes, for center files and
// peers.
//
// u32 entries, then for each: u16 length and name, u8 type, u8 kind, u8
// sparse, u8 share, u8 rank, rank times i64.
#include "center/shard.h"

#define MAX_ENTRIES (1u << 20)
#define MAX_NAME 4096

hk_status hki_layout_put(const hk_layout *l, const hk_share *share,
                         hki_buf *out) {
    const size_t n = hki_layout_entry_count(l);
    uint8_t b[16];
    if (n > MAX_ENTRIES)
        return hki_fail(HK_E_OVERFLOW,
                        "layout: %zu entries are too many for a message", n);
    hki_put_u32(b, (uint32_t)n);
    HKI_TRY(hki_buf_add(out, b, 4));
    for (size_t i = 0; i < n; i++) {
        const hk_entry *const e = hk_layout_entry(l, i);
        const size_t name = strlen(e->name);
        if (name > MAX_NAME)
            return hki_fail(HK_E_OVERFLOW,
                            "layout: the name %.64s... is too long, %zu bytes",
                            e->name, name);
        hki_put_u16(b, (uint32_t)name);
        HKI_TRY(hki_buf_add(out, b, 2));
        HKI_TRY(hki_buf_add(out, e->name, name));
        b[0] = (uint8_t)e->dtype;
        b[1] = (uint8_t)e->kind;
        b[2] = (uint8_t)e->sparse;
        b[3] = (uint8_t)share[i];
        b[4] = (uint8_t)e->shape.rank;
        HKI_TRY(hki_buf_add(out, b, 5));
        for (int d = 0; d < e->shape.rank; d++) {
            hki_put_u64(b, (uint64_t)e->shape.dim[d]);
            HKI_TRY(hki_buf_add(out, b, 8));
        }
    }
    return HK_OK;
}

typedef struct cursor {
    const uint8_t *p, *end;
    const char *peer;
} cursor;

static hk_status take(cursor *c, size_t n, const uint8_t **out) {
    if ((size_t)(c->end - c->p) < n)
        return hki_fail(HK_E_DATA, "%s: the layout is truncated", c->peer);
    *out = c->p;
    c->p += n;
    return HK_OK;
}

static hk_status get_item(cursor *c, hki_arena *a, hk_layout_item *item,
                          hk_share *share) {
    const uint8_t *b;
    HKI_TRY(take(c, 2, &b));
    const size_t n = hki_get_u16(b);
    HKI_TRY(take(c, n, &b));
    if (n == 0 || n > MAX_NAME || memchr(b, 0, n) != NULL)
        return hki_fail(
            HK_E_DATA,
            "%s: the name of an entry has an invalid length of %zu bytes",
            c->peer, n);
    HKI_TRY(hki_arena_printf(a, &item->name, "%.*s", (int)n, (const char *)b));
    HKI_TRY(take(c, 5, &b));
    item->dtype = (hk_dtype)b[0];
    item->kind = (hk_kind)b[1];
    item->sparse = b[2];
    *share = (hk_share)b[3];
    const unsigned rank = b[4];
    if (rank > HK_MAX_RANK || b[2] > 1 || b[3] < HK_SHARE_EXCHANGE ||
        b[3] > HK_SHARE_LOCAL || (b[3] == HK_SHARE_EXCHANGE && b[0] != HK_F32))
        return hki_fail(HK_E_DATA,
                        "%s: entry %s: invalid type %u, share %u or rank %u",
                        c->peer, item->name, b[0], b[3], rank);
    int64_t dims[HK_MAX_RANK] = {0};
    for (unsigned d = 0; d < rank; d++) {
        HKI_TRY(take(c, 8, &b));
        dims[d] = (int64_t)hki_get_u64(b);
    }
    item->shape = hk_shape_make((int)rank, dims);
    return HK_OK;
}

// The order within a section is the order given, so entries come out where
// the sender had them; a list in another order is refused.
static hk_status check_order(const hk_layout *l, const hk_layout_item *items,
                             size_t n, const char *peer) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(hk_layout_entry(l, i)->name, items[i].name) != 0)
            return hki_fail(HK_E_DATA,
                            "%s: entry %s is out of order in the layout", peer,
                            items[i].name);
    return HK_OK;
}

hk_status hki_layout_get(const uint8_t *bytes, size_t size, const char *peer,
                         hk_layout **out, hk_share **share) {
    cursor c = {bytes, bytes + size, peer};
    const uint8_t *b;
    HKI_TRY(take(&c, 4, &b));
    const size_t n = hki_get_u32(b);
    if (n > MAX_ENTRIES || n > size / 8) // the shortest entry has 8 bytes
        return hki_fail(HK_E_DATA,
                        "%s: a layout of %zu bytes cannot have %zu "
                        "entries",
                        peer, size, n);
    HKI_SCOPED(hki_arena_deinit) hki_arena arena = {0};
    hk_layout_item *items;
    HKI_FREED hk_share *shares = NULL;
    HKI_SCOPED(hk_layout_release_at) hk_layout *l = NULL;
    HKI_TRY(hki_arena_alloc(&arena, n, sizeof *items, &items));
    HKI_TRY(hki_alloc_array(n, sizeof *shares, &shares));
    for (size_t i = 0; i < n; i++)
        HKI_TRY(get_item(&c, &arena, &items[i], &shares[i]));
    if (c.p != c.end)
        return hki_fail(HK_E_DATA, "%s: there are bytes after the layout",
                        peer);
    HKI_TRY(hk_layout_create(items, n, &l));
    HKI_TRY(check_order(l, items, n, peer));
    *out = l;
    *share = shares;
    l = NULL;
    shares = NULL;
    return HK_OK;
}
