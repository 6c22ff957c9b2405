// written_files.c - folders and JSON text for what an estimator writes.
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
    HKI_SCOPED(hki_paths_deinit) hki_paths inside = {0};
    HKI_TRY(hki_folder_list(path, &inside));
    for (size_t i = 0; i < inside.count; i++)
        HKI_TRY(remove_tree(inside.items[i], depth - 1));
    return rmdir(path) == 0 ? HK_OK
                            : hki_io_fail(errno, path, "remove the folder");
}

hk_status hki_remove_tree(const char *path) {
    return remove_tree(path, 8);
}

hk_status hki_write_file(const char *path, const hki_buf *text) {
    return hki_file_replace(path, text->data, text->size, false);
}
