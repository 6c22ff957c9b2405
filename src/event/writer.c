// writer.c - an event file and the thread that writes it.
//
// Calls frame their events into `queue` under the lock and return. The thread
// takes the whole queue when its oldest event has waited flush_seconds, when
// it is half full, when somebody waits in flush, and at the end. A failure is
// kept, and every later call returns it: what is on disk then ends in a torn
// record at worst, which readers take as the end. With a context it is told of
// instead, and what was torn is cut off, so that later events can be read.
#define _GNU_SOURCE // gethostname
#include "event/writer.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>
#include "base/io.h"

// No part of it looks like an event file to TensorBoard.
#define LOCK_NAME ".hooke-writer.lock"
#define FILE_VERSION "brain.Event:2"
#define MAX_NAMES 10000
// A disk that takes nothing for so long is reported to whoever waits.
#define STALL_SECONDS 60

struct hk_event_writer {
    hk_event_options options;
    char *path;
    hki_lockfile *folder_lock;
    hki_thread *thread;
    hki_histogram_table *buckets;
    int fd; // -1: not open

    hki_mutex lock;   // guards what follows
    hki_cond work;    // for the thread
    hki_cond done;    // for those who wait for it
    bool stop, hurry; // hurry: somebody waits
    hki_buf queue;
    int64_t due_ns; // when the oldest event in the queue is to be written
    uint64_t queued_bytes, written_bytes; // since the start
    hki_fault failure;                    // the first one

    // The thread's own.
    hki_buf writing;
    int64_t whole_bytes; // of the file, up to the last record that is complete
    bool is_away;        // the disk took nothing the last time
};

// ---- options ---------------------------------------------------------------

static const hk_event_options defaults = {.struct_size =
                                              sizeof(hk_event_options),
                                          .flush_seconds = 10,
                                          .queue_bytes = 8 << 20,
                                          .wall_time = -1};

HKI_OPTIONS_FROM(hk_event_options, context, defaults)

static hk_status check_options(const char *dir, const hk_event_options *o) {
    if (dir == NULL || dir[0] == '\0')
        return hki_fail(HK_E_INVALID_ARG, "event writer: no folder given");
    if (!(o->flush_seconds >= 0 && o->flush_seconds <= 1e6))
        return hki_fail(
            HK_E_INVALID_ARG,
            "event writer: flush_seconds is %g; it has to be in 0..1e6",
            o->flush_seconds);
    if (o->queue_bytes == 0)
        return hki_fail(HK_E_INVALID_ARG, "event writer: queue_bytes is 0");
    if (isnan(o->wall_time) || o->wall_time > 1e12)
        return hki_fail(
            HK_E_INVALID_ARG,
            "event writer: wall_time is %g; it has to be finite and at least 0",
            o->wall_time);
    if (o->suffix != NULL && strchr(o->suffix, '/') != NULL)
        return hki_fail(HK_E_INVALID_ARG,
                        "event writer: suffix \"%s\" has a slash", o->suffix);
    return HK_OK;
}

// ---- the thread ------------------------------------------------------------

static hk_status write_all(const hk_event_writer *w, const char *p, size_t n) {
    while (n > 0) {
        const ssize_t done = hki_io()->write(w->fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return hki_io_fail(done < 0 ? errno : EIO, w->path, "write");
        p += done;
        n -= (size_t)done;
    }
    return HK_OK;
}

// Waits until there is something to write now; false at the end.
static bool wait_for_work(hk_event_writer *w) {
    for (;;) {
        const size_t n = w->queue.size;
        if (n == 0 && w->stop)
            return false;
        if (n > 0 && (w->stop || w->hurry || n > w->options.queue_bytes / 2 ||
                      hki_now_ns() >= w->due_ns))
            return true;
        if (n == 0)
            hki_cond_wait_forever(&w->work, &w->lock);
        else
            (void)hki_cond_wait(&w->work, &w->lock, w->due_ns);
    }
}

// The disk took nothing. True: the writer does without these events.
static bool go_without(hk_event_writer *w) {
    if (w->options.context == NULL)
        return false;
    if (!w->is_away)
        hki_log(w->options.context, HK_LOG_WARNING,
                "%s; training continues, but events are lost until the file "
                "can be written",
                hk_last_error());
    w->is_away = true;
    return ftruncate(w->fd, w->whole_bytes) == 0;
}

static hk_status write_queue(hk_event_writer *w, const hki_buf *full) {
    const hk_status s = write_all(w, full->data, full->size);
    if (s != HK_OK)
        return go_without(w) ? HK_OK : s;
    if (w->is_away)
        hki_log(w->options.context, HK_LOG_INFO, "%s: can be written again",
                w->path);
    w->is_away = false;
    w->whole_bytes += (int64_t)full->size;
    return HK_OK;
}

static void writer_main(void *user) {
    hk_event_writer *const w = user;
    hki_mutex_lock(&w->lock);
    while (wait_for_work(w)) {
        const hki_buf full = w->queue;
        w->queue = w->writing;
        w->writing = full;
        w->hurry = false;
        hki_mutex_unlock(&w->lock);
        const hk_status s =
            w->failure.status != HK_OK ? HK_OK : write_queue(w, &full);
        hki_mutex_lock(&w->lock);
        if (s != HK_OK)
            hki_fault_set(&w->failure, s);
        w->written_bytes += full.size;
        w->writing.size = 0;
        hki_cond_broadcast(&w->done);
    }
    hki_mutex_unlock(&w->lock);
}

// ---- queueing --------------------------------------------------------------

// Waits until the thread has written `until` bytes in all. The lock is held.
static hk_status wait_written(hk_event_writer *w, uint64_t until) {
    const int64_t deadline = hki_deadline(STALL_SECONDS * 1000);
    while (w->written_bytes < until) {
        w->hurry = true;
        hki_cond_signal(&w->work);
        if (!hki_cond_wait(&w->done, &w->lock, deadline) &&
            w->written_bytes < until)
            return hki_fail(
                HK_E_TIMEOUT,
                "%s: the disk did not accept %llu bytes of events within %d s",
                w->path, (unsigned long long)(until - w->written_bytes),
                STALL_SECONDS);
    }
    return hki_fault_raise(&w->failure);
}

// Frames and queues one event. The lock is held.
static hk_status enqueue(hk_event_writer *w, const hki_buf *event) {
    HKI_TRY(hki_fault_raise(&w->failure));
    // One event larger than the whole queue may pass alone.
    while (w->queue.size > 0 &&
           event->size > w->options.queue_bytes -
                             HKI_MIN(w->queue.size, w->options.queue_bytes))
        HKI_TRY(wait_written(w, w->queued_bytes));
    const bool first = w->queue.size == 0;
    if (first)
        w->due_ns = hki_now_ns() + (int64_t)(w->options.flush_seconds * 1e9);
    HKI_TRY(hki_record_append(&w->queue, event->data, event->size));
    w->queued_bytes += event->size + HKI_RECORD_HEADER + HKI_RECORD_FOOTER;
    // In between the thread has nothing to learn and sleeps on.
    if (first || w->queue.size > w->options.queue_bytes / 2)
        hki_cond_signal(&w->work);
    return HK_OK;
}

double hki_event_time(const hk_event_writer *w) {
    return w->options.wall_time >= 0 ? w->options.wall_time
                                     : hki_wall_seconds();
}

const hki_histogram_table *hki_event_buckets(const hk_event_writer *w) {
    return w->buckets;
}

hk_status hki_event_begin(hk_event_writer *w, int64_t step, uint32_t field,
                          hki_event_draft *d) {
    *d = (hki_event_draft){0};
    const double time = hki_event_time(w);
    if (time != 0)
        HKI_TRY(hki_pb_double(&d->bytes, 1, time));
    if (step != 0)
        HKI_TRY(hki_pb_varint(&d->bytes, 2, (uint64_t)step));
    return hki_pb_open(&d->bytes, field, &d->mark);
}

hk_status hki_event_send(hk_event_writer *w, hki_event_draft *d, hk_status s) {
    if (s == HK_OK)
        s = hki_pb_close(&d->bytes, d->mark);
    if (s == HK_OK) {
        hki_mutex_lock(&w->lock);
        s = enqueue(w, &d->bytes);
        hki_mutex_unlock(&w->lock);
    }
    hki_buf_deinit(&d->bytes);
    return s;
}

hk_status hk_event_flush(hk_event_writer *w) {
    if (w == NULL)
        return hki_fail(HK_E_INVALID_ARG, "event flush: no writer");
    HKI_LOCKED(&w->lock);
    return wait_written(w, w->queued_bytes);
}

const char *hk_event_path(const hk_event_writer *w) {
    return w != NULL ? w->path : "";
}

// ---- opening ---------------------------------------------------------------

static hk_status lock_folder(hk_event_writer *w, const char *dir) {
    hki_buf name = {0};
    hk_status s = hki_buf_printf(&name, "%s/" LOCK_NAME, dir);
    if (s == HK_OK)
        s = hki_lockfile_take(name.data, &w->folder_lock);
    hki_buf_deinit(&name);
    if (s == HK_E_EXISTS)
        return hki_fail(HK_E_EXISTS,
                        "%s: the folder already has an event writer (%s)", dir,
                        hk_last_error());
    return s;
}

// Opens a file that was not there before: the process id and a count tell
// files of one second apart.
static hk_status open_file(hk_event_writer *w, const char *dir) {
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0')
        snprintf(host, sizeof host, "localhost");
    for (char *p = host; *p != '\0'; p++)
        if (*p == '/')
            *p = '_';
    const long long seconds = (long long)hki_event_time(w);
    const char *const suffix =
        w->options.suffix != NULL ? w->options.suffix : "";
    hki_buf name = {0};
    hk_status s = HK_OK;
    for (int n = 0; n < MAX_NAMES && s == HK_OK; n++) {
        name.size = 0;
        s = hki_buf_printf(&name, "%s/events.out.tfevents.%010lld.%s.%ld.%d%s",
                           dir, seconds, host, (long)getpid(), n, suffix);
        if (s != HK_OK)
            break;
        w->fd = hki_io()->open(
            name.data, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC,
            0666);
        if (w->fd >= 0 || errno != EEXIST)
            break;
    }
    if (s == HK_OK && w->fd < 0)
        s = hki_io_fail(errno, name.data, "create");
    if (s == HK_OK)
        s = hki_strdup(name.data, &w->path);
    if (s != HK_OK && w->fd >= 0)
        hki_io()->unlink(name.data);
    hki_buf_deinit(&name);
    return s;
}

static hk_status send_version(hk_event_writer *w) {
    hki_event_draft d;
    const hk_status s = hki_event_begin(w, 0, HKI_EVENT_VERSION, &d);
    return hki_event_send(w, &d,
                          s != HK_OK ? s
                                     : hki_buf_add(&d.bytes, FILE_VERSION,
                                                   sizeof FILE_VERSION - 1));
}

static hk_status open_writer(hk_event_writer *w, const char *dir) {
    HKI_TRY(hki_alloc_array(1, sizeof *w->buckets, &w->buckets));
    hki_histogram_table_init(w->buckets);
    HKI_TRY(hki_folder_make(dir));
    HKI_TRY(lock_folder(w, dir));
    HKI_TRY(open_file(w, dir));
    w->options.suffix = NULL; // the caller's memory
    HKI_TRY(send_version(w));
    return hki_thread_start(writer_main, w, -1, "hooke-event", &w->thread);
}

// Ends the thread, if there is one, and frees everything.
static hk_status destroy(hk_event_writer *w) {
    if (w->thread != NULL) {
        hki_mutex_lock(&w->lock);
        w->stop = true;
        hki_cond_signal(&w->work);
        hki_mutex_unlock(&w->lock);
        hki_thread_stop(w->thread);
    }
    hk_status s = hki_fault_raise(&w->failure);
    if (w->fd >= 0 && hki_io()->close(w->fd) != 0 && s == HK_OK)
        s = hki_io_fail(errno, w->path != NULL ? w->path : "", "close");
    hki_lockfile_release(w->folder_lock);
    hki_mutex_deinit(&w->lock);
    hki_cond_deinit(&w->work);
    hki_cond_deinit(&w->done);
    hki_buf_deinit(&w->queue);
    hki_buf_deinit(&w->writing);
    hki_free(w->buckets);
    hki_free(w->path);
    hki_free(w);
    return s;
}

hk_status hk_event_open(const char *dir, const hk_event_options *opt,
                        hk_event_writer **out) {
    hk_event_options o = defaults;
    if (out == NULL)
        return hki_fail(HK_E_INVALID_ARG, "event writer: out is NULL");
    HKI_TRY(hki_options_copy(&o, sizeof o, opt, "hk_event_open"));
    HKI_TRY(check_options(dir, &o));
    hk_event_writer *w;
    HKI_TRY(hki_zalloc_array(1, sizeof *w, &w));
    hki_mutex_init(&w->lock);
    hki_cond_init(&w->work);
    hki_cond_init(&w->done);
    w->options = o;
    w->fd = -1;
    const hk_status s = open_writer(w, dir);
    if (s != HK_OK) {
        if (w->path != NULL)
            hki_io()->unlink(w->path); // nobody has written to it
        destroy(w);
        return s;
    }
    *out = w;
    return HK_OK;
}

hk_status hk_event_close(hk_event_writer *w) {
    return w != NULL ? destroy(w) : HK_OK;
}
