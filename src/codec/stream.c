// stream.c - the bytes of a file, plain or as they were before gzip or zlib
// packed them, by zlib.
//
// Plain files are read straight into the caller's memory. Packed ones pass
// through one input buffer; going back means starting again, going forward
// means reading through. A damaged file gives HK_E_DATA at the place where
// the damage shows, and again at every further read.
//
// gzip data may consist of several members, as `cat a.gz b.gz` makes, and may
// be padded with zero bytes, as tapes leave them.
#include "codec/codec.h"
#include "codec/zlib_memory.h"

#define MIN_BUFFER 512
#define SKIP_BYTES 65536
#define MOST ((size_t)1 << 30) // bytes at once: zlib counts in 32 bits

struct hki_stream {
    hki_input *file;
    hki_packing packing;
    const char *path;  // the file's
    uint64_t position; // unpacked bytes handed out
    uint64_t consumed; // bytes of the file that were unpacked
    uint8_t *in;       // packed bytes, buffer_bytes of them
    size_t buffer_bytes;
    bool at_file_end;
    bool in_member; // zlib expects more of the current member
    bool ready;     // zlib's state exists
    bool ended;     // the last member is over
    hk_status damage;
    z_stream z;
};

// ---- reading ---------------------------------------------------------------

static hk_status start_member(hki_stream *s) {
    // 15 is the window of both formats; 16 more asks for gzip's header.
    const int window = s->packing == HKI_GZIP ? 15 + 16 : 15;
    const int r = s->ready ? inflateReset(&s->z) : inflateInit2(&s->z, window);
    if (r == Z_MEM_ERROR)
        return hki_fail(HK_E_NO_MEMORY,
                        "%s: out of memory for the decompression", s->path);
    if (r != Z_OK)
        return hki_fail(HK_E_INTERNAL, "%s: zlib cannot be started (%d)",
                        s->path, r);
    s->ready = true;
    s->in_member = true;
    return HK_OK;
}

static hk_status damaged(hki_stream *s, const char *how) {
    s->damage = HK_E_DATA;
    return hki_fail(
        HK_E_DATA, "%s: %s %s data at byte %llu (uncompressed byte %llu)",
        s->path, how, s->packing == HKI_GZIP ? "gzip" : "zlib",
        (unsigned long long)s->consumed, (unsigned long long)s->position);
}

// More packed bytes, if there are any.
static hk_status refill(hki_stream *s) {
    if (s->z.avail_in > 0 || s->at_file_end)
        return HK_OK;
    size_t got = 0;
    HKI_TRY(hki_input_read(s->file, s->in, s->buffer_bytes, &got));
    s->at_file_end = got == 0;
    s->z.next_in = s->in;
    s->z.avail_in = (unsigned int)got;
    return HK_OK;
}

// Between members: zero bytes are padding, the end is the end, anything else
// begins another member.
static hk_status next_member(hki_stream *s) {
    const bool first = s->consumed == 0;
    for (;;) {
        HKI_TRY(refill(s));
        if (s->z.avail_in == 0) {
            s->ended = true;
            return first ? damaged(s, "no") : HK_OK;
        }
        if (first || *s->z.next_in != 0)
            break;
        s->z.next_in++;
        s->z.avail_in--;
        s->consumed++;
    }
    if (!first && s->packing == HKI_ZLIB)
        return damaged(s, "unexpected bytes after the");
    return start_member(s);
}

// Unpacks until at least one byte is there, or the end.
static hk_status unpack_some(hki_stream *s, void *out, size_t capacity,
                             size_t *got) {
    const unsigned int room = (unsigned int)HKI_MIN(capacity, MOST);
    s->z.next_out = out;
    s->z.avail_out = room;
    while (!s->ended && s->z.avail_out == room) {
        if (!s->in_member) {
            HKI_TRY(next_member(s));
            continue;
        }
        HKI_TRY(refill(s));
        if (s->z.avail_in == 0)
            return damaged(s, "truncated");
        const unsigned int before = s->z.avail_in;
        const int r = inflate(&s->z, Z_NO_FLUSH);
        s->consumed += before - s->z.avail_in;
        if (r == Z_STREAM_END)
            s->in_member = false;
        else if (r == Z_MEM_ERROR)
            return hki_fail(HK_E_NO_MEMORY,
                            "%s: out of memory for the decompression", s->path);
        else if (r != Z_OK && s->z.avail_out == room)
            return damaged(s, "damaged");
        else if (r != Z_OK)
            s->damage = HK_E_DATA; // told at the next read
    }
    *got = room - s->z.avail_out;
    return HK_OK;
}

hk_status hki_stream_read(hki_stream *s, void *out, size_t capacity,
                          size_t *got) {
    size_t n = 0;
    if (capacity == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s: a read of 0 bytes", s->path);
    if (s->damage != HK_OK)
        return damaged(s, "damaged");
    if (s->packing == HKI_UNPACKED) {
        HKI_TRY(hki_input_read(s->file, out, capacity, &n));
        s->consumed += n;
    } else {
        HKI_TRY(unpack_some(s, out, capacity, &n));
    }
    s->position += n;
    *got = n;
    return HK_OK;
}

// ---- position --------------------------------------------------------------

static hk_status rewind_packed(hki_stream *s) {
    HKI_TRY(hki_input_seek(s->file, 0));
    s->position = s->consumed = 0;
    s->at_file_end = s->in_member = s->ended = false;
    s->damage = HK_OK;
    s->z.avail_in = 0;
    return HK_OK;
}

static hk_status read_through(hki_stream *s, uint64_t position) {
    uint8_t *skipped = NULL;
    if (s->position == position)
        return HK_OK;
    HKI_TRY(hki_alloc_array(SKIP_BYTES, 1, &skipped));
    hk_status r = HK_OK;
    while (r == HK_OK && s->position < position) {
        size_t got = 0;
        r = hki_stream_read(
            s, skipped,
            (size_t)HKI_MIN(position - s->position, (uint64_t)SKIP_BYTES),
            &got);
        if (r == HK_OK && got == 0)
            r = hki_fail(
                HK_E_DATA,
                "%s: has %llu uncompressed bytes, but reading was to continue "
                "at byte %llu; the file is incomplete or was changed",
                s->path, (unsigned long long)s->position,
                (unsigned long long)position);
    }
    hki_free(skipped);
    return r;
}

hk_status hki_stream_seek(hki_stream *s, uint64_t position) {
    if (s->packing != HKI_UNPACKED) {
        if (position < s->position)
            HKI_TRY(rewind_packed(s));
        return read_through(s, position);
    }
    if (position != s->position)
        HKI_TRY(hki_input_seek(s->file, position));
    s->position = s->consumed = position;
    return HK_OK;
}

void hki_stream_until(hki_stream *s, uint64_t end) {
    if (s->packing == HKI_UNPACKED)
        hki_input_until(s->file, end);
}

bool hki_stream_size(const hki_stream *s, uint64_t *size) {
    return s->packing == HKI_UNPACKED && hki_input_size(s->file, size);
}

// ---- open and close --------------------------------------------------------

hk_status hki_stream_open(hki_input *file, hki_packing packing,
                          size_t buffer_bytes, hki_stream **out) {
    hki_stream *s;
    hk_status e = hki_zalloc_array(1, sizeof *s, &s);
    HKI_TRY_OR(e, hki_input_close(file));
    s->file = file;
    s->path = hki_input_path(file);
    s->packing = packing;
    s->buffer_bytes = HKI_MIN(HKI_MAX(buffer_bytes, MIN_BUFFER), INT32_MAX);
    s->z = HKI_ZLIB_MEMORY;
    if (packing != HKI_UNPACKED)
        e = hki_alloc_array(s->buffer_bytes, 1, &s->in);
    HKI_TRY_OR(e, hki_stream_close(s));
    *out = s;
    return HK_OK;
}

void hki_stream_close(hki_stream *s) {
    if (s == NULL)
        return;
    if (s->ready)
        (void)inflateEnd(&s->z);
    hki_input_close(s->file);
    hki_free(s->in);
    hki_free(s);
}

// ---- all of it -------------------------------------------------------------

// Room for the next read: the rest of a file that is as long as it is, and one
// byte to see the end. Else memory follows what has really come out, and one
// byte beyond the limit tells a bomb.
static size_t next_room(const hki_stream *s, size_t have, size_t limit) {
    uint64_t size;
    if (hki_stream_size(s, &size) && have <= size && size <= limit)
        return (size_t)size - have + 1;
    return HKI_MIN(HKI_MAX(have, SKIP_BYTES), limit + 1);
}

static hk_status read_to_end(hki_stream *s, size_t limit, hki_buf *all) {
    size_t got = 1;
    while (got > 0) {
        const size_t room = next_room(s, all->size, limit);
        HKI_TRY(hki_buf_reserve(all, room));
        HKI_TRY(hki_stream_read(s, all->data + all->size, room, &got));
        all->size += got;
        if (all->size > limit)
            return hki_fail(HK_E_DATA,
                            "%s: has more than the limit of %zu bytes", s->path,
                            limit);
    }
    return HK_OK;
}

hk_status hki_stream_read_all(hki_stream *s, size_t limit, uint8_t **out,
                              size_t *size) {
    hki_buf all = {0};
    HKI_TRY_OR(read_to_end(s, limit, &all), hki_buf_deinit(&all));
    *out = (uint8_t *)all.data;
    *size = all.size;
    return HK_OK;
}
