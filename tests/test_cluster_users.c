// test_cluster_users.c - a center without a key is for the user who started
// it: other users of the host are turned away, on both sides, over TCP and
// unix sockets. Needs root, to be somebody else.
#include "cluster_bed.h"
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const int64_t wait_ms = 20000;

// A user that nobody is, and nobody else's test is at the same time.
static uid_t stranger(void) {
    return 0x40000000u + (uid_t)getpid();
}

static void cookie_folder(uid_t user, char out[64]) {
    struct stat st;
    snprintf(out, 64, "/run/user/%lu/hooke", (unsigned long)user);
    if (user == geteuid() && lstat(out, &st) == 0)
        return;
    snprintf(out, 64, P_tmpdir "/hooke-%lu", (unsigned long)user);
}

static void skip_unless_root(void) {
    if (geteuid() == 0)
        return;
    print_message("needs root to become another user\n");
    skip();
}

// ---- another user's process -------------------------------------------------

// What a child has to say; it is one write.
typedef struct report {
    hk_status status;
    char text[500];
} report;

typedef struct child {
    pid_t pid;
    int to, from;
} child;

typedef hk_status (*child_fn)(int from, int to);

static void child_main(child_fn fn, uid_t user, int from, int to) {
    report r = {.status = HK_E_INTERNAL};
    if (setgroups(0, NULL) != 0 || setgid((gid_t)user) != 0 ||
        setuid(user) != 0)
        snprintf(r.text, sizeof r.text, "cannot become user %lu",
                 (unsigned long)user);
    else if ((r.status = fn(from, to)) != HK_OK)
        snprintf(r.text, sizeof r.text, "%.499s", hk_last_error());
    _exit(write(to, &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
}

// Before there are threads.
static child start_child(child_fn fn, uid_t user) {
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        child_main(fn, user, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    return (child){.pid = pid, .to = down[1], .from = up[0]};
}

static void tell(int fd, const char *address) {
    char text[320] = "";
    snprintf(text, sizeof text, "%.300s", address);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
}

static void hear(int fd, char text[320]) {
    if (read(fd, text, 320) != 320)
        snprintf(text, 320, "nothing came");
}

static report end_child(child *c) {
    report r = {.status = HK_E_INTERNAL};
    int code = 0;
    close(c->to);
    assert_int_equal(read(c->from, &r, sizeof r), sizeof r);
    close(c->from);
    assert_int_equal(waitpid(c->pid, &code, 0), c->pid);
    assert_int_equal(code, 0);
    return r;
}

static void expect_denied(const report *r, const char *part) {
    if (r->status != HK_E_DENIED || strstr(r->text, part) == NULL)
        fail_msg("%s: %s", hk_status_string(r->status), r->text);
}

// ---- both sides -------------------------------------------------------------

static hk_status connect_to(const char *address, bool insecure) {
    hk_layout *const l = suite_center_layout((int64_t[]){100}, 1);
    hk_connect_options o;
    hk_center *c = NULL;
    bed_connect_options(&o, &address, 1);
    o.insecure = insecure;
    const hk_status s = hk_center_connect(&o, l, &c);
    hk_center_destroy(c);
    hk_layout_release(l);
    return s;
}

static hk_status come(int from, int to) {
    char address[320];
    (void)to;
    hear(from, address);
    return connect_to(address, false);
}

static hk_status come_anyway(int from, int to) {
    char address[320];
    (void)to;
    hear(from, address);
    return connect_to(address, true);
}

static hk_center_server *start_server(const char *at, bool insecure) {
    hk_center_server_options o;
    hk_center_server *s = NULL;
    bed_server_options(&o, &at);
    o.insecure = insecure;
    assert_ok(hk_center_server_start(&o, &s));
    return s;
}

static uint64_t n_refused(hk_center_server *s) {
    hk_server_info info;
    assert_ok(hk_center_server_get_info(s, &info));
    return info.refused[HK_REFUSED_KEY];
}

static void await_refusal(hk_center_server *s, uint64_t n) {
    const int64_t deadline = hki_deadline(wait_ms);
    while (n_refused(s) < n && hki_now_ns() < deadline) {
        const struct timespec t = {0, 500000};
        nanosleep(&t, NULL);
    }
    assert_int_equal(n_refused(s), n);
}

static void remove_cookie(uid_t user) {
    char path[64];
    cookie_folder(user, path);
    bed_folder_remove(path);
}

// The user of the center needs nothing, others get nothing.
static void test_tcp(void **state) {
    (void)state;
    skip_unless_root();
    child c = start_child(come, stranger());
    hk_center_server *const s = start_server("tcp:127.0.0.1:0", false);
    const char *const address = hk_center_server_address(s, 0);
    assert_ok(connect_to(address, false));
    assert_ok(connect_to(address, true)); // a proof is given where asked for
    assert_int_equal(n_refused(s), 0);
    tell(c.to, address);
    const report r = end_child(&c);
    expect_denied(&r, "belongs to another user");
    await_refusal(s, 1);
    hk_center_server_stop(s);
    char path[64], cookie[80];
    struct stat st;
    cookie_folder(geteuid(), path);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    snprintf(cookie, sizeof cookie, "%s/cookie", path);
    assert_int_equal(lstat(cookie, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    remove_cookie(stranger());
}

// A center that takes anybody still shows its own user who it is; another one
// has to say that it does not mind.
static void test_insecure(void **state) {
    (void)state;
    skip_unless_root();
    child strict = start_child(come, stranger());
    child easy = start_child(come_anyway, stranger());
    hk_center_server *const s = start_server("tcp:127.0.0.1:0", true);
    const char *const address = hk_center_server_address(s, 0);
    assert_ok(connect_to(address, false));
    tell(strict.to, address);
    report r = end_child(&strict);
    expect_denied(&r, "set insecure");
    tell(easy.to, address);
    r = end_child(&easy);
    if (r.status != HK_OK)
        fail_msg("%s", r.text);
    hk_center_server_stop(s);
    remove_cookie(stranger());
}

// Somebody else's listener at a worker's address gets nothing either.
static hk_status squat(int from, int to) {
    const char *at = "tcp:127.0.0.1:0";
    char text[320];
    hk_center_server_options o;
    hk_center_server *s = NULL;
    bed_server_options(&o, &at);
    HKI_TRY(hk_center_server_start(&o, &s));
    tell(to, hk_center_server_address(s, 0));
    hear(from, text); // until it is over
    const bool opened = atomic_load(&s->shard) != NULL;
    hk_center_server_stop(s);
    return opened ? hki_fail(HK_E_INTERNAL, "somebody brought a model") : HK_OK;
}

static void test_squatter(void **state) {
    (void)state;
    skip_unless_root();
    child c = start_child(squat, stranger());
    char address[320];
    hear(c.from, address);
    assert_status(connect_to(address, false), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "belongs to another user"));
    tell(c.to, "enough");
    const report r = end_child(&c);
    if (r.status != HK_OK)
        fail_msg("%s", r.text);
    remove_cookie(stranger());
}

// The same over a unix socket that has been opened to everybody.
static hk_status squat_unix(int from, int to) {
    char path[320], at[330];
    const char *address = at;
    hear(from, path);
    snprintf(at, sizeof at, "unix:%.200s", path);
    hk_center_server_options o;
    hk_center_server *s = NULL;
    bed_server_options(&o, &address);
    HKI_TRY(hk_center_server_start(&o, &s));
    (void)chmod(path, 0777);
    tell(to, at);
    hear(from, path);
    hk_center_server_stop(s);
    return HK_OK;
}

static void test_unix(void **state) {
    (void)state;
    skip_unless_root();
    char folder[64], path[96], at[128];
    bed_folder_make(folder);
    assert_int_equal(chmod(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(at, sizeof at, "unix:%s", path);
    child c = start_child(come, stranger());
    child other = start_child(squat_unix, stranger() + 1);
    hk_center_server *const s = start_server(at, false);
    assert_int_equal(chmod(path, 0777), 0);
    assert_ok(connect_to(at, false));
    tell(c.to, at);
    report r = end_child(&c);
    expect_denied(&r, "belongs to user");
    await_refusal(s, 1);
    hk_center_server_stop(s);
    // And a worker refuses a center of another user.
    snprintf(path, sizeof path, "%s/other", folder);
    tell(other.to, path);
    char where[320];
    hear(other.from, where);
    assert_status(connect_to(where, false), HK_E_DENIED);
    assert_non_null(strstr(hk_last_error(), "belongs to user"));
    tell(other.to, "enough");
    r = end_child(&other);
    if (r.status != HK_OK)
        fail_msg("%s", r.text);
    bed_folder_remove(folder);
}

// ---- the cookie's folder ----------------------------------------------------

static void remove_cookies(uid_t user) {
    char command[64];
    snprintf(command, sizeof command, "rm -rf " P_tmpdir "/hooke-%lu-*",
             (unsigned long)user);
    assert_int_equal(system(command), 0);
}

// What lies at its place in /tmp and is not this user's is not used: center
// and worker of the user meet in another folder there.
static void test_folder(void **state) {
    (void)state;
    skip_unless_root();
    char path[64], own[64];
    cookie_folder(stranger(), path);
    bed_folder_make(own);
    for (int i = 0; i < 3; i++) {
        child c = start_child(squat, stranger());
        child w = start_child(come, stranger());
        if (i == 0) { // of another user
            assert_int_equal(mkdir(path, 0755), 0);
        } else if (i == 1) { // a link to one
            assert_int_equal(chown(own, stranger(), (gid_t)stranger()), 0);
            assert_int_equal(symlink(own, path), 0);
        } else { // open to others
            assert_int_equal(mkdir(path, 0700), 0);
            assert_int_equal(chown(path, stranger(), (gid_t)stranger()), 0);
            assert_int_equal(chmod(path, 0777), 0);
        }
        char address[320];
        hear(c.from, address);
        tell(w.to, address);
        report r = end_child(&w);
        if (r.status != HK_OK)
            fail_msg("case %d: %s", i, r.text);
        tell(c.to, "enough");
        r = end_child(&c);
        assert_non_null(strstr(r.text, "somebody brought a model"));
        assert_int_equal(remove(path), 0);
        remove_cookies(stranger());
    }
    bed_folder_remove(own);
}

// The folder of a user's session is the first choice; one that others can
// enter is none.
static hk_status come_in_session(int from, int to) {
    char base[320];
    hear(from, base);
    if (setenv("XDG_RUNTIME_DIR", base, 1) != 0)
        return HK_E_INTERNAL;
    return come(from, to);
}

static hk_status squat_in_session(int from, int to) {
    char base[320];
    hear(from, base);
    if (setenv("XDG_RUNTIME_DIR", base, 1) != 0)
        return HK_E_INTERNAL;
    return squat(from, to);
}

static void test_session(void **state) {
    (void)state;
    skip_unless_root();
    for (int open = 0; open < 2; open++) {
        char base[64], path[96], address[320];
        struct stat st;
        bed_folder_make(base);
        assert_int_equal(chown(base, stranger(), (gid_t)stranger()), 0);
        assert_int_equal(chmod(base, open ? 0755 : 0700), 0);
        child c = start_child(squat_in_session, stranger());
        child w = start_child(come_in_session, stranger());
        tell(c.to, base);
        hear(c.from, address);
        tell(w.to, base);
        tell(w.to, address);
        const report r = end_child(&w);
        if (r.status != HK_OK)
            fail_msg("%s", r.text);
        tell(c.to, "enough");
        (void)end_child(&c);
        snprintf(path, sizeof path, "%s/hooke/cookie", base);
        assert_int_equal(lstat(path, &st) == 0, !open);
        cookie_folder(stranger(), path);
        assert_int_equal(lstat(path, &st) == 0, open);
        bed_folder_remove(base);
        remove_cookie(stranger());
    }
}

int main(void) {
    // What a login session says is of root, and not of the users here.
    unsetenv("XDG_RUNTIME_DIR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp),      cmocka_unit_test(test_insecure),
        cmocka_unit_test(test_squatter), cmocka_unit_test(test_unix),
        cmocka_unit_test(test_folder),   cmocka_unit_test(test_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
