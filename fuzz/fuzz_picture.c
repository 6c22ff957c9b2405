// fuzz_picture.c - pictures from arbitrary bytes, in every form they can be
// asked for. The first byte chooses the channels.
#include "codec/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int channels[] = {0, 1, 3, 4};
    hki_picture p;
    if (size < 1)
        return 0;
    const int n = channels[data[0] & 3];
    // Small pictures only: a large one is slow and shows nothing new.
    if (hki_picture_decode(data + 1, size - 1, n, 1 << 14, "fuzz", &p) == HK_OK)
        hki_free(p.pixels);
    return 0;
}
