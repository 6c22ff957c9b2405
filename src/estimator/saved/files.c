// files.c - folders, copies and JSON text for what an estimator writes.
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "codec/codec.h"
#include "estimator/saved/files.h"

hk_status hki_quote(hki_buf *b, const char *s) {
    return hki_json_quote(b, s, strlen(s));
}

static hk_status join_path(const char *dir, const char *name, hki_buf *out) {
    out->size = 0;
    return hki_buf_printf(out, "%s/%s", dir, name);
}

// Depth is bounded: an export has two levels.
static hk_status remove_tree(const char *path, int depth) {
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? HK_OK : hki_io_fail(errno, path, "look at");
    if (!S_ISDIR(st.st_mode) || depth == 0)
        return hki_file_remove(path);
    DIR *const d = opendir(path);
    if (d == NULL)
        return hki_io_fail(errno, path, "open the folder");
    hki_buf full = {0};
    hk_status s = HK_OK;
    for (const struct dirent *f; s == HK_OK && (f = readdir(d)) != NULL;) {
        if (strcmp(f->d_name, ".") == 0 || strcmp(f->d_name, "..") == 0)
            continue;
        s = join_path(path, f->d_name, &full);
        if (s == HK_OK)
            s = remove_tree(full.data, depth - 1);
    }
    closedir(d);
    hki_buf_deinit(&full);
    if (s == HK_OK && rmdir(path) != 0)
        s = hki_io_fail(errno, path, "remove the folder");
    return s;
}

hk_status hki_remove_tree(const char *path) {
    return remove_tree(path, 8);
}

hk_status hki_copy_file(const char *from, const char *to) {
    int fd;
    uint64_t size;
    hki_file *f = NULL;
    char *block = NULL;
    const size_t block_bytes = 1 << 20;
    HKI_TRY(hki_file_open_read(from, &fd, &size));
    hk_status s = hki_alloc_array(block_bytes, 1, &block);
    if (s == HK_OK)
        s = hki_file_create(to, &f);
    for (uint64_t at = 0; s == HK_OK && at < size;) {
        const size_t n = (size_t)HKI_MIN(size - at, (uint64_t)block_bytes);
        s = hki_file_read_at(fd, from, at, block, n);
        if (s == HK_OK)
            s = hki_file_write(f, block, n);
        at += n;
    }
    hki_file_close_read(fd);
    hki_free(block);
    if (s != HK_OK) {
        hki_file_discard(f);
        return s;
    }
    return hki_file_commit(f, false);
}

hk_status hki_write_file(const char *path, const hki_buf *text) {
    return hki_file_replace(path, text->data, text->size, false);
}

hk_status hki_list_numbered(const char *dir, hki_numbered *out) {
    *out = (hki_numbered){0};
    DIR *const d = opendir(dir);
    if (d == NULL)
        return errno == ENOENT ? HK_OK
                               : hki_io_fail(errno, dir, "open the folder");
    hk_status s = HK_OK;
    for (const struct dirent *f; s == HK_OK && (f = readdir(d)) != NULL;) {
        // Unix seconds: ten digits for the next two centuries.
        if (strlen(f->d_name) != 10 || strspn(f->d_name, "0123456789") != 10)
            continue;
        if (out->n == out->capacity) {
            s = hki_realloc_array(out->capacity * 2 + 16, sizeof *out->at,
                                  &out->at);
            if (s != HK_OK)
                break;
            out->capacity = out->capacity * 2 + 16;
        }
        int64_t v = 0;
        for (const char *c = f->d_name; *c != '\0'; c++)
            v = v * 10 + (*c - '0');
        size_t at = out->n++;
        for (; at > 0 && out->at[at - 1] > v; at--)
            out->at[at] = out->at[at - 1];
        out->at[at] = v;
    }
    closedir(d);
    if (s != HK_OK) {
        hki_free(out->at);
        *out = (hki_numbered){0};
    }
    return s;
}
