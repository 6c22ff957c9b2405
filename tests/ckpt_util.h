// ckpt_util.h - maps with known values, hand-made files, a log that remembers.
#ifndef CKPT_UTIL_H
#define CKPT_UTIL_H
#include "file_util.h"
#include "hooke/ckpt.h"

// ---- maps ------------------------------------------------------------------

// A small model whose values follow from one number.
typedef struct model {
    float w[6], b[3];
    double d[2];
    int64_t step;
    int32_t rows[4];
    uint8_t bytes[5], flags[3];
    uint16_t half[4]; // bfloat16
    float none[1];    // of a tensor without elements
    hk_name_map *map;
} model;

static inline void model_add(model *m, const char *name, hk_dtype t, int rank,
                             const int64_t *dims, void *data) {
    const hk_named item = {.name = name,
                           .dtype = t,
                           .shape = hk_shape_make(rank, dims),
                           .data = data};
    assert_ok(hk_name_map_add(m->map, &item));
}

static inline void model_fill(model *m, int seed) {
    const float f = (float)seed;
    for (int i = 0; i < 6; i++)
        m->w[i] = f + (float)i / 8;
    for (int i = 0; i < 3; i++) {
        m->b[i] = -f * (float)(i + 1);
        m->flags[i] = (uint8_t)((seed + i) & 1);
    }
    for (int i = 0; i < 2; i++)
        m->d[i] = seed * 1e100 + i;
    m->step = (int64_t)seed << 33;
    for (int i = 0; i < 4; i++) {
        m->rows[i] = seed * 1000 - i;
        m->half[i] = (uint16_t)(0x3f80 + seed + i);
    }
    for (int i = 0; i < 5; i++)
        m->bytes[i] = (uint8_t)(seed * 7 + i);
}

static inline void model_init(model *m, int seed) {
    memset(m, 0, sizeof *m);
    assert_ok(hk_name_map_create(&m->map));
    model_add(m, "dense/kernel", HK_F32, 2, (int64_t[]){2, 3}, m->w);
    model_add(m, "dense/bias", HK_F32, 1, (int64_t[]){3}, m->b);
    model_add(m, "d \"quoted\" \xc3\xa9", HK_F64, 1, (int64_t[]){2}, m->d);
    model_add(m, "hooke/run/global_step", HK_I64, 0, NULL, &m->step);
    model_add(m, "rows", HK_I32, 2, (int64_t[]){4, 1}, m->rows);
    model_add(m, "bytes", HK_U8, 1, (int64_t[]){5}, m->bytes);
    model_add(m, "flags", HK_BOOL, 1, (int64_t[]){3}, m->flags);
    model_add(m, "half", HK_BF16, 3, (int64_t[]){2, 1, 2}, m->half);
    model_add(m, "none", HK_F32, 2, (int64_t[]){0, 7}, m->none);
    model_fill(m, seed);
}

static inline void model_deinit(model *m) {
    hk_name_map_destroy(m->map);
}

static inline bool model_is(const model *m, int seed) {
    model other = *m;
    model_fill(&other, seed);
    // Padding is equal: other began as a copy.
    return memcmp(&other, m, offsetof(model, map)) == 0;
}

#define assert_model(m, seed)                                                  \
    do {                                                                       \
        if (!model_is((m), (seed)))                                            \
            fail_msg("%s is not model %d: its weights begin with %g", #m,      \
                     (int)(seed), (double)(m)->w[0]);                          \
    } while (0)

// ---- files -----------------------------------------------------------------

// A safetensors file of a JSON header and a buffer of n bytes 0, 1, 2...
static inline void write_st(const char *path, const char *json, size_t n) {
    const size_t size = strlen(json);
    uint8_t *const bytes = malloc(8 + size + n);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)size >> (8 * i));
    memcpy(bytes + 8, json, size);
    for (size_t i = 0; i < n; i++)
        bytes[8 + size + i] = (uint8_t)i;
    write_file(path, bytes, 8 + size + n);
    free(bytes);
}

static inline size_t count_files(const char *path) {
    DIR *const dir = opendir(path);
    size_t n = 0;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

static inline bool file_there(const folder *d, const char *name) {
    char path[512];
    return access(folder_path(d, name, path), F_OK) == 0;
}

// ---- log -------------------------------------------------------------------

typedef struct memory_log {
    char text[8192];
    size_t warnings;
} memory_log;

static inline void remember_line(void *user, hk_log_level level,
                                 const char *text) {
    memory_log *const log = user;
    const size_t n = strlen(log->text);
    log->warnings += level >= HK_LOG_WARNING;
    snprintf(log->text + n, sizeof log->text - n, "%s\n", text);
}

static inline hk_context *context_with_log(memory_log *log) {
    hk_context_options o;
    hk_context *ctx;
    hk_context_options_init(&o, sizeof o);
    o.log = remember_line;
    o.log_user = log;
    o.log_level = HK_LOG_DEBUG;
    *log = (memory_log){0};
    assert_ok(hk_context_create(&o, &ctx));
    return ctx;
}

// The failure's text has this in it.
#define assert_message(part)                                                   \
    do {                                                                       \
        if (strstr(hk_last_error(), (part)) == NULL)                           \
            fail_msg("\"%s\" is not in: %s", (part), hk_last_error());         \
    } while (0)

#endif // CKPT_UTIL_H
