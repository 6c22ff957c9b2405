// fuzz_order.c - a recorded turn order from arbitrary bytes, as they are and
// with a header and checksum that fit, so that the checks behind them are
// reached.
#include "base/base.h"
#include "hooke/elastic.h"
#include "tensor/tensor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void load(hk_layout *layout, const uint8_t *data, size_t size) {
    hk_center_options o;
    hk_center_options_init(&o, sizeof o);
    o.turn = HK_TURN_RECORDED;
    o.max_workers = 4;
    o.order = data;
    o.order_size = size;
    hk_center *c = NULL;
    if (hk_center_create_local(&o, layout, &c) != HK_OK)
        return;
    size_t again;
    hk_center_order_save(c, NULL, 0, &again);
    hk_center_destroy(c);
}

static void put(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const hk_layout_item item = {.name = "w",
                                 .shape = hk_shape_make(0, NULL),
                                 .dtype = HK_F32,
                                 .kind = HK_TRAINABLE};
    hk_layout *layout = NULL;
    uint8_t *sealed = NULL;
    if (hk_layout_create(&item, 1, &layout) != HK_OK)
        return 0;
    if (hki_alloc_array(size + 24, 1, &sealed) == HK_OK) {
        memcpy(sealed, "HKORDER1", 8);
        put(sealed + 8, hki_layout_fingerprint(layout));
        if (size > 0)
            memcpy(sealed + 16, data, size);
        put(sealed + 16 + size, hki_hash(HKI_HASH_INIT, sealed, 16 + size));
        load(layout, data, size);
        load(layout, sealed, size + 24);
    }
    hki_free(sealed);
    hk_layout_release(layout);
    return 0;
}
