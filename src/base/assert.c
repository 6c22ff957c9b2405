// assert.c - the end of a process whose state is wrong.
#include "base/assert.h"
#include <stdio.h>
#include <stdlib.h>

void hki_assert_failed(const char *file, int line, const char *function,
                       const char *what) {
    fprintf(stderr,
            "hooke: %s:%d: %s: assertion failed: %s; this is a defect in "
            "Hooke: please report this line\n",
            file, line, function, what);
    abort();
}
