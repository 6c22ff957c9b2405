// paths.c - lists of paths, and what is in a folder.
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"

hk_status hki_paths_add(hki_paths *p, const char *path) {
    if ((p->count & (p->count - 1)) == 0) // full: room is a power of two
        HKI_TRY(hki_realloc_array(HKI_MAX(2 * p->count, 1), sizeof *p->items,
                                  &p->items));
    HKI_TRY(hki_strdup(path, &p->items[p->count]));
    p->count++;
    return HK_OK;
}

bool hki_paths_have(const hki_paths *p, const char *path) {
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->items[i], path) == 0)
            return true;
    return false;
}

void hki_paths_deinit(hki_paths *p) {
    for (size_t i = 0; i < p->count; i++)
        hki_free(p->items[i]);
    hki_free(p->items);
    *p = (hki_paths){0};
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void hki_paths_sort(hki_paths *p, size_t from) {
    if (p->count > from)
        qsort(p->items + from, p->count - from, sizeof *p->items, by_name);
}

hk_status hki_folder_each(const char *folder, hki_path_fn visit, void *user) {
    DIR *const dir = opendir(folder);
    if (dir == NULL)
        return hki_io_fail(errno, folder, "list");
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    hk_status s = HK_OK;
    for (const struct dirent *e; s == HK_OK && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        path.size = 0;
        s = hki_buf_printf(&path, "%s/%s", folder, e->d_name);
        if (s == HK_OK)
            s = visit(user, path.data);
    }
    closedir(dir);
    return s;
}

static hk_status add(void *user, const char *path) {
    return hki_paths_add(user, path);
}

hk_status hki_folder_list(const char *folder, hki_paths *out) {
    hki_paths all = {0};
    HKI_TRY_OR(hki_folder_each(folder, add, &all), hki_paths_deinit(&all));
    hki_paths_sort(&all, 0);
    *out = all;
    return HK_OK;
}
