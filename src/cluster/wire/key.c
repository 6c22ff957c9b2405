// key.c - the cluster key as a file.
#define _GNU_SOURCE // O_NOFOLLOW
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/io.h"
#include "cluster/wire/frame.h"
#include "cluster/cluster.h"

static const char word[] = "hooke-key-1";

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

static hk_status check_name(const char *name, size_t n, const char *what) {
    if (n == 0 || n >= HK_KEY_NAME)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: the name of a key has to have 1 to %d characters",
                        what, HK_KEY_NAME - 1);
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(name[i]))
            return hki_fail(HK_E_INVALID_ARG,
                            "%s: the name of a key may have letters, digits, "
                            "'-', '_' and '.' only",
                            what);
    return HK_OK;
}

hk_status hk_key_generate(const char *name, hk_key *out) {
    hk_key k = {.name = ""};
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "key: out is NULL");
    if (name == NULL)
        name = "cluster";
    HKI_TRY(check_name(name, strlen(name), "key"));
    snprintf(k.name, sizeof k.name, "%s", name);
    if (!hki_random_bytes(k.secret, sizeof k.secret))
        return hki_fail(HK_E_IO, "key: the system provides no random bytes");
    *out = k;
    explicit_bzero(&k, sizeof k);
    return HK_OK;
}

static hk_status io_fail(const char *path, const char *verb) {
    const int e = errno;
    const hk_status s = e == ENOENT                 ? HK_E_NOT_FOUND
                        : e == EEXIST               ? HK_E_EXISTS
                        : e == EACCES || e == EPERM ? HK_E_DENIED
                                                    : HK_E_IO;
    return hki_fail(s, "%s: cannot %s: %s", path, verb, strerror(e));
}

hk_status hk_key_save(const hk_key *key, const char *path) {
    char text[sizeof word + HK_KEY_NAME + 2 * HK_KEY_BYTES + 4];
    if (key == NULL || path == NULL)
        return hki_fail(HK_E_INVALID_ARG, "key: key or path is NULL");
    HKI_TRY(check_name(key->name, strnlen(key->name, HK_KEY_NAME), path));
    int n = snprintf(text, sizeof text, "%s %s ", word, key->name);
    for (int i = 0; i < HK_KEY_BYTES; i++)
        n +=
            snprintf(text + n, sizeof text - (size_t)n, "%02x", key->secret[i]);
    text[n++] = '\n';
    const int fd =
        hki_io()->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        explicit_bzero(text, sizeof text);
        return io_fail(path, "create");
    }
    const bool ok =
        hki_io()->write(fd, text, (size_t)n) == n && hki_io()->fsync(fd) == 0;
    explicit_bzero(text, sizeof text);
    hk_status s = ok ? HK_OK : io_fail(path, "write");
    if (hki_io()->close(fd) != 0 && s == HK_OK)
        s = io_fail(path, "write");
    if (s != HK_OK)
        (void)hki_io()->unlink(path);
    return s;
}

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

hk_status hki_key_parse(const char *text, size_t size, const char *what,
                        hk_key *out) {
    hk_key k = {.name = ""};
    const size_t w = sizeof word - 1;
    const char *const bad = "is not a cluster key (hooke-key-1 NAME "
                            "64-HEX-DIGITS); create one with hooke keygen";
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r' ||
                        text[size - 1] == ' '))
        size--;
    if (size < w + 2 || memcmp(text, word, w) != 0 || text[w] != ' ')
        return hki_fail(HK_E_DATA, "%s %s", what, bad);
    const char *const name = text + w + 1;
    const char *const space = memchr(name, ' ', size - w - 1);
    if (space == NULL)
        return hki_fail(HK_E_DATA, "%s %s", what, bad);
    const size_t n = (size_t)(space - name);
    HKI_TRY(check_name(name, n, what));
    memcpy(k.name, name, n);
    const char *const digits = space + 1;
    if ((size_t)(text + size - digits) != 2 * HK_KEY_BYTES)
        return hki_fail(HK_E_DATA, "%s %s", what, bad);
    for (size_t i = 0; i < HK_KEY_BYTES; i++) {
        const int high = hex(digits[2 * i]), low = hex(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return hki_fail(HK_E_DATA, "%s %s", what, bad);
        k.secret[i] = (unsigned char)(high << 4 | low);
    }
    *out = k;
    explicit_bzero(&k, sizeof k);
    return HK_OK;
}

static bool is_in_group(gid_t group) {
    gid_t mine[256];
    const int n = getgroups((int)HKI_COUNT(mine), mine);
    for (int i = 0; i < n; i++)
        if (mine[i] == group)
            return true;
    return group == getegid();
}

// Secrets are handed over by systemd and Kubernetes as files of root's, or of
// a group that this process is in, with mode 0440.
static bool is_secret(const struct stat *st) {
    const mode_t others = S_IWGRP | S_IXGRP | S_IRWXO;
    if ((st->st_mode & others) != 0)
        return false;
    return (st->st_mode & S_IRGRP) == 0 || st->st_uid == 0 ||
           is_in_group(st->st_gid);
}

hk_status hk_key_load(const char *path, hk_key *out) {
    char text[256];
    if (path == NULL || out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "key: path or out is NULL");
    const int fd = hki_io()->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return io_fail(path, "open");
    struct stat st;
    const ssize_t n = fstat(fd, &st) == 0 ? read(fd, text, sizeof text) : -1;
    hk_status s = n >= 0 ? HK_OK : io_fail(path, "read");
    hki_io()->close(fd);
    if (s == HK_OK && !is_secret(&st))
        s = hki_fail(
            HK_E_DENIED,
            "%s: other users can read this key (mode %03o); run chmod 600",
            path, (unsigned)st.st_mode & 0777);
    if (s == HK_OK)
        s = hki_key_parse(text, (size_t)n, path, out);
    explicit_bzero(text, sizeof text);
    return s;
}

hk_status hki_key_net(const char *name, const hk_key *key, bool insecure,
                      const hki_tap *tap, hki_net **out) {
    hki_psk psk;
    if (key != NULL) {
        memcpy(psk.name, key->name, sizeof psk.name);
        memcpy(psk.secret, key->secret, sizeof psk.secret);
        psk.name[sizeof psk.name - 1] = '\0';
    }
    const hki_net_options net = {.name = name,
                                 .key = key != NULL ? &psk : NULL,
                                 .insecure = insecure,
                                 .tap = tap};
    const hk_status status = hki_net_create(&net, out);
    explicit_bzero(&psk, sizeof psk);
    return status;
}
