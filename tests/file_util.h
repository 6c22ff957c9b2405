// file_util.h - bytes from hex, private temporary folders, whole files.
#ifndef FILE_UTIL_H
#define FILE_UTIL_H
#include "hk_test.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- hex -------------------------------------------------------------------

static inline int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    fail_msg("not a hex digit: %c", c);
    return 0;
}

// The bytes that the text spells; returns how many. Blanks are passed over.
static inline size_t from_hex(const char *text, uint8_t *out, size_t capacity) {
    size_t n = 0;
    for (; *text != '\0'; text++) {
        if (*text == ' ')
            continue;
        assert_true(n < capacity && text[1] != '\0');
        out[n++] = (uint8_t)(hex_digit(text[0]) * 16 + hex_digit(text[1]));
        text++;
    }
    return n;
}

static inline void assert_bytes(const char *what, const void *got, size_t n,
                                const char *hex) {
    uint8_t expected[4096];
    const uint8_t *const bytes = got;
    const size_t size = from_hex(hex, expected, sizeof expected);
    for (size_t i = 0; i < HKI_MIN(n, size); i++)
        if (bytes[i] != expected[i])
            fail_msg("%s: byte %zu is %02x, expected %02x", what, i, bytes[i],
                     expected[i]);
    if (n != size)
        fail_msg("%s: %zu bytes, expected %zu", what, n, size);
}

// ---- folders ---------------------------------------------------------------

typedef struct folder {
    char path[256];
} folder;

static inline void folder_make(folder *d) {
    const char *root = getenv("TMPDIR");
    snprintf(d->path, sizeof d->path, "%s/hooke-test-XXXXXX",
             root != NULL && strlen(root) < 200 ? root : "/tmp");
    assert_non_null(mkdtemp(d->path));
}

// The path of a name in it, in a buffer of the caller.
static inline const char *folder_path(const folder *d, const char *name,
                                      char out[512]) {
    snprintf(out, 512, "%s/%s", d->path, name);
    return out;
}

// Removes what is in an open folder, which is closed.
static inline void folder_empty(int fd) {
    DIR *const dir = fdopendir(fd);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        const int inner = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY);
        if (inner >= 0)
            folder_empty(inner);
        unlinkat(fd, e->d_name, inner >= 0 ? AT_REMOVEDIR : 0);
    }
    closedir(dir);
}

// Removes a folder with all that is in it, if it exists.
static inline void folder_remove_tree(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY);
    if (fd >= 0)
        folder_empty(fd);
    rmdir(path);
}

static inline void folder_remove(folder *d) {
    folder_remove_tree(d->path);
}

// ---- files -----------------------------------------------------------------

static inline void write_file(const char *path, const void *bytes, size_t n) {
    FILE *const f = fopen(path, "wb");
    if (f == NULL)
        fail_msg("cannot write %s", path);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

// A whole file in memory that free() releases.
static inline uint8_t *read_file(const char *path, size_t *size) {
    FILE *const f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("cannot read %s", path);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *const bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, f), *size);
    bytes[*size] = 0;
    fclose(f);
    return bytes;
}

#endif // FILE_UTIL_H
