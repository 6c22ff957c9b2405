// cat PATH [FROM SIZE]... - writes a file to stdout, or pieces of it in this
// order, through the one place that opens files.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "fetch/fetch.h"

static uint8_t buffer[256 << 10];

// size: UINT64_MAX for all that follows.
static hk_status copy(hki_input *in, uint64_t size) {
    size_t got = 1;
    while (size > 0 && got > 0) {
        const size_t most = (size_t)HKI_MIN(size, (uint64_t)sizeof buffer);
        HKI_TRY(hki_input_read(in, buffer, most, &got));
        fwrite(buffer, 1, got, stdout);
        size -= got;
    }
    return HK_OK;
}

int main(int argc, char **argv) {
    hki_input *in;
    if (argc < 2)
        return 2;
    hk_status s = hki_input_open(argv[1], NULL, &in);
    if (s == HK_OK && argc == 2)
        s = copy(in, UINT64_MAX);
    for (int i = 2; s == HK_OK && i + 1 < argc; i += 2) {
        s = hki_input_seek(in, strtoull(argv[i], NULL, 10));
        if (s == HK_OK)
            s = copy(in, strtoull(argv[i + 1], NULL, 10));
    }
    if (s != HK_OK) {
        fprintf(stderr, "%s: %s\n", hk_status_string(s), hk_last_error());
        return 1;
    }
    hki_input_close(in);
    return fflush(stdout) != 0;
}
