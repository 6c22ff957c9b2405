// data/csv/csv_eight.h - a column of eight rows at once, for csv_isa.c at its
// highest level.
//
// Each function stores what it can of rows i to i + 7 and returns how many of
// them are good, from the first on. What it stores of the others is written
// over by whoever reads them one by one.
#ifndef HKI_DATA_CSV_EIGHT_H
#define HKI_DATA_CSV_EIGHT_H

#define EIGHT 8

INLINE __m256i field_starts(const column_text *c, int64_t i) {
    return _mm256_loadu_si256((const void *)(c->starts + i));
}

INLINE __m256i field_ends(const column_text *c, int64_t i) {
    return _mm256_sub_epi32(_mm256_loadu_si256((const void *)(c->next + i)),
                            _mm256_set1_epi32(1));
}

// Sixteen marks of each of sixteen rows to sixteen columns of what follows the
// marks: neighbours change places by one, two, four and eight.
INLINE void turn_block(const uint32_t *marks, size_t stride, uint32_t *out) {
    const __m512i place = _mm512_set1_epi32(INT32_MAX);
    __m512i a[16], b[16];
    for (size_t k = 0; k < 16; k++)
        a[k] = _mm512_loadu_si512(marks + k * stride);
    for (size_t k = 0; k < 16; k += 2) {
        b[k] = _mm512_unpacklo_epi32(a[k], a[k + 1]);
        b[k + 1] = _mm512_unpackhi_epi32(a[k], a[k + 1]);
    }
    for (size_t k = 0; k < 16; k += 4)
        for (size_t i = 0; i < 2; i++) {
            a[k + 2 * i] = _mm512_unpacklo_epi64(b[k + i], b[k + i + 2]);
            a[k + 2 * i + 1] = _mm512_unpackhi_epi64(b[k + i], b[k + i + 2]);
        }
    for (size_t k = 0; k < 16; k += 8)
        for (size_t i = k; i < k + 4; i++) {
            b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
            b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
        }
    for (size_t i = 0; i < 8; i++) {
        a[i] = _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88);
        a[i + 8] = _mm512_shuffle_i32x4(b[i], b[i + 8], 0xdd);
    }
    for (size_t k = 0; k < 16; k++)
        _mm512_storeu_si512(out + k * ROWS,
                            _mm512_add_epi32(_mm512_and_si512(a[k], place),
                                             _mm512_set1_epi32(1)));
}

// Rows before the first one of which a bit is set; `each` bits a row.
INLINE int64_t rows_before(uint64_t bad, int each) {
    return bad == 0 ? EIGHT : __builtin_ctzll(bad) / each;
}

// One to eight digits, behind blanks where those are to be trimmed.
INLINE int64_t eight_digits(const hki_csv_job *j, const hki_csv_target *t,
                            const column_text *c, int64_t i, int64_t row,
                            hki_csv_route route, bool trim) {
    const uint64_t lasts = UINT64_C(0x8080808080808080);
    const __m256i end = field_ends(c, i);
    const __m512i size =
        _mm512_cvtepu32_epi64(_mm256_sub_epi32(end, field_starts(c, i)));
    // The last eight bytes before the mark, of which the last `size` count;
    // none when it is larger.
    const __m512i text = _mm512_i32gather_epi64(
        _mm256_sub_epi32(end, _mm256_set1_epi32(8)), j->base, 1);
    const __m512i spare =
        _mm512_sub_epi64(_mm512_set1_epi64(64), _mm512_slli_epi64(size, 3));
    const uint64_t field =
        _mm512_movepi8_mask(_mm512_sllv_epi64(_mm512_set1_epi64(-1), spare));
    const __m512i values = _mm512_sub_epi8(text, _mm512_set1_epi8('0'));
    const uint64_t digit = _mm512_cmple_epu8_mask(values, _mm512_set1_epi8(9));
    const uint64_t blank =
        trim ? field & _mm512_cmpeq_epi8_mask(text, _mm512_set1_epi8(' ')) : 0;
    const uint64_t number = field & ~blank;
    // Other bytes, blanks behind a digit, no digit at the end.
    const uint64_t bad = (number & ~digit) | ((number & ~lasts) << 1 & blank) |
                         (~number & lasts);
    // Neighbours are joined: 8 digits, 4 pairs, 2 fours, 1 eight.
    const __m512i pairs = _mm512_maddubs_epi16(
        _mm512_maskz_mov_epi8(number, values), _mm512_set1_epi16(1 << 8 | 10));
    const __m512i fours =
        _mm512_madd_epi16(pairs, _mm512_set1_epi32(1 << 16 | 100));
    const __m512i eight =
        _mm512_add_epi64(_mm512_mul_epu32(fours, _mm512_set1_epi64(10000)),
                         _mm512_srli_epi64(fours, 32));
    const __m256i narrow = _mm512_cvtepi64_epi32(eight);
    if (route == HKI_CSV_F32)
        _mm256_storeu_ps((float *)t->data + row, _mm256_cvtepi32_ps(narrow));
    else if (route == HKI_CSV_F64)
        _mm512_storeu_pd((double *)t->data + row, _mm512_cvtepi32_pd(narrow));
    else if (route == HKI_CSV_I32)
        _mm256_storeu_si256((void *)((int32_t *)t->data + row), narrow);
    else
        _mm512_storeu_si512((int64_t *)t->data + row, eight);
    return rows_before(bad, 8);
}

// Texts without the blank before them; bad: those with more to trim, those
// that may be a missing value of several bytes, or of more than `most` bytes.
typedef struct eight_texts {
    __m256i from, size;
    __m256i last;          // bytes
    uint32_t bad, missing; // a bit a row
} eight_texts;

INLINE eight_texts find_texts(const hki_csv_job *j, const column_text *c,
                              int64_t i, bool trim, int32_t most) {
    const int *const base = (const int *)(const void *)j->base;
    const __m256i byte = _mm256_set1_epi32(255), blank = _mm256_set1_epi32(' ');
    const __m256i one = _mm256_set1_epi32(1), end = field_ends(c, i);
    eight_texts e = {.from = field_starts(c, i)};
    __m256i first = _mm256_i32gather_epi32(base, e.from, 1);
    e.last = _mm256_srli_epi32(
        _mm256_i32gather_epi32(base,
                               _mm256_sub_epi32(end, _mm256_set1_epi32(4)), 1),
        24);
    if (trim) {
        const __mmask8 led =
            _mm256_cmpeq_epi32_mask(_mm256_and_si256(first, byte), blank);
        e.from = _mm256_mask_add_epi32(e.from, led, e.from, one);
        first = _mm256_mask_srli_epi32(first, led, first, 8);
    }
    first = _mm256_and_si256(first, byte);
    e.size = _mm256_sub_epi32(end, e.from);
    e.bad = _mm256_cmpgt_epu32_mask(e.size, _mm256_set1_epi32(most));
    if (trim)
        e.bad |=
            _mm256_cmple_epu32_mask(_mm256_min_epu32(first, e.last), blank);
    // An empty field is always a missing value.
    const __m256i sizes = _mm256_set1_epi32((int32_t)j->missing_sizes);
    uint32_t token =
        _mm256_test_epi32_mask(_mm256_srlv_epi32(sizes, e.size), one);
    e.missing = token & _mm256_testn_epi32_mask(e.size, e.size);
    for (token &= ~e.missing; token != 0; token &= token - 1) {
        const int k = __builtin_ctz(token);
        uint32_t firsts[EIGHT], size[EIGHT];
        _mm256_storeu_si256((void *)firsts, first);
        _mm256_storeu_si256((void *)size, e.size);
        const uint8_t tells = j->first[firsts[k]];
        if (tells == HKI_CSV_ALONE && size[k] == 1)
            e.missing |= 1U << k;
        else if (tells != HKI_CSV_PLAIN)
            e.bad |= 1U << k;
    }
    return e;
}

INLINE int64_t eight_strings(const hki_csv_job *j, const hki_csv_target *t,
                             const column_text *c, int64_t i, int64_t row,
                             bool trim) {
    const eight_texts e = find_texts(j, c, i, trim, HKI_STRING_NEAR);
    const int64_t most =
        rows_before(e.bad | (t->has_missing ? 0 : e.missing), 1);
    hki_string *const cells = t->cells + row;
    uint32_t from[EIGHT], size[EIGHT];
    _mm256_storeu_si256((void *)from, e.from);
    _mm256_storeu_si256((void *)size, e.size);
    int64_t good = 0;
    for (; good < most && cells[good].size <= HKI_STRING_NEAR; good++)
        fill_cell(&cells[good], j->base + from[good], size[good]);
    for (uint32_t left = e.missing & ((1U << good) - 1); left != 0;
         left &= left - 1)
        cells[__builtin_ctz(left)] = t->missing;
    return good;
}

INLINE int64_t eight_words(const hki_csv_job *j, const hki_csv_target *t,
                           const column_text *c, int64_t i, int64_t row,
                           bool trim) {
    const eight_texts e = find_texts(j, c, i, trim, 7);
    const __m512i size = _mm512_cvtepu32_epi64(e.size);
    const __m512i ones = _mm512_set1_epi64(-1);
    const __m512i field =
        _mm512_andnot_si512(_mm512_sllv_epi64(ones, _mm512_slli_epi64(size, 3)),
                            _mm512_i32gather_epi64(e.from, j->base, 1));
    const __m512i key = _mm512_or_si512(field, _mm512_slli_epi64(size, 56));
    __m512i at = _mm512_setzero_si512();
    uint32_t found = 0;
    for (int64_t w = 0; w < t->n_words; w++) {
        const __mmask8 same = _mm512_cmpeq_epi64_mask(
            key, _mm512_set1_epi64((int64_t)t->words[w]));
        at = _mm512_mask_mov_epi64(at, same, _mm512_set1_epi64(w));
        found |= same;
    }
    const uint32_t strip =
        _mm256_cmpeq_epi32_mask(e.last, _mm256_set1_epi32(t->strip));
    if (t->wide)
        _mm512_storeu_si512((int64_t *)t->data + row, at);
    else
        _mm256_storeu_si256((void *)((int32_t *)t->data + row),
                            _mm512_cvtepi64_epi32(at));
    return rows_before((e.bad | e.missing | strip | ~found) & 255, 1);
}

INLINE int64_t store_eight(const hki_csv_job *j, const hki_csv_target *t,
                           const column_text *c, int64_t i, int64_t row,
                           hki_csv_route route, bool trim) {
    if (route == HKI_CSV_STRING)
        return eight_strings(j, t, c, i, row, trim);
    if (route == HKI_CSV_WORD)
        return eight_words(j, t, c, i, row, trim);
    return eight_digits(j, t, c, i, row, route, trim);
}

#endif // HKI_DATA_CSV_EIGHT_H
