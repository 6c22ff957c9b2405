// proof.c - peers of one host show that they are of the same user.
//
// Over unix sockets the kernel tells. Over TCP on the loopback interface it
// does not: both ends show that they know the cookie of their user, a file of
// 32 random bytes that only this user can read. Whoever needs it first makes
// it; nobody has to do anything.
//
//   each side   32 bytes, random
//   each side   HMAC-SHA256(cookie, who, client's bytes, center's bytes,
//   address)
//
// `who` keeps an answer from being sent back to where it came from, the
// address from being passed on to another listener.
#define _GNU_SOURCE // O_NOFOLLOW
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "transport/conn.h"

#define COOKIE 32
#define NONCE 32
#define MAC 32
#define PATH 256      // bytes of a folder's path
#define PLACES 3      // where a cookie may be
#define TMP_NAMES 100 // of a folder in /tmp

// ---- the cookie -------------------------------------------------------------

static bool is_ours(int fd, mode_t kind) {
    struct stat st;
    return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind &&
           st.st_uid == geteuid() && (st.st_mode & 077) == 0;
}

// Opens a folder that is ours alone, and no link; -1: it is not.
static int open_ours(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || is_ours(fd, S_IFDIR))
        return fd;
    close(fd);
    return -1;
}

// Two processes may begin at the same time: what the other one made is ours.
static int open_made(const char *path, bool make) {
    const int fd = open_ours(path);
    if (fd >= 0 || !make || (mkdir(path, 0700) != 0 && errno != EEXIST))
        return fd;
    return open_ours(path);
}

// In the folder that a session of this user has for such things.
static int open_in_runtime(const char *base, bool make, char path[PATH]) {
    const int own = base != NULL && base[0] == '/' ? open_ours(base) : -1;
    if (own < 0)
        return -1;
    close(own);
    snprintf(path, PATH, "%.200s/hooke", base);
    return open_made(path, make);
}

// /tmp belongs to everybody: another user may have made a folder of our name
// first. All processes of a user try the same names in the same order, so that
// those which begin at the same time meet in one folder.
static int open_in_tmp(bool make, char path[PATH]) {
    int fd = -1;
    for (int i = 0; i < TMP_NAMES && fd < 0; i++) {
        const int n = snprintf(path, PATH, P_tmpdir "/hooke-%lu",
                               (unsigned long)geteuid());
        if (i > 0)
            snprintf(path + n, (size_t)(PATH - n), "-%d", i);
        fd = open_made(path, make);
    }
    return fd;
}

// The places of a user's cookie, in the order in which it is looked for; -1:
// this one is not to be had.
static int open_folder(int place, bool make, char path[PATH]) {
    char base[64];
    snprintf(base, sizeof base, "/run/user/%lu", (unsigned long)geteuid());
    switch (place) {
    case 0:
        return open_in_runtime(getenv("XDG_RUNTIME_DIR"), make, path);
    case 1: // the same, for processes that were not told
        return open_in_runtime(base, make, path);
    default:
        return open_in_tmp(make, path);
    }
}

static hk_status bad_cookie(const char *folder, const char *what) {
    return hki_fail(HK_E_DENIED,
                    "%s/cookie: %s; remove it, or use unix:PATH or a cluster "
                    "key",
                    folder, what);
}

// *found false: there is none yet.
static hk_status read_cookie(int folder, const char *path, uint8_t out[COOKIE],
                             bool *found) {
    const int fd = openat(folder, "cookie", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    *found = fd >= 0;
    if (fd < 0)
        return errno == ENOENT ? HK_OK : bad_cookie(path, strerror(errno));
    uint8_t more[COOKIE + 1];
    const bool ours = is_ours(fd, S_IFREG);
    const ssize_t n = ours ? read(fd, more, sizeof more) : -1;
    close(fd);
    if (n != COOKIE)
        return bad_cookie(path, ours ? "is not 32 bytes long"
                                     : "other users have access to it");
    memcpy(out, more, COOKIE);
    explicit_bzero(more, sizeof more);
    return HK_OK;
}

// Written aside and then linked: another process sees all of it or nothing,
// and the first one wins.
static hk_status make_cookie(int folder, const char *path) {
    uint8_t bytes[COOKIE];
    uint64_t id;
    char name[48];
    if (!hki_random_bytes(bytes, sizeof bytes) ||
        !hki_random_bytes(&id, sizeof id))
        return bad_cookie(path, "the system provides no random bytes");
    snprintf(name, sizeof name, "new-%016llx", (unsigned long long)id);
    const int fd =
        openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok =
        fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes &&
        (linkat(folder, name, folder, "cookie", 0) == 0 || errno == EEXIST);
    const int error = errno;
    if (fd >= 0) {
        close(fd);
        (void)unlinkat(folder, name, 0);
    }
    explicit_bzero(bytes, sizeof bytes);
    return ok ? HK_OK : bad_cookie(path, strerror(error));
}

// Read again for every connection: whoever cleans /tmp up takes nothing away.
// A cookie that is there goes before a better place to make one. path: where
// it is, for messages.
static hk_status load_cookie(uint8_t out[COOKIE], char path[PATH]) {
    for (int i = 0; i < 2 * PLACES; i++) {
        const bool make = i >= PLACES;
        const int folder = open_folder(i % PLACES, make, path);
        bool found = false;
        if (folder < 0)
            continue;
        hk_status s = read_cookie(folder, path, out, &found);
        if (s == HK_OK && !found && make) {
            s = make_cookie(folder, path);
            if (s == HK_OK)
                s = read_cookie(folder, path, out, &found);
            if (s == HK_OK && !found)
                s = bad_cookie(path, "it is removed again and again");
        }
        close(folder);
        if (s != HK_OK || found)
            return s;
    }
    return hki_fail(HK_E_DENIED,
                    "cannot create a folder for this user's cookie in %s: %s; "
                    "use unix:PATH or a cluster key",
                    P_tmpdir, strerror(errno));
}

// ---- the proof --------------------------------------------------------------

// What one side says of both sides' random bytes.
static bool answer(const uint8_t cookie[COOKIE], bool client,
                   const uint8_t *dialler, const uint8_t *listener,
                   const char at[HKI_END_TEXT], uint8_t out[MAC]) {
    uint8_t text[16 + 2 * NONCE + HKI_END_TEXT] = {0};
    unsigned n = 0;
    memcpy(text, client ? "hooke client" : "hooke center", 12);
    memcpy(text + 16, dialler, NONCE);
    memcpy(text + 16 + NONCE, listener, NONCE);
    memcpy(text + 16 + 2 * NONCE, at, HKI_END_TEXT);
    return HMAC(EVP_sha256(), cookie, COOKIE, text, sizeof text, out, &n) !=
               NULL &&
           n == MAC;
}

static hk_status swap(hki_conn *c, uint8_t *ours, uint8_t *theirs, size_t size,
                      const hki_wake *wake, int64_t deadline_ns) {
    const struct iovec v = {ours, size};
    HKI_TRY(hki_conn_send_all(c, &v, 1, wake, deadline_ns, "proof"));
    return hki_conn_recv_all(c, theirs, size, wake, deadline_ns, "proof");
}

static hk_status refuse(const hki_conn *c, const char *path) {
    return hki_fail(HK_E_DENIED,
                    "%s: belongs to another user, or cannot read %s/cookie; "
                    "give both processes a cluster key, or set insecure",
                    c->peer, path);
}

hk_status hki_conn_prove(hki_conn *c, const hki_wake *wake,
                         int64_t deadline_ns) {
    uint8_t cookie[COOKIE], ours[NONCE], theirs[NONCE];
    uint8_t mac[MAC], wanted[MAC], got[MAC];
    char at[HKI_END_TEXT], path[PATH];
    HKI_TRY(load_cookie(cookie, path));
    if (!hki_random_bytes(ours, sizeof ours))
        return hki_fail(HK_E_IO, "%s: the system provides no random bytes",
                        c->peer);
    HKI_TRY(swap(c, ours, theirs, NONCE, wake, deadline_ns));
    (void)c->ops->listening_end(c, at);
    const bool client = hki_conn_is(c, HKI_CONN_CLIENT);
    const uint8_t *const dialler = client ? ours : theirs;
    const uint8_t *const listener = client ? theirs : ours;
    const bool ok = answer(cookie, client, dialler, listener, at, mac) &&
                    answer(cookie, !client, dialler, listener, at, wanted);
    explicit_bzero(cookie, sizeof cookie);
    if (!ok)
        return hki_fail(HK_E_INTERNAL, "%s: OpenSSL offers no HMAC-SHA256",
                        c->peer);
    HKI_TRY(swap(c, mac, got, MAC, wake, deadline_ns));
    if (CRYPTO_memcmp(got, wanted, MAC) != 0)
        return refuse(c, path);
    c->flags |= HKI_CONN_PROVEN;
    return HK_OK;
}

bool hki_conn_wants_proof(const hki_conn *c) {
    char at[HKI_END_TEXT];
    return hki_conn_is(c, HKI_CONN_EXPOSED) && !c->insecure &&
           c->ops->listening_end(c, at);
}
