// bundle_write.c - writes tensor bundles.
//
// Every file is complete under a temporary name before the first gets its
// own; an older index of the same prefix goes before its data files do, and
// the new one comes last. So an index that is there names whole data files.
#include "ckpt/tf/bundle.h"
#include "ckpt/tf/sorted_table.h"

// Summed and written piece by piece while it is in the cache.
#define PIECE ((size_t)1 << 20)

// What is stored in one run of bytes: a tensor, or some of its rows.
typedef struct part {
    const hki_ckpt_item *item;
    const uint8_t *data;
    size_t size;
    hki_slice slice; // when the item has several parts
    uint32_t shard;
    uint32_t crc; // masked
    uint64_t offset;
} part;

typedef struct bundle_writer {
    const hki_ckpt_plan *plan;
    const char *prefix;
    part *parts; // in the order of the items
    size_t n_parts;
    uint32_t n_shards;
    hki_file **data; // per shard; NULL once committed
    hki_file *index;
    hki_table_writer table;
    hki_slice *slices; // of the item at hand
} bundle_writer;

// ---- who goes where --------------------------------------------------------

static size_t parts_of(const hki_ckpt_plan *plan, const hki_ckpt_item *item) {
    if (plan->tf_partitions < 2 || item->shape.rank == 0 || item->bytes == 0)
        return 1;
    return (size_t)HKI_MIN(item->shape.dim[0], (int64_t)plan->tf_partitions);
}

// The k-th of n parts: the first rows % n of them have one row more.
static part cut(const hki_ckpt_item *item, size_t k, size_t n) {
    part p = {.item = item, .data = item->data, .size = item->bytes};
    if (n == 1)
        return p;
    const size_t rows = (size_t)item->shape.dim[0];
    const size_t row_bytes = item->bytes / rows;
    const size_t start = k * (rows / n) + HKI_MIN(k, rows % n);
    const size_t count = rows / n + (k < rows % n ? 1 : 0);
    p.data += start * row_bytes;
    p.size = count * row_bytes;
    p.slice.rank = item->shape.rank;
    for (int32_t i = 0; i < item->shape.rank; i++)
        p.slice.extent[i] = (hki_extent){0, item->shape.dim[i]};
    p.slice.extent[0] = (hki_extent){(int64_t)start, (int64_t)count};
    return p;
}

static hk_status make_parts(bundle_writer *w) {
    const hki_ckpt_plan *const plan = w->plan;
    size_t most = 1;
    for (size_t i = 0; i < plan->count; i++) {
        const size_t n = parts_of(plan, &plan->items[i]);
        w->n_parts += n;
        most = HKI_MAX(most, n);
    }
    HKI_TRY(hki_alloc_array(w->n_parts, sizeof *w->parts, &w->parts));
    HKI_TRY(hki_alloc_array(most, sizeof *w->slices, &w->slices));
    part *p = w->parts;
    for (size_t i = 0; i < plan->count; i++) {
        const size_t n = parts_of(plan, &plan->items[i]);
        for (size_t k = 0; k < n; k++)
            *p++ = cut(&plan->items[i], k, n);
    }
    return HK_OK;
}

// Each part goes to the data file that is smallest so far.
static hk_status choose_shards(bundle_writer *w) {
    uint64_t *sizes;
    HKI_TRY(hki_zalloc_array(w->n_shards, sizeof *sizes, &sizes));
    for (size_t i = 0; i < w->n_parts; i++) {
        uint32_t best = 0;
        for (uint32_t s = 1; s < w->n_shards; s++)
            if (sizes[s] < sizes[best])
                best = s;
        w->parts[i].shard = best;
        w->parts[i].offset = sizes[best];
        sizes[best] += w->parts[i].size;
    }
    hki_free(sizes);
    return HK_OK;
}

// ---- data files ------------------------------------------------------------

static hk_status write_part(hki_file *f, part *p) {
    uint32_t crc = 0;
    for (size_t done = 0; done < p->size;) {
        const size_t n = HKI_MIN(PIECE, p->size - done);
        crc = hki_crc32c(crc, p->data + done, n);
        HKI_TRY(hki_file_write(f, p->data + done, n));
        done += n;
    }
    p->crc = hki_crc32c_mask(crc);
    return HK_OK;
}

static hk_status write_data(bundle_writer *w) {
    HKI_SCOPED(hki_buf_deinit) hki_buf path = {0};
    for (uint32_t k = 0; k < w->n_shards; k++) {
        HKI_TRY(hki_bundle_data_path(w->prefix, k, w->n_shards, &path));
        HKI_TRY(hki_file_create(path.data, &w->data[k]));
        for (size_t i = 0; i < w->n_parts; i++)
            if (w->parts[i].shard == k)
                HKI_TRY(write_part(w->data[k], &w->parts[i]));
    }
    return HK_OK;
}

// ---- the index -------------------------------------------------------------

static hki_bundle_entry entry_of(const part *p) {
    const hki_ckpt_item *const item = p->item;
    hki_bundle_entry e = {.dtype = hki_bundle_type_of(item->elem)->number,
                          .rank = item->shape.rank,
                          .shard = p->shard,
                          .offset = p->offset,
                          .size = p->size,
                          .crc = p->crc};
    for (int32_t i = 0; i < e.rank; i++)
        e.dim[i] = item->shape.dim[i];
    return e;
}

static hk_status add_entry(bundle_writer *w, const char *key, size_t key_size,
                           const hki_bundle_entry *e, const hki_slice *slices) {
    HKI_SCOPED(hki_buf_deinit) hki_buf value = {0};
    HKI_TRY(hki_bundle_write_entry(e, slices, &value));
    return hki_table_add(&w->table, key, key_size, value.data, value.size);
}

// Keys of slices come first: they begin with a zero byte.
static hk_status add_slices(bundle_writer *w) {
    HKI_SCOPED(hki_buf_deinit) hki_buf key = {0};
    for (size_t i = 0; i < w->n_parts; i++) {
        const part *const p = &w->parts[i];
        if (p->slice.rank == 0)
            continue;
        hki_bundle_entry e = entry_of(p);
        e.dim[0] = p->slice.extent[0].length;
        HKI_TRY(hki_slice_key(p->item->name, &p->slice, &key));
        HKI_TRY(add_entry(w, key.data, key.size, &e, NULL));
    }
    return HK_OK;
}

static hk_status add_names(bundle_writer *w) {
    for (size_t i = 0; i < w->n_parts;) {
        const part *const p = &w->parts[i];
        const char *const name = p->item->name;
        hki_bundle_entry e = entry_of(p);
        size_t n = 1;
        while (i + n < w->n_parts && w->parts[i + n].item == p->item)
            n++;
        for (size_t k = 0; k < n; k++)
            w->slices[k] = w->parts[i + k].slice;
        e.n_slices = n;
        HKI_TRY(add_entry(w, name, strlen(name), &e, n > 1 ? w->slices : NULL));
        i += n;
    }
    return HK_OK;
}

static hk_status add_header(bundle_writer *w) {
    HKI_SCOPED(hki_buf_deinit) hki_buf header = {0};
    HKI_TRY(hki_bundle_write_header(w->n_shards, &header));
    return hki_table_add(&w->table, "", 0, header.data, header.size);
}

static hk_status write_index(bundle_writer *w, const char *path) {
    HKI_TRY(add_header(w));
    HKI_TRY(add_slices(w));
    HKI_TRY(add_names(w));
    HKI_TRY(hki_table_finish(&w->table));
    HKI_TRY(hki_file_create(path, &w->index));
    return hki_file_write(w->index, w->table.file.data, w->table.file.size);
}

// ---- names -----------------------------------------------------------------

static hk_status sync_folder(const bundle_writer *w) {
    return w->plan->durable ? hki_sync_folder(w->prefix) : HK_OK;
}

static hk_status commit(bundle_writer *w) {
    const bool durable = w->plan->durable;
    for (uint32_t k = 0; k < w->n_shards; k++) {
        hki_file *const f = w->data[k];
        w->data[k] = NULL; // commit frees it in any case
        HKI_TRY(hki_file_commit(f, durable));
    }
    HKI_TRY(sync_folder(w));
    hki_file *const f = w->index;
    w->index = NULL;
    HKI_TRY(hki_file_commit(f, durable));
    return sync_folder(w);
}

static hk_status replace(bundle_writer *w, const char *index) {
    hk_status s = HK_OK;
    if (hki_path_exists(index)) {
        HKI_TRY(hki_file_remove(index)); // until here all is as it was
        s = sync_folder(w);
    }
    if (s == HK_OK)
        s = commit(w);
    if (s != HK_OK) {
        // Data without an index serve nobody. The message stays.
        const hki_fault fault = hki_fault_of(s);
        hki_file_remove(index);
        hki_bundle_remove_data(w->prefix, 0);
        return hki_fault_raise(&fault);
    }
    // Data files of an older checkpoint in another number of shards; where
    // this fails, the next writing or removing does it.
    hki_bundle_remove_data(w->prefix, w->n_shards);
    return HK_OK;
}

static hk_status write_bundle(bundle_writer *w) {
    HKI_SCOPED(hki_buf_deinit) hki_buf index = {0};
    HKI_TRY(make_parts(w));
    HKI_TRY(choose_shards(w));
    HKI_TRY(hki_zalloc_array(w->n_shards, sizeof(hki_file *), &w->data));
    HKI_TRY(write_data(w));
    HKI_TRY(hki_buf_printf(&index, "%s" HKI_BUNDLE_INDEX, w->prefix));
    HKI_TRY(write_index(w, index.data));
    return replace(w, index.data);
}

hk_status hki_bundle_write(const char *path, const hki_ckpt_plan *plan) {
    if (plan->tf_shards > HKI_BUNDLE_MAX_SHARDS)
        return hki_fail(HK_E_INVALID_ARG,
                        "%s: %u data files are too many; the limit is %d", path,
                        plan->tf_shards, HKI_BUNDLE_MAX_SHARDS);
    HKI_FREED char *prefix = NULL;
    HKI_TRY(hki_bundle_prefix(path, &prefix));
    bundle_writer w = {.plan = plan,
                       .prefix = prefix,
                       .n_shards = HKI_MAX(plan->tf_shards, 1)};
    const hk_status s = write_bundle(&w);
    for (uint32_t k = 0; w.data != NULL && k < w.n_shards; k++)
        hki_file_discard(w.data[k]);
    hki_file_discard(w.index);
    hki_table_writer_deinit(&w.table);
    hki_free(w.data);
    hki_free(w.parts);
    hki_free(w.slices);
    return s;
}
