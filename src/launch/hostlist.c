// hostlist.c - lists of hosts as launchers write them: Slurm's compressed
// form, its tasks per node, MPI hostfiles.
//
//     list  := item {"," item}
//     item  := {text | "[" range {"," range} "]"}     every combination
//     range := number ["-" number]      leading zeros set the width
#include "launch/launch.h"

#define MAX_GROUPS 8 // bracket groups of one item
#define MAX_HOST 256 // bytes of a name, the closing NUL included
#define MAX_SLOTS 1000000

typedef struct range {
    uint32_t low, high, width;
} range;

// A name pattern: text, then the numbers of a group, then text...
typedef struct item {
    const char *text[MAX_GROUPS + 1];
    size_t length[MAX_GROUPS + 1];
    const char *group[MAX_GROUPS], *group_end[MAX_GROUPS];
    size_t groups;
} item;

typedef struct hosts {
    hki_arena *arena;
    const char **name;
    uint32_t count, capacity;
} hosts;

// ---- numbers ---------------------------------------------------------------

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

// Reads digits at *p; false when there are none or too many.
static bool number(const char **p, const char *end, uint32_t *value,
                   uint32_t *digits) {
    const char *const begin = *p;
    uint64_t v;
    const bool good =
        hki_scan_u64(p, end, &v) && v <= UINT32_MAX && *p - begin <= 10;
    *digits = (uint32_t)(*p - begin);
    *value = good ? (uint32_t)v : 0;
    return good;
}

// ---- Slurm's list ----------------------------------------------------------

static hk_status bad_list(const char *text, const char *at, const char *why) {
    return hki_fail(HK_E_INVALID_ARG, "host list \"%.200s\", character %zu: %s",
                    text, (size_t)(at - text) + 1, why);
}

// Reads the range at *p and moves behind it and its comma.
static hk_status next_range(const char *list, const char **p, const char *end,
                            range *r) {
    const char *const begin = *p;
    uint32_t digits;
    if (!number(p, end, &r->low, &digits))
        return bad_list(list, *p, "a number is expected");
    // Slurm pads to the width of the first number when that has a zero.
    r->width = *begin == '0' ? digits : 1;
    r->high = r->low;
    if (*p < end && **p == '-') {
        (*p)++;
        if (!number(p, end, &r->high, &digits))
            return bad_list(list, *p, "a number is expected after '-'");
        if (r->high < r->low)
            return bad_list(list, begin, "the range runs backwards");
    }
    if (*p == end)
        return HK_OK;
    if (**p != ',' || *p + 1 == end)
        return bad_list(list, *p, "a comma and a number are expected");
    (*p)++;
    return HK_OK;
}

static hk_status add_host(hosts *h, const char *list, const char *name) {
    if (h->count == HKI_MAX_TASKS)
        return hki_fail(HK_E_INVALID_ARG,
                        "host list \"%.200s\" has more than %d hosts", list,
                        HKI_MAX_TASKS);
    if (h->count == h->capacity) {
        const uint32_t capacity = h->capacity == 0 ? 16 : h->capacity * 2;
        const char **grown;
        HKI_TRY(hki_arena_alloc(h->arena, capacity, sizeof *grown, &grown));
        if (h->count > 0)
            memcpy(grown, h->name, h->count * sizeof *grown);
        h->name = grown;
        h->capacity = capacity;
    }
    HKI_TRY(hki_arena_strdup(h->arena, name, &h->name[h->count]));
    h->count++;
    return HK_OK;
}

// Writes the item's names from group g on; the first `used` bytes of name are
// there.
static hk_status expand_from(hosts *h, const char *list, const item *it,
                             size_t g, char name[MAX_HOST], size_t used) {
    if (used + it->length[g] >= MAX_HOST)
        return bad_list(list, it->text[g], "the name is too long");
    memcpy(name + used, it->text[g], it->length[g]);
    used += it->length[g];
    name[used] = '\0';
    if (g == it->groups)
        return add_host(h, list, name);
    const char *p = it->group[g];
    while (p < it->group_end[g]) {
        range r;
        HKI_TRY(next_range(list, &p, it->group_end[g], &r));
        for (uint64_t v = r.low; v <= r.high; v++) {
            const int n = snprintf(name + used, MAX_HOST - used, "%0*llu",
                                   (int)r.width, (unsigned long long)v);
            if (n < 0 || (size_t)n >= MAX_HOST - used)
                return bad_list(list, it->group[g], "the name is too long");
            HKI_TRY(expand_from(h, list, it, g + 1, name, used + (size_t)n));
        }
    }
    return HK_OK;
}

static bool name_char(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '-' || c == '_' || c == '.';
}

// Cuts the item at *p into text and groups and moves behind it.
static hk_status parse_item(const char *list, const char **p, item *it) {
    *it = (item){.text[0] = *p};
    const char *const begin = *p;
    while (**p != '\0' && **p != ',') {
        if (name_char(**p)) {
            it->length[it->groups]++;
            (*p)++;
            continue;
        }
        if (**p != '[')
            return bad_list(list, *p,
                            "this character cannot be in a host name");
        if (it->groups == MAX_GROUPS)
            return bad_list(list, *p, "too many bracket groups");
        const char *const close = strchr(*p, ']');
        if (close == NULL)
            return bad_list(list, *p, "']' is missing");
        if (close == *p + 1)
            return bad_list(list, *p, "the brackets are empty");
        it->group[it->groups] = *p + 1;
        it->group_end[it->groups] = close;
        it->groups++;
        *p = close + 1;
        it->text[it->groups] = *p;
    }
    return *p == begin ? bad_list(list, *p, "a host name is expected") : HK_OK;
}

hk_status hki_hostlist_expand(hki_arena *a, const char *text,
                              const char ***names, uint32_t *count) {
    hosts h = {.arena = a};
    const char *p = text;
    for (;;) {
        item it;
        char name[MAX_HOST];
        HKI_TRY(parse_item(text, &p, &it));
        HKI_TRY(expand_from(&h, text, &it, 0, name, 0));
        if (*p == '\0')
            break;
        p++;
    }
    *names = h.name;
    *count = h.count;
    return HK_OK;
}

// ---- tasks per node --------------------------------------------------------

hk_status hki_tasks_per_node(const char *text, uint32_t n_nodes,
                             uint32_t *tasks) {
    const char *p = text, *const end = text + strlen(text);
    uint32_t filled = 0;
    for (;;) {
        uint32_t n, digits, repeat = 1;
        if (!number(&p, end, &n, &digits) || n == 0 || n > HKI_MAX_TASKS)
            return bad_list(text, p, "a number of tasks is expected");
        if (*p == '(') {
            p++;
            if (*p++ != 'x' || !number(&p, end, &repeat, &digits) ||
                *p++ != ')' || repeat == 0)
                return bad_list(text, p - 1, "\"(xN)\" is expected");
        }
        if (repeat > n_nodes - filled)
            return hki_fail(HK_E_INVALID_ARG,
                            "tasks per node \"%.200s\" describe more than the "
                            "%u nodes of the host list",
                            text, n_nodes);
        for (uint32_t i = 0; i < repeat; i++)
            tasks[filled++] = n;
        if (*p == '\0')
            break;
        if (*p++ != ',')
            return bad_list(text, p - 1, "a comma is expected");
    }
    if (filled != n_nodes)
        return hki_fail(HK_E_INVALID_ARG,
                        "tasks per node \"%.200s\" describe %u nodes, but the "
                        "host list has %u",
                        text, filled, n_nodes);
    return HK_OK;
}

// ---- hostfiles -------------------------------------------------------------

typedef struct hostfile {
    hosts h;
    uint32_t *slots;
    uint32_t slots_capacity;
} hostfile;

static hk_status add_slots(hostfile *f, const char *what, const char *name,
                           uint32_t slots) {
    HKI_TRY(add_host(&f->h, what, name));
    if (f->slots_capacity < f->h.capacity) {
        uint32_t *grown;
        HKI_TRY(
            hki_arena_alloc(f->h.arena, f->h.capacity, sizeof *grown, &grown));
        if (f->h.count > 1)
            memcpy(grown, f->slots, (f->h.count - 1) * sizeof *grown);
        f->slots = grown;
        f->slots_capacity = f->h.capacity;
    }
    f->slots[f->h.count - 1] = slots;
    return HK_OK;
}

// One line without its comment, e.g. "n1 slots=4 max_slots=8" or "n1:4".
static hk_status hostfile_line(hostfile *f, const char *what, uint32_t line_no,
                               const char *p, const char *end) {
    char name[MAX_HOST], word[64];
    uint32_t slots = 1;
    while (p < end && is_blank(*p))
        p++;
    if (p == end)
        return HK_OK;
    size_t n = 0;
    while (p < end && name_char(*p) && n + 1 < sizeof name)
        name[n++] = *p++;
    name[n] = '\0';
    const bool colon = p < end && *p == ':';
    if (n == 0 || (p < end && !colon && !is_blank(*p)))
        return hki_fail(HK_E_INVALID_ARG, "%s, line %u: not a host name", what,
                        line_no);
    p += colon;
    for (bool first = colon; first || p < end; first = false) {
        n = 0;
        while (p < end && !is_blank(*p) && n + 1 < sizeof word)
            word[n++] = *p++;
        word[n] = '\0';
        const char *value = NULL;
        if (first)
            value = word;
        else if (strncmp(word, "slots=", 6) == 0)
            value = word + 6;
        if (value != NULL && !hki_parse_u32(value, 1, MAX_SLOTS, &slots))
            return hki_fail(HK_E_INVALID_ARG,
                            "%s, line %u: \"%s\" is not a number of slots",
                            what, line_no, value);
        while (p < end && is_blank(*p))
            p++;
    }
    return add_slots(f, what, name, slots);
}

hk_status hki_hostfile_parse(hki_arena *a, const char *text, size_t size,
                             const char *what, const char ***names,
                             uint32_t **slots, uint32_t *count) {
    hostfile f = {.h = {.arena = a}};
    const char *p = text, *const end = text + size;
    for (uint32_t line = 1; p < end; line++) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (stop == NULL)
            stop = end;
        const char *comment = memchr(p, '#', (size_t)(stop - p));
        HKI_TRY(
            hostfile_line(&f, what, line, p, comment == NULL ? stop : comment));
        p = stop == end ? end : stop + 1;
    }
    if (f.h.count == 0)
        return hki_fail(HK_E_INVALID_ARG, "%s names no host", what);
    *names = f.h.name;
    *slots = f.slots;
    *count = f.h.count;
    return HK_OK;
}
