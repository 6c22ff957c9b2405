// cli.h - what the files of the hooke program share: the table of commands,
// parsed arguments, messages, small tools. Public headers of Hooke only.
#ifndef CLI_H
#define CLI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "hooke/hooke.h"

// ---- exit codes -------------------------------------------------------------

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_BUS_ERROR = 135,   // a mapped file's disk is full: worth a retry
    CLI_LOST = 137,        // a peer was lost for good: worth a retry
    CLI_INTERRUPTED = 130, // Ctrl-C, after a checkpoint
    CLI_UNREAD = 141,      // whoever read the output has left, as head does
    CLI_TERMINATED = 143   // SIGTERM, after a checkpoint
};

// ---- the table of commands -------------------------------------------------

typedef enum cli_kind {
    CLI_FLAG = 1, // present or not
    CLI_INT,      // 0 or more
    CLI_COUNT,    // 1 or more
    CLI_FLOAT,    // 0 or more
    CLI_STRING,
    CLI_FILE,  // a string that completes to a file
    CLI_DIR,   // a string that completes to a folder
    CLI_CHOICE // one of values
} cli_kind;

typedef struct cli_option {
    const char *name; // without the dashes; NULL ends a list
    char letter;      // short form; 0: none
    cli_kind kind;
    bool many;          // may be repeated
    const char *arg;    // what help calls the value
    const char *values; // CLI_CHOICE: "a|b|c"
    const char *help;   // one sentence without a full stop
} cli_option;

#define CLI_OPTION(name, letter, kind, arg, help)                              \
    { name, letter, kind, false, arg, NULL, help }
#define CLI_MANY(name, letter, arg, help)                                      \
    { name, letter, CLI_STRING, true, arg, NULL, help }
#define CLI_SWITCH(name, letter, help)                                         \
    { name, letter, CLI_FLAG, false, NULL, NULL, help }
#define CLI_CHOICES(name, letter, values, help)                                \
    { name, letter, CLI_CHOICE, false, NULL, values, help }

typedef struct cli_args cli_args;

// One entry per command; help, man pages and completions are made from it.
typedef struct cli_command {
    const char *name;
    const char *operands;           // "EXPERIMENT", "RUN..."; "" for none
    int min_operands, max_operands; // -1: any number
    const char *summary;            // one line without a full stop
    const char *about;              // paragraphs for help and man page
    const char *examples;           // lines of commands; "" for none
    const cli_option *options;      // NULL: only the common ones
    bool computes;                  // with all threads of the machine
    int (*run)(const cli_args *a);
} cli_command;

extern const cli_command *const cli_commands[]; // ends with NULL
extern const cli_option cli_common[];           // of every command
const cli_command *cli_find(const char *name);  // NULL: unknown
int cli_unknown_command(const char *name);      // says which is near; CLI_USAGE

// ---- arguments -------------------------------------------------------------

// 0, or the exit code after a message. *out: of the words in argv, which stay.
int cli_parse(const cli_command *c, int argc, char **argv, cli_args **out);
void cli_args_free(cli_args *a); // NULL is allowed
const cli_command *cli_command_of(const cli_args *a);
int cli_operands(const cli_args *a);
const char *cli_operand(const cli_args *a, int i); // NULL past the end
bool cli_has(const cli_args *a, const char *name);
// The last value given; dflt when the option is absent.
const char *cli_string(const cli_args *a, const char *name, const char *dflt);
int64_t cli_int(const cli_args *a, const char *name, int64_t dflt);
double cli_float(const cli_args *a, const char *name, double dflt);
// The same for options of the library: what does not fit becomes the largest
// number, which it refuses, or takes for very long.
uint32_t cli_u32(const cli_args *a, const char *name, uint32_t dflt);
int64_t cli_ms(const cli_args *a, const char *name, double dflt); // of seconds
// Every value of a repeated option, in order.
size_t cli_count(const cli_args *a, const char *name);
const char *cli_value(const cli_args *a, const char *name, size_t i);
// The i-th option given, in order, and its value (NULL for a flag); NULL past
// the end.
const cli_option *cli_given(const cli_args *a, size_t i, const char **value);
const cli_option *cli_find_option(const cli_command *c, const char *name);

// ---- help ------------------------------------------------------------------

void cli_usage(FILE *f, const cli_command *c); // one line
// Lines of at most 79 columns; the first has been indented.
void cli_wrap(FILE *f, const char *text, int indent);
void cli_help(FILE *f, const cli_command *c); // NULL: the program's
// Sources of man pages (scdoc), completions and the reference page.
void cli_man(FILE *f, const cli_command *c); // NULL: hooke(1)
void cli_complete_bash(FILE *f);
void cli_complete_zsh(FILE *f);
void cli_complete_fish(FILE *f);
void cli_commands_page(FILE *f); // docs/commands.md

// ---- messages --------------------------------------------------------------

// "hooke: ..." on stderr; returns CLI_FAILED or CLI_USAGE for `return`.
int cli_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int cli_usage_error(const cli_command *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
// Compilers and analyzers cannot see that neither returns 0.
static inline int cli_failed(int code) {
    if (code == 0)
        __builtin_unreachable();
    return code;
}
#define cli_fail(...) cli_failed((cli_fail)(__VA_ARGS__))
#define cli_usage_error(...) cli_failed((cli_usage_error)(__VA_ARGS__))
// A status of the library: its message, and the exit code that fits.
int cli_status(hk_status s);
// Goes on unless a code is one of a failure, which it returns.
#define CLI_TRY(expr)                                                          \
    do {                                                                       \
        const int cli_try_ = (expr);                                           \
        if (cli_try_)                                                          \
            return cli_try_;                                                   \
    } while (0)
void cli_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Colour and weight for stderr or stdout; "" when colours are off.
typedef enum cli_style {
    CLI_PLAIN,
    CLI_BOLD,
    CLI_DIM,
    CLI_RED,
    CLI_GREEN
} cli_style;
const char *cli_color(FILE *f, cli_style s);
void cli_set_color(const char *when); // auto, always, never
bool cli_quiet(void);
void cli_set_quiet(bool quiet);

// getenv for the library, which reads no environment by itself.
const char *cli_getenv(void *user, const char *name);

// The log callback of a context: plain lines, or JSON lines.
void cli_log(void *user, hk_log_level level, const char *text);
void cli_set_log(const char *format, const char *level);
hk_log_level cli_log_level(void);
// A file that gets every line as JSON, too. cli_close_log returns code, or
// CLI_FAILED after a message when lines were lost.
bool cli_open_log(const char *path); // false after a message
FILE *cli_log_file(void);            // NULL: none
int cli_close_log(int code);
// With JSON lines everything on stderr is one: this begins it, up to the
// fields. Role and index of a cluster's process are among them.
bool cli_json_log(void);
void cli_json_head(FILE *f, const char *level);
void cli_set_role(const char *role, int index);

// Ctrl-C and SIGTERM ask the context's loops to end; a second Ctrl-C ends
// the program at once. code: what to exit with after a stop, 0 when none.
void signals_watch(hk_context *ctx); // NULL: nobody any more
int signals_code(void);
const char *signals_name(void); // "SIGINT"...; NULL: none was received
// A center lives in this file: a full disk under it ends the process with a
// message. path: borrowed for good.
void signals_mapped(const char *path);
// Ends a live line, so that another line can be written.
void progress_interrupt(void);

// ---- small tools -----------------------------------------------------------

// The program ends with a message when memory does.
void *cli_alloc(size_t size); // zeroed
// A variable that ends with its scope, by whichever return that is left; it
// has a value from the start.
#define CLI_SCOPED(end) __attribute__((cleanup(end)))
#define CLI_SCOPED_HANDLE(type, end)                                           \
    static inline void end##_at(type **at) {                                   \
        if (*at)                                                               \
            end(*at);                                                          \
    }
void cli_free_at(void *at); // free of what stands there
#define CLI_FREED CLI_SCOPED(cli_free_at)
CLI_SCOPED_HANDLE(hk_ckpt, hk_ckpt_close)
CLI_SCOPED_HANDLE(hk_eval_result, hk_eval_result_destroy)
CLI_SCOPED_HANDLE(hk_dataset, hk_dataset_release)
CLI_SCOPED_HANDLE(hk_iter, hk_iter_destroy)
CLI_SCOPED_HANDLE(hk_cluster_config, hk_cluster_config_destroy)
char *cli_strdup(const char *s);
char *cli_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// The name nearest to s among n; NULL when nothing is near.
const char *cli_nearest(const char *s, const char *const *names, size_t n);
bool cli_begins(const char *s, const char *start);
bool cli_ends(const char *s, const char *end);
int cli_by_text(const void *a, const void *b);         // for qsort, of char *
bool cli_is_special(const char *path);                 // a device or a pipe
bool cli_is_url(const char *path);                     // "https://..."
bool cli_is_choice(const char *values, const char *v); // of "a|b|c"
// Part K of N, 1 <= K <= N, at the beginning of a text; gives what stands
// behind it, or NULL.
const char *cli_parse_part(const char *s, int64_t *k, int64_t *n);
bool cli_parse_int(const char *s, int64_t *out);
bool cli_parse_float(const char *s, double *out);
double cli_now(void);                              // monotonic seconds
double cli_element(const hk_tensor *t, int64_t i); // NaN: a text
// "3.2 MB", "1.5 k"; into one of a few static buffers.
const char *cli_bytes(double n);
const char *cli_number(double n);
const char *cli_duration(double seconds); // "1:02:03", "0:07"
// Reads a whole file; exit code 0 or a message. *data is NUL-terminated.
int cli_read_file(const char *path, char **data, size_t *size);
// A JSON string with its quotes; a JSON number, null when not finite.
void cli_json_string(FILE *f, const char *s);
void cli_json_number(FILE *f, double v);

#endif // CLI_H
