// terminal.c - messages, colours, the log, numbers for people and for JSON.
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include "core/cli.h"

// State of the process: how it speaks. Set once by main from the options.
static struct {
    int color; // -1 never, 0 auto, 1 always
    bool quiet, json_log;
    hk_log_level level;
    const char *role; // in a cluster; NULL: none
    int index;
    FILE *file; // of --log; NULL: none
    const char *path;
} voice = {.level = HK_LOG_WARNING};

// ---- memory ----------------------------------------------------------------

void *cli_alloc(size_t size) {
    void *p = calloc(1, size ? size : 1);
    if (!p) {
        fputs("hooke: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    return p;
}

void cli_free_at(void *at) {
    void *p;
    memcpy(&p, at, sizeof p);
    free(p);
}

char *cli_strdup(const char *s) {
    const size_t n = strlen(s) + 1;
    return memcpy(cli_alloc(n), s, n);
}

static char *format(const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *s = cli_alloc((size_t)(n < 0 ? 0 : n) + 1);
    if (n > 0)
        vsnprintf(s, (size_t)n + 1, fmt, ap);
    return s;
}

char *cli_printf(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *s = format(fmt, ap);
    va_end(ap);
    return s;
}

// ---- colours ---------------------------------------------------------------

void cli_set_color(const char *when) {
    voice.color = strcmp(when, "always") == 0  ? 1
                  : strcmp(when, "never") == 0 ? -1
                                               : 0;
}

static bool colored(FILE *f) {
    if (voice.color)
        return voice.color > 0;
    const char *no = getenv("NO_COLOR"), *force = getenv("CLICOLOR_FORCE");
    if (no && *no)
        return false;
    if (force && strcmp(force, "0") != 0 && *force)
        return true;
    const char *term = getenv("TERM");
    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

const char *cli_color(FILE *f, cli_style s) {
    static const char *const codes[] = {[CLI_PLAIN] = "\033[0m",
                                        [CLI_BOLD] = "\033[1m",
                                        [CLI_DIM] = "\033[2m",
                                        [CLI_RED] = "\033[31m",
                                        [CLI_GREEN] = "\033[32m"};
    return colored(f) ? codes[s] : "";
}

void cli_set_quiet(bool quiet) {
    voice.quiet = quiet;
}

bool cli_quiet(void) {
    return voice.quiet;
}

// ---- JSON lines -------------------------------------------------------------

bool cli_json_log(void) {
    return voice.json_log;
}

void cli_set_role(const char *role, int index) {
    voice.role = role;
    voice.index = index;
}

void cli_json_head(FILE *f, const char *level) {
    struct timespec t;
    struct tm utc;
    char stamp[32];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    fprintf(f, "{\"ts\":\"%s.%03ldZ\",\"level\":\"%s\"", stamp,
            t.tv_nsec / 1000000, level);
    if (voice.role)
        fprintf(f, ",\"role\":\"%s\",\"index\":%d", voice.role, voice.index);
}

static void json_line(FILE *f, const char *level, const char *text) {
    flockfile(f); // one line at a time, whoever else writes
    cli_json_head(f, level);
    fputs(",\"msg\":", f);
    cli_json_string(f, text);
    fputs("}\n", f);
    funlockfile(f);
}

bool cli_open_log(const char *path) {
    voice.file = fopen(path, "ae");
    voice.path = path;
    if (!voice.file)
        return cli_fail("%s: %s", path, strerror(errno)) == 0;
    setvbuf(voice.file, NULL, _IOLBF, BUFSIZ); // for tail -f, and after a crash
    return true;
}

FILE *cli_log_file(void) {
    return voice.file;
}

int cli_close_log(int code) {
    FILE *f = voice.file;
    if (!f)
        return code;
    voice.file = NULL;
    errno = 0;
    const bool lost = ferror(f) || fflush(f) != 0;
    const int why = errno;
    fclose(f);
    if (!lost || code)
        return code;
    return cli_fail("%s: %s", voice.path,
                    why ? strerror(why) : "the log could not be written");
}

// ---- messages ---------------------------------------------------------------

static void say(const char *fmt, va_list ap) {
    char *text = format(fmt, ap);
    if (voice.file)
        json_line(voice.file, "error", text);
    if (voice.json_log)
        json_line(stderr, "error", text);
    else
        fprintf(stderr, "%shooke:%s %s\n", cli_color(stderr, CLI_RED),
                cli_color(stderr, CLI_PLAIN), text);
    free(text);
}

int(cli_fail)(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

int(cli_usage_error)(const cli_command *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    if (!voice.json_log)
        fprintf(stderr, "try: hooke %s%s\n", c ? c->name : "help",
                c ? " --help" : "");
    return CLI_USAGE;
}

// What came through a pipe is a file without a name (data_given).
static void tell_fault(const char *text) {
    static const char nameless[] = "/proc/self/fd/";
    const char *at = strstr(text, nameless);
    if (!at) {
        cli_fail("%s", text);
        return;
    }
    const char *rest = at + strlen(nameless);
    rest += strspn(rest, "0123456789");
    cli_fail("%.*sthe input%s", (int)(at - text), text, rest);
}

int cli_status(hk_status s) {
    if (s == HK_OK)
        return CLI_DONE;
    if (s == HK_E_CANCELLED && signals_code()) // asked for, not a failure
        return signals_code();
    const char *text = hk_last_error();
    // The only input of this program needs no name.
    static const char *const prefixes[] = {"input_fn input: ", "input input: "};
    for (size_t i = 0; i < 2; i++)
        if (strncmp(text, prefixes[i], strlen(prefixes[i])) == 0)
            text += strlen(prefixes[i]);
    tell_fault(*text ? text : hk_status_string(s));
    // A peer that is away is worth a retry by whoever started us.
    return s == HK_E_UNAVAILABLE || s == HK_E_TIMEOUT ? CLI_LOST : CLI_FAILED;
}

void cli_note(const char *fmt, ...) {
    if (voice.quiet && !voice.file)
        return;
    va_list ap;
    va_start(ap, fmt);
    char *text = format(fmt, ap);
    va_end(ap);
    if (voice.file)
        json_line(voice.file, "info", text);
    if (!voice.quiet && voice.json_log)
        json_line(stderr, "info", text);
    else if (!voice.quiet)
        fprintf(stderr, "%s\n", text);
    free(text);
}

// ---- the log ----------------------------------------------------------------

static const struct {
    const char *name;
    hk_log_level level;
} levels[] = {{"debug", HK_LOG_DEBUG},
              {"info", HK_LOG_INFO},
              {"warning", HK_LOG_WARNING},
              {"error", HK_LOG_ERROR}};

void cli_set_log(const char *format_name, const char *level) {
    voice.json_log = format_name && strcmp(format_name, "json") == 0;
    for (size_t i = 0; level && i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(level, levels[i].name) == 0)
            voice.level = levels[i].level;
}

hk_log_level cli_log_level(void) {
    return voice.level;
}

void cli_log(void *user, hk_log_level level, const char *text) {
    (void)user;
    const char *name = "error";
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (levels[i].level == level)
            name = levels[i].name;
    if (voice.file)
        json_line(voice.file, name, text);
    if (voice.quiet) // what fails is told by whoever asked for it
        return;
    progress_interrupt(); // the live line makes room
    if (voice.json_log)
        json_line(stderr, name, text);
    else
        fprintf(stderr, "hooke: %s: %s\n", name, text);
}

// ---- numbers ---------------------------------------------------------------

bool cli_begins(const char *s, const char *start) {
    return strncmp(s, start, strlen(start)) == 0;
}

bool cli_ends(const char *s, const char *end) {
    const size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

int cli_by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool cli_is_special(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool cli_is_url(const char *path) {
    const size_t n = strspn(path, "abcdefghijklmnopqrstuvwxyz0123456789");
    return n > 0 && strncmp(path + n, "://", 3) == 0;
}

bool cli_is_choice(const char *values, const char *v) {
    const size_t size = strlen(v);
    for (const char *p = values; *p;) {
        const size_t n = strcspn(p, "|");
        if (n == size && memcmp(p, v, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

bool cli_parse_int(const char *s, int64_t *out) {
    char *end;
    errno = 0;
    const long long v = strtoll(s, &end, 10);
    if (errno || end == s || *end || s[strspn(s, "+-0123456789")])
        return false;
    *out = v;
    return true;
}

const char *cli_parse_part(const char *s, int64_t *k, int64_t *n) {
    char *slash, *end;
    errno = 0;
    if (!isdigit((unsigned char)s[0]))
        return NULL;
    *k = strtoll(s, &slash, 10);
    if (*slash != '/' || !isdigit((unsigned char)slash[1]))
        return NULL;
    *n = strtoll(slash + 1, &end, 10);
    return errno == 0 && *k >= 1 && *n >= *k ? end : NULL;
}

bool cli_parse_float(const char *s, double *out) {
    char *end;
    errno = 0;
    const double v = strtod(s, &end);
    if (end == s || *end || !isfinite(v) || s[strspn(s, "+-.0123456789eE")])
        return false;
    *out = v;
    return true;
}

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static char *next_buffer(void) {
    static _Thread_local char buffers[8][48];
    static _Thread_local unsigned turn;
    return buffers[turn++ % 8];
}

static const char *scaled(double n, const char *const *units, double step) {
    char *b = next_buffer();
    size_t u = 0;
    while (fabs(n) >= step && units[u + 1]) {
        n /= step;
        u++;
    }
    const int digits = u == 0 || fabs(n) >= 100 ? 0 : fabs(n) >= 10 ? 1 : 2;
    snprintf(b, 48, "%.*f%s%s", digits, n, units[u][0] ? " " : "", units[u]);
    return b;
}

const char *cli_bytes(double n) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", NULL};
    return scaled(n, units, 1000);
}

const char *cli_number(double n) {
    static const char *const units[] = {"", "k", "M", "G", NULL};
    return scaled(n, units, 1000);
}

const char *cli_duration(double seconds) {
    char *b = next_buffer();
    if (!(seconds >= 0 && seconds < 1e8)) {
        snprintf(b, 48, "-");
        return b;
    }
    const long s = (long)seconds;
    if (s >= 3600)
        snprintf(b, 48, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(b, 48, "%ld:%02ld", s / 60, s % 60);
    return b;
}

// ---- names -----------------------------------------------------------------

// Levenshtein distance, letters compared without case; long words are far.
static size_t distance(const char *a, const char *b) {
    size_t row[65];
    const size_t n = strlen(b);
    if (strlen(a) > 64 || n > 64)
        return 99;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const size_t above = row[j];
            const size_t same = strncasecmp(a + i - 1, b + j - 1, 1) != 0;
            size_t best = diagonal + same;
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *s, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t least = 2 + strlen(s) / 4;
    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(s, names[i]);
        // A name that begins with the word is meant more often than not.
        const size_t prefix =
            strlen(s) >= 2 && strncmp(s, names[i], strlen(s)) == 0;
        if ((prefix ? 1 : d) < least) {
            least = prefix ? 1 : d;
            best = names[i];
        }
    }
    return best;
}

// ---- files and JSON --------------------------------------------------------

int cli_read_file(const char *path, char **data, size_t *size) {
    FILE *f = fopen(path, "rb");
    if (!f)
        return cli_fail("%s: %s", path, strerror(errno));
    char *buf = NULL;
    size_t used = 0, room = 0;
    for (;;) {
        if (room - used < 4096) {
            room = room ? room * 2 : 16384;
            char *grown = realloc(buf, room + 1);
            if (!grown) {
                free(buf);
                fclose(f);
                return cli_fail("%s: out of memory", path);
            }
            buf = grown;
        }
        const size_t n = fread(buf + used, 1, room - used, f);
        used += n;
        if (n == 0)
            break;
    }
    if (ferror(f)) {
        const int failed = cli_fail("%s: %s", path, strerror(errno));
        fclose(f);
        free(buf);
        return failed;
    }
    fclose(f);
    buf[used] = '\0';
    *data = buf;
    *size = used;
    return 0;
}

void cli_json_string(FILE *f, const char *s) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)s; *p; p++)
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p == '\n')
            fputs("\\n", f);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(f, "\\u%04x", *p);
        else
            fputc(*p, f);
    fputc('"', f);
}

void cli_json_number(FILE *f, double v) {
    if (!isfinite(v))
        fputs("null", f);
    else if (v == floor(v) && fabs(v) < 1e15)
        fprintf(f, "%.0f", v);
    else
        fprintf(f, "%.9g", v);
}

double cli_element(const hk_tensor *t, int64_t i) {
    const void *p = hk_tensor_data(t);
    switch (hk_tensor_dtype(t)) {
    case HK_F32:
        return (double)((const float *)p)[i];
    case HK_F64:
        return ((const double *)p)[i];
    case HK_I32:
        return ((const int32_t *)p)[i];
    case HK_I64:
        return (double)((const int64_t *)p)[i];
    case HK_U8:
    case HK_BOOL:
        return ((const uint8_t *)p)[i];
    default:
        return (double)NAN;
    }
}
