// csv_isa.c - inner loops of the CSV reader, once per instruction-set level.
//
// The index looks at 64 bytes at a time: a bit for each byte that ends a
// field, a line or opens a quote, then the numbers of the set bits. Rows that
// have the same marks in the same order are then stored column by column.
#include "data/csv/csv.h"
#include "data/core/number.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Flags are constants in here once everything is in one piece.
#define INLINE static inline __attribute__((always_inline))

// Bits of the 64 bytes at p, the first byte lowest: structure, that of it which
// is no delimiter, and bytes that are no plain text. For `1,"a"\n2` (from left
// to right, as the text is):
//     marks    0 1 1 0 1 1 0
//     special  0 0 1 0 1 1 0
typedef struct bits {
    uint64_t marks, special, odd;
} bits;

#if defined(__x86_64__) && HKI_ISA_LEVEL >= 3

INLINE bits look(const uint8_t *p, uint8_t delimiter, uint8_t quote) {
    const __m512i v = _mm512_loadu_si512(p);
    const uint64_t special =
        _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)quote)) |
        _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\n')) |
        _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('\r'));
    const uint64_t ends =
        _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)delimiter));
    // Signed: plain text is above zero.
    return (bits){ends | special, special & ~ends,
                  _mm512_cmple_epi8_mask(v, _mm512_setzero_si512())};
}

#elif defined(__x86_64__) && HKI_ISA_LEVEL == 2

INLINE bits look32(const uint8_t *p, __m256i delimiter, __m256i quote) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
    const __m256i ends = _mm256_cmpeq_epi8(v, delimiter);
    const __m256i special = _mm256_or_si256(
        _mm256_cmpeq_epi8(v, quote),
        _mm256_or_si256(_mm256_cmpeq_epi8(v, _mm256_set1_epi8('\n')),
                        _mm256_cmpeq_epi8(v, _mm256_set1_epi8('\r'))));
    const __m256i plain = _mm256_cmpgt_epi8(v, _mm256_setzero_si256());
    const uint32_t e = (uint32_t)_mm256_movemask_epi8(ends);
    const uint32_t x = (uint32_t)_mm256_movemask_epi8(special);
    return (bits){e | x, x & ~e, (uint32_t)~_mm256_movemask_epi8(plain)};
}

INLINE bits look(const uint8_t *p, uint8_t delimiter, uint8_t quote) {
    const __m256i d = _mm256_set1_epi8((char)delimiter);
    const __m256i q = _mm256_set1_epi8((char)quote);
    const bits a = look32(p, d, q), b = look32(p + 32, d, q);
    return (bits){a.marks | b.marks << 32, a.special | b.special << 32,
                  a.odd | b.odd << 32};
}

#elif defined(__x86_64__)

INLINE bits look16(const uint8_t *p, __m128i delimiter, __m128i quote) {
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    const __m128i ends = _mm_cmpeq_epi8(v, delimiter);
    const __m128i special =
        _mm_or_si128(_mm_cmpeq_epi8(v, quote),
                     _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\n')),
                                  _mm_cmpeq_epi8(v, _mm_set1_epi8('\r'))));
    const __m128i plain = _mm_cmpgt_epi8(v, _mm_setzero_si128());
    const uint32_t e = (uint32_t)_mm_movemask_epi8(ends);
    const uint32_t x = (uint32_t)_mm_movemask_epi8(special);
    return (bits){e | x, x & ~e, (uint16_t)~_mm_movemask_epi8(plain)};
}

INLINE bits look(const uint8_t *p, uint8_t delimiter, uint8_t quote) {
    const __m128i d = _mm_set1_epi8((char)delimiter);
    const __m128i q = _mm_set1_epi8((char)quote);
    bits all = {0};
    for (int i = 0; i < 4; i++) {
        const bits b = look16(p + 16 * i, d, q);
        all.marks |= b.marks << (16 * i);
        all.special |= b.special << (16 * i);
        all.odd |= b.odd << (16 * i);
    }
    return all;
}

#else

INLINE bits look(const uint8_t *p, uint8_t delimiter, uint8_t quote) {
    bits all = {0};
    for (int i = 0; i < 64; i++) {
        const uint8_t c = p[i];
        const uint64_t special =
            c != delimiter && (c == quote || c == '\n' || c == '\r');
        all.marks |= (special | (c == delimiter)) << i;
        all.special |= special << i;
        all.odd |= (uint64_t)(c == 0 || c >= 128) << i;
    }
    return all;
}

#endif

// Appends the numbers of the set bits. Four at a time without asking whether
// they are there: what is written too much is written over later.
INLINE uint32_t *list_bits(uint64_t marks, uint64_t special, uint32_t base,
                           uint32_t *out) {
    uint32_t *const end = out + __builtin_popcountll(marks);
    while (marks != 0) {
        for (int i = 0; i < 4; i++) {
            // The top bit keeps the builtin defined when no other is left.
            const uint64_t safe = marks | UINT64_C(1) << 63;
            const uint32_t bit = (uint32_t)__builtin_ctzll(safe);
            out[i] = (base + bit) | (uint32_t)(special >> bit & 1) << 31;
            marks &= marks - 1;
        }
        out += 4;
    }
    return end;
}

static size_t csv_index(const uint8_t *p, size_t n, uint8_t delimiter,
                        uint8_t quote, uint32_t *out, bool *plain) {
    uint32_t *at = out;
    uint64_t odd = 0;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        const bits b = look(p + i, delimiter, quote);
        odd |= b.odd;
        at = list_bits(b.marks, b.special, (uint32_t)i, at);
    }
    if (i < n) {
        const uint64_t valid = (UINT64_C(1) << (n - i)) - 1;
        const bits b = look(p + i, delimiter, quote);
        odd |= b.odd & valid;
        at = list_bits(b.marks & valid, b.special, (uint32_t)i, at);
    }
    *plain = odd == 0;
    return (size_t)(at - out);
}

// ---- fields ----------------------------------------------------------------

#if defined(__x86_64__) && HKI_ISA_LEVEL >= 2

// One to eight digits to a column, as hki_parse_digits8; eight bytes may be
// read before their end as well. False: something else. With zeros in front,
//     d1 ... d8  ->  10 d1 + d2, ...  ->  100 p1 + p2, ...  ->  10000 f1 + f2
INLINE bool store_digits(const hki_csv_target *t, hki_csv_route route,
                         const uint8_t *p, size_t n, int64_t row) {
    // The last n of eight bytes.
    static const _Alignas(16) uint64_t keep[9][2] = {
        {0},
        {UINT64_MAX << 56},
        {UINT64_MAX << 48},
        {UINT64_MAX << 40},
        {UINT64_MAX << 32},
        {UINT64_MAX << 24},
        {UINT64_MAX << 16},
        {UINT64_MAX << 8},
        {UINT64_MAX},
    };
    const __m128i text =
        _mm_loadl_epi64((const __m128i *)(const void *)(p + n - 8));
    const __m128i digits =
        _mm_and_si128(_mm_sub_epi8(text, _mm_set1_epi8('0')),
                      _mm_load_si128((const __m128i *)(const void *)keep[n]));
    const __m128i above = _mm_subs_epu8(digits, _mm_set1_epi8(9));
    if (!_mm_testz_si128(above, above))
        return false;
    // Neighbours are joined: 8 digits, 4 pairs, 2 fours, 1 eight.
    const __m128i pairs =
        _mm_maddubs_epi16(digits, _mm_set1_epi16(1 << 8 | 10));
    const __m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(1 << 16 | 100));
    const __m128i eight = _mm_madd_epi16(_mm_packus_epi32(fours, fours),
                                         _mm_set1_epi32(1 << 16 | 10000));
    if (route == HKI_CSV_F32)
        _mm_store_ss((float *)t->data + row, _mm_cvtepi32_ps(eight));
    else if (route == HKI_CSV_F64)
        _mm_store_sd((double *)t->data + row, _mm_cvtepi32_pd(eight));
    else if (route == HKI_CSV_I32)
        ((int32_t *)t->data)[row] = _mm_cvtsi128_si32(eight);
    else
        ((int64_t *)t->data)[row] = _mm_cvtsi128_si32(eight);
    return true;
}

#else

INLINE bool store_digits(const hki_csv_target *t, hki_csv_route route,
                         const uint8_t *p, size_t n, int64_t row) {
    uint32_t v;
    if (!hki_parse_digits8(p, n, &v))
        return false;
    if (route == HKI_CSV_F32)
        ((float *)t->data)[row] = (float)v;
    else if (route == HKI_CSV_F64)
        ((double *)t->data)[row] = v;
    else if (route == HKI_CSV_I32)
        ((int32_t *)t->data)[row] = (int32_t)v;
    else
        ((int64_t *)t->data)[row] = v;
    return true;
}

#endif

// A short string to a cell that holds a short one: all of the cell at once.
INLINE void fill_cell(hki_string *cell, const uint8_t *p, size_t n) {
#if defined(__x86_64__) && HKI_ISA_LEVEL >= 2
    const __m256i text =
        _mm256_loadu_si256((const __m256i *)(const void *)(p - 8));
    const __m256i size = _mm256_castsi128_si256(_mm_cvtsi64_si128((int64_t)n));
    _mm256_storeu_si256((__m256i *)(void *)cell,
                        _mm256_blend_epi32(text, size, 3));
#else
    cell->size = n;
    memcpy(cell->at.near, p, HKI_STRING_NEAR);
#endif
}

INLINE bool store_string(const hki_csv_target *t, const uint8_t *p, size_t n,
                         int64_t row) {
    hki_string *const cell = &t->cells[row];
    if (n - 1 >= HKI_STRING_NEAR || cell->size > HKI_STRING_NEAR)
        return false;
    fill_cell(cell, p, n);
    return true;
}

// Without branches: which word it is follows no pattern.
INLINE bool store_word(const hki_csv_target *t, const uint8_t *p, size_t n,
                       int64_t row) {
    uint32_t at = 0, found = 0;
    if (n - 1 >= 7 || p[n - 1] == t->strip)
        return false;
    const uint64_t key =
        (hki_get_u64(p) & ((UINT64_C(1) << (8 * n)) - 1)) | (uint64_t)n << 56;
    for (uint32_t i = 0; i < t->n_words; i++) {
        const uint32_t same = t->words[i] == key;
        found |= same;
        at |= i & (0 - same);
    }
    if (t->wide)
        ((int64_t *)t->data)[row] = at;
    else
        ((int32_t *)t->data)[row] = (int32_t)at;
    return found != 0;
}

// The plain form of a field, if it has one: at most one blank before it,
// nothing to strip or to take for missing. An empty one is told by its size.
INLINE bool store_plain(const hki_csv_job *j, const hki_csv_target *t,
                        const uint8_t *p, size_t n, int64_t row,
                        hki_csv_route route, bool trim) {
    const bool text = route == HKI_CSV_STRING || route == HKI_CSV_WORD;
    if (route == HKI_CSV_OTHER)
        return false;
    if (trim && p[0] == ' ') { // always or never, in most columns
        p++;
        n--;
    }
    if (text || j->number_tokens) {
        const uint8_t first = j->first[p[0]];
        if (first != HKI_CSV_PLAIN &&
            (first == HKI_CSV_BLANK ||
             (j->missing_sizes >> (n < 63 ? n : 63) & 1) != 0))
            return false;
    }
    if (!text)
        return n - 1 < 8 && store_digits(t, route, p, n, row);
    if (trim && (p + n)[-1] <= ' ') // also when it is empty
        return false;
    return route == HKI_CSV_STRING ? store_string(t, p, n, row)
                                   : store_word(t, p, n, row);
}

// ---- columns ---------------------------------------------------------------

#define ROWS 128 // worked on at once: their text stays in the nearest cache
#define BLOCK 16 // fields

// Rows of the same form, one after the other in the index.
typedef struct rows {
    const uint32_t *marks; // of the first one
    size_t stride;         // marks a row
    int64_t n;
    int64_t row; // that the first one goes to
    // Of a block of fields, column by column: where each field begins, the one
    // behind the block included. A mark and nothing else is between two fields.
    uint32_t starts[BLOCK + 1][ROWS];
} rows;

// Where the fields of a column begin, and those behind them.
typedef struct column_text {
    const uint32_t *starts, *next;
} column_text;

INLINE const uint8_t *field_at(const hki_csv_job *j, const column_text *c,
                               int64_t i, size_t *size) {
    *size = c->next[i] - c->starts[i] - 1;
    return j->base + c->starts[i];
}

// Stores plain fields from row i on; returns the first row whose is not.
// Everything is local: stores could otherwise change any of it.
INLINE int64_t store_plains(const hki_csv_job *job, const rows *r,
                            const column_text *text, size_t k, int64_t i,
                            hki_csv_route route, bool trim) {
    const hki_csv_job j = *job;
    const column_text c = *text;
    const hki_csv_target t = j.targets[k];
    const int64_t n = r->n, row = r->row;
    for (; i < n; i++) {
        size_t size;
        const uint8_t *const p = field_at(&j, &c, i, &size);
        if (!store_plain(&j, &t, p, size, row + i, route, trim))
            break;
    }
    return i;
}

// Field k of all rows; returns how many are good from the first on.
INLINE int64_t store_column(const hki_csv_job *j, const rows *r, size_t k,
                            hki_csv_route route, bool trim) {
    const column_text c = {r->starts[k % BLOCK], r->starts[k % BLOCK + 1]};
    for (int64_t i = 0;; i++) {
        i = store_plains(j, r, &c, k, i, route, trim);
        if (i == r->n)
            return i;
        size_t size;
        const uint8_t *const p = field_at(j, &c, i, &size);
        if (!j->other(j->user, k, p, size, r->row + i))
            return i;
    }
}

typedef int64_t (*column_fn)(const hki_csv_job *j, const rows *r, size_t k);

// One function for each kind of column: so each has the registers to itself.
#define COLUMN(name, route)                                                    \
    static __attribute__((noinline)) int64_t name(const hki_csv_job *j,        \
                                                  const rows *r, size_t k) {   \
        return store_column(j, r, k, route, false);                            \
    }                                                                          \
    static __attribute__((noinline))                                           \
    int64_t name##_trim(const hki_csv_job *j, const rows *r, size_t k) {       \
        return store_column(j, r, k, route, true);                             \
    }
COLUMN(other_column, HKI_CSV_OTHER)
COLUMN(string_column, HKI_CSV_STRING)
COLUMN(word_column, HKI_CSV_WORD)
COLUMN(i32_column, HKI_CSV_I32)
COLUMN(i64_column, HKI_CSV_I64)
COLUMN(f32_column, HKI_CSV_F32)
COLUMN(f64_column, HKI_CSV_F64)
#undef COLUMN

static const column_fn column_fns[][2] = {
    [HKI_CSV_OTHER] = {other_column, other_column_trim},
    [HKI_CSV_STRING] = {string_column, string_column_trim},
    [HKI_CSV_WORD] = {word_column, word_column_trim},
    [HKI_CSV_I32] = {i32_column, i32_column_trim},
    [HKI_CSV_I64] = {i64_column, i64_column_trim},
    [HKI_CSV_F32] = {f32_column, f32_column_trim},
    [HKI_CSV_F64] = {f64_column, f64_column_trim},
};

// One of n marks is no delimiter. Marks of the index have HKI_CSV_SLACK more
// behind them.
INLINE bool any_special(const uint32_t *marks, size_t n) {
    uint32_t any = 0;
    for (size_t k = 0; k < n; k++)
        any |= marks[k];
    return (any & HKI_CSV_SPECIAL) != 0;
}

// The row at marks has n_fields - 1 delimiters and then a line end of `ends`
// marks.
INLINE bool is_regular(const hki_csv_job *j, const uint32_t *marks,
                       size_t start, size_t ends) {
    const size_t last = j->n_fields - 1;
    const uint32_t end = marks[last];
    const uint8_t *const p = j->base + (end & ~HKI_CSV_SPECIAL);
    if (any_special(marks, last) || (end & HKI_CSV_SPECIAL) == 0 ||
        (j->comment != 0 && j->base[start] == j->comment))
        return false;
    if (last == 0 && p == j->base + start) // perhaps an empty line
        return false;
    return ends == 1
               ? p[0] == '\n'
               : p[0] == '\r' && p[1] == '\n' && marks[last + 1] == end + 1;
}

// Gathers rows of the form of the first one.
INLINE void find_rows(const hki_csv_job *j, rows *r, int64_t want, size_t start,
                      size_t at) {
    const size_t last = j->n_fields - 1;
    r->marks = j->index + at;
    r->stride = j->n_fields;
    r->n = 0;
    if (at + last >= j->n_index)
        return;
    const uint8_t *const p = j->base + (r->marks[last] & ~HKI_CSV_SPECIAL);
    const size_t ends = *p == '\r' ? 2 : 1;
    r->stride = last + ends;
    while (r->n < HKI_MIN(want, ROWS) && at + r->stride <= j->n_index) {
        const uint32_t *const marks = j->index + at;
        if (!is_regular(j, marks, start, ends))
            break;
        r->starts[0][r->n++] = (uint32_t)start;
        at += r->stride;
        start = (marks[r->stride - 1] & ~HKI_CSV_SPECIAL) + (size_t)1;
    }
}

// Turns the marks of the fields from `field` on into columns of starts.
INLINE void turn_marks(rows *r, size_t field, size_t n_fields) {
    const uint32_t *const marks = r->marks + field;
    for (int64_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < HKI_MIN(n_fields - field, BLOCK); k++)
            r->starts[k + 1][i] =
                (marks[(size_t)i * r->stride + k] & ~HKI_CSV_SPECIAL) + 1;
}

// Stores all fields of the rows; fewer rows are left when one is not good.
INLINE void store_fields(const hki_csv_job *j, rows *r) {
    for (size_t k = 0; k < j->n_fields && r->n > 0; k++) {
        const hki_csv_route route = j->targets[k].route;
        if (k > 0 && k % BLOCK == 0)
            memcpy(r->starts[0], r->starts[BLOCK], sizeof r->starts[0]);
        if (k % BLOCK == 0)
            turn_marks(r, k, j->n_fields);
        if (route != HKI_CSV_PASS)
            r->n = column_fns[route][j->trim](j, r, k);
    }
}

static int64_t csv_rows(const hki_csv_job *job, int64_t row, int64_t want,
                        size_t *start, size_t *at) {
    const hki_csv_job j = *job;
    int64_t done = 0;
    while (done < want) {
        rows r;
        r.row = row + done;
        find_rows(&j, &r, want - done, *start, *at);
        const int64_t found = r.n;
        store_fields(&j, &r);
        if (r.n > 0) {
            *at += (size_t)r.n * r.stride;
            *start = (j.index[*at - 1] & ~HKI_CSV_SPECIAL) + (size_t)1;
            done += r.n;
        }
        if (r.n < found || found == 0)
            break;
    }
    return done;
}

const hki_csv_kernels HKI_ISA_NAME(hki_csv_kernels_table) = {
    csv_rows,
    csv_index,
};
