// written_files.c - folders, copies and JSON text for what an estimator writes.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "codec/codec.h"
#include "estimator/saved/written_files.h"

hk_status hki_quote(hki_buf *b, const char *s) {
    return hki_json_quote(b, s, strlen(s));
}

// Depth is bounded: an export has two levels.
static hk_status remove_tree(const char *path, int depth) {
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? HK_OK : hki_io_fail(errno, path, "look at");
    if (!S_ISDIR(st.st_mode) || depth == 0)
        return hki_file_remove(path);
    hki_paths inside;
    HKI_TRY(hki_folder_list(path, &inside));
    hk_status s = HK_OK;
    for (size_t i = 0; i < inside.count && s == HK_OK; i++)
        s = remove_tree(inside.items[i], depth - 1);
    hki_paths_deinit(&inside);
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
