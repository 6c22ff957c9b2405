// fuzz_picture.c - pictures from arbitrary bytes, in every form they can be
// asked for. The first byte chooses the channels.
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const uint8_t *bytes, size_t size, int channels) {
    hki_picture p;
    hki_picture_decoder *d = NULL;
    // Small pictures only: a large one is slow and shows nothing new.
    if (hki_picture_probe(bytes, size, channels, 1 << 14, "fuzz", &p) != HK_OK)
        return;
    if (hki_alloc_array((size_t)p.height * (size_t)p.width, (size_t)p.channels,
                        &p.pixels) == HK_OK &&
        hki_picture_decoder_create(&d) == HK_OK)
        (void)hki_picture_read(d, bytes, size, "fuzz", &p);
    hki_picture_decoder_destroy(d);
    hki_free(p.pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int channels[] = {0, 1, 3, 4};
    if (size > 0)
        decode(data + 1, size - 1, channels[data[0] & 3]);
    return 0;
}
