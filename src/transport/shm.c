// shm.c - unix sockets over which memory can be handed.
#include <errno.h>
#include "transport/socket.h"

typedef union fd_room {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
} fd_room;

static hk_status pass(hki_conn *c, int fd, bool *done) {
    char byte = 'f';
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    fd_room room = {{0}};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = room.bytes,
                       .msg_controllen = sizeof room.bytes};
    struct cmsghdr *const head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    *done =
        sendmsg(((hki_socket *)c)->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
    return *done || hki_socket_would_block()
               ? HK_OK
               : hki_socket_fail(errno, "hand over memory", c->peer);
}

static hk_status take(hki_conn *c, int *fd) {
    char byte = 0;
    struct iovec v = {.iov_base = &byte, .iov_len = 1};
    fd_room room = {{0}};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = room.bytes,
                       .msg_controllen = sizeof room.bytes};
    const ssize_t got =
        recvmsg(((hki_socket *)c)->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *const head = got == 1 ? CMSG_FIRSTHDR(&m) : NULL;
    if (got == 1 && byte == 'f' && head != NULL &&
        head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof *fd)) {
        memcpy(fd, CMSG_DATA(head), sizeof *fd);
        return HK_OK;
    }
    if (got == 0)
        return hki_fail(HK_E_UNAVAILABLE, "%s: closed the connection", c->peer);
    if (got > 0)
        return hki_fail(HK_E_DATA,
                        "%s: sent no shared memory where it was expected",
                        c->peer);
    return hki_socket_would_block()
               ? HK_OK
               : hki_socket_fail(errno, "take over memory", c->peer);
}

static const hki_conn_ops ops = {HKI_SOCKET_OPS,
                                 .handshake = hki_unix_handshake, .pass = pass,
                                 .take = take};

static hk_status wrap_shm(hki_net *n, int fd, bool client, hki_conn **out) {
    return hki_socket_create(n, &hki_shm_transport, &ops, fd, client, out);
}

const hki_transport hki_shm_transport = {.scheme = "shm",
                                         .flags = HKI_CONN_MEMORY,
                                         .connect = hki_unix_connect,
                                         .listen = hki_unix_listen,
                                         .wrap = wrap_shm};
