// flat_file.c - any bytes of a file.
#include "data/files/flat_file.h"
#include "fetch/fetch.h"

// Behind a URL one request for all is better than many.
hk_status hki_flat_open(const char *path, const hk_file_options *opt,
                        hki_flat_file *out) {
    hki_flat_file f = {0};
    size_t size = 0;
    HKI_TRY(hki_open_unpacked(path, opt, false, NULL, &f.file));
    if (!hki_is_url(path) && hki_stream_size(f.file, &f.size) &&
        f.size <= opt->max_file_bytes) {
        *out = f;
        return HK_OK;
    }
    const hk_status s = hki_stream_read_all(f.file, (size_t)opt->max_file_bytes,
                                            &f.bytes, &size);
    hki_stream_close(f.file);
    HKI_TRY(s);
    *out = (hki_flat_file){.bytes = f.bytes, .size = size};
    return HK_OK;
}

static hk_status ends_before(uint64_t offset, size_t size) {
    return hki_fail(HK_E_DATA,
                    "array file: the file was truncated while it was read; "
                    "bytes %llu to %llu are missing",
                    (unsigned long long)offset,
                    (unsigned long long)(offset + size));
}

hk_status hki_flat_read(const hki_flat_file *f, uint64_t offset, void *out,
                        size_t size) {
    if (offset > f->size || size > f->size - offset)
        return ends_before(offset, size);
    if (f->file == NULL) {
        memcpy(out, f->bytes + offset, size);
        return HK_OK;
    }
    HKI_TRY(hki_stream_seek(f->file, offset));
    for (size_t at = 0, n; at < size; at += n) {
        HKI_TRY(hki_stream_read(f->file, (char *)out + at, size - at, &n));
        if (n == 0)
            return ends_before(offset, size);
    }
    return HK_OK;
}

void hki_flat_close(hki_flat_file *f) {
    hki_stream_close(f->file);
    hki_free(f->bytes);
    *f = (hki_flat_file){0};
}
