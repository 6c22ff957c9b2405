// experiment.c - finding, reading and checking an experiment.
#include "experiment/experiment.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/file_kind.h"
#include "experiment/schema.h"

extern char **environ;

// What `hooke train` does without a file; experiments/digits.yaml says the
// same with comments.
static const char built_in[] =
    "name: digits\n"
    "model:\n"
    "  layers:\n"
    "    - flatten\n"
    "    - dense: {units: 256, activation: relu}\n"
    "    - dense: {units: 128, activation: relu}\n"
    "    - dense: 10\n"
    "optimizer: {type: momentum, learning_rate: 0.05, momentum: 0.9}\n"
    "elastic: {rates: auto}\n"
    "ema: {decay: 0.99}\n"
    "data:\n"
    "  train: {source: digits, count: 20000, batch: 64}\n"
    "  eval: {count: 5000}\n"
    "run: {steps: 1500, eval_steps: 200}\n";

// ---- where it is ------------------------------------------------------------

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// Folders of the experiments that ship with Hooke, seen from the program:
// installed, and in the source tree.
static const char *const shelves[] = {"../share/hooke/experiments",
                                      "../../experiments", "../experiments"};

static char *on_a_shelf(const char *name) {
    char self[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0 || strchr(name, '/'))
        return NULL;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof shelves / sizeof shelves[0]; i++) {
        char *path = cli_printf("%s/%s/%s.yaml", self, shelves[i], name);
        if (is_file(path))
            return path;
        free(path);
    }
    return NULL;
}

static const char *file_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static char *base_name(const char *path) {
    char *name = cli_strdup(file_of(path));
    char *dot = strrchr(name, '.');
    if (dot && dot != name)
        *dot = '\0';
    return name;
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return cli_strdup(".");
    char *dir = cli_strdup(path);
    dir[slash == path ? 1 : slash - path] = '\0';
    return dir;
}

char *experiment_path(const experiment *x, const char *path) {
    const char *dir = tree_text(tree_path(x->root, "data.dir"), x->dir);
    return path[0] == '/' || cli_is_url(path) || strcmp(dir, ".") == 0
               ? cli_strdup(path)
               : cli_printf("%s/%s", dir, path);
}

// ---- a model of the user's own ---------------------------------------------

// Headers that belong to this program: installed beside it, or of the source
// tree. NULL: the compiler's own search has to do.
static char *header_folder(void) {
    static const char *const places[] = {"../include", "../../include"};
    char self[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return NULL;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < 2; i++) {
        char *header = cli_printf("%s/%s/hooke/hooke.h", self, places[i]);
        const bool there = is_file(header);
        free(header);
        if (there)
            return cli_printf("-I%s/%s", self, places[i]);
    }
    return NULL;
}

// Runs the compiler; its messages go to stderr. $CC may hold options, too.
static bool run_compiler(const char *source, const char *so) {
    char *include = header_folder();
    char *words[] = {(char[]){"sh"},
                     (char[]){"-c"},
                     (char[]){"exec ${CC:-cc} \"$@\" >&2"},
                     (char[]){"sh"},
                     (char[]){"-std=gnu11"},
                     (char[]){"-O2"},
                     (char[]){"-Wall"},
                     (char[]){"-fPIC"},
                     (char[]){"-shared"},
                     (char[]){"-o"},
                     cli_strdup(so),
                     (char[]){"-x"},
                     (char[]){"c"},
                     cli_strdup(source),
                     include,
                     NULL};
    pid_t pid;
    int status = -1;
    const int failed = posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ);
    if (failed)
        cli_fail("sh: %s", strerror(failed));
    else
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
    free(include);
    return status == 0;
}

// The library's symbols come from this program, so only headers are needed.
static char *compile(const char *source) {
    const char *tmp = getenv("TMPDIR");
    char *so = cli_printf("%s/hooke-model-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    const int fd = mkstemp(so);
    if (fd < 0) {
        cli_fail("%s: %s", so, strerror(errno));
        free(so);
        return NULL;
    }
    close(fd);
    if (run_compiler(source, so))
        return so;
    cli_fail("%s: cannot be compiled; the compiler's messages are above",
             source);
    unlink(so);
    free(so);
    return NULL;
}

static int load_library(experiment *x, const char *path) {
    char *so = cli_ends(path, ".c") ? NULL : cli_strdup(path);
    const bool compiled = !so;
    if (!is_file(path))
        return cli_fail("%s: no such file", path);
    if (compiled && !(so = compile(path)))
        return CLI_FAILED;
    char *real = strchr(so, '/') ? cli_strdup(so) : cli_printf("./%s", so);
    x->library = dlopen(real, RTLD_NOW | RTLD_LOCAL);
    const char *error = x->library ? NULL : dlerror();
    if (error)
        cli_fail("%s: %s", path, error);
    if (compiled)
        unlink(so);
    free(real);
    free(so);
    if (!x->library)
        return CLI_FAILED;
    void *symbol = dlsym(x->library, "model_fn");
    if (!symbol)
        return cli_fail("%s: does not define the function hk_status "
                        "model_fn(hk_graph *g, hk_mode mode, hk_spec *m)",
                        path);
    memcpy(&x->model_fn, &symbol, sizeof symbol);
    return 0;
}

// ---- reading ---------------------------------------------------------------

static struct { char *key, *value; } imposed[4];

void experiment_impose(const char *key, const char *value) {
    size_t i = 0;
    while (i < 3 && imposed[i].key && strcmp(imposed[i].key, key) != 0)
        i++;
    free(imposed[i].key);
    free(imposed[i].value);
    imposed[i].key = cli_strdup(key);
    imposed[i].value = cli_strdup(value);
}

static int apply_sets(const cli_args *a, tree *root) {
    for (size_t i = 0; i < cli_count(a, "set"); i++) {
        const char *pair = cli_value(a, "set", i), *eq = strchr(pair, '=');
        if (!eq || eq == pair)
            return cli_usage_error(cli_command_of(a),
                                   "--set needs KEY=VALUE, not '%s'", pair);
        char *path = cli_strdup(pair);
        path[eq - pair] = '\0';
        const bool good = tree_set(root, path, eq + 1, "--set");
        free(path);
        if (!good)
            return CLI_USAGE;
    }
    for (size_t i = 0; i < 4 && imposed[i].key; i++)
        if (!tree_set(root, imposed[i].key, imposed[i].value, "--folds"))
            return CLI_USAGE;
    const char *label = cli_string(a, "label", NULL);
    const char *source = tree_text(tree_path(root, "data.train.source"), "");
    if (label && strcmp(source, "csv") != 0 && strcmp(source, "tfrecord") != 0)
        return cli_usage_error(
            cli_command_of(a),
            "--label is only for tables: data.train.source csv or tfrecord");
    if (label && !tree_set_text(root, "data.train.label", label))
        return CLI_USAGE;
    const char *dir = cli_string(a, "data-dir", NULL);
    if (dir && !tree_set_text(root, "data.dir", dir))
        return CLI_USAGE;
    return 0;
}

// What a run left of its experiment; NULL: it is no run's folder.
static char *kept_file(experiment *x, const char *folder) {
    char *path = cli_printf("%s/experiment.json", folder);
    if (!is_file(path)) {
        free(path);
        return NULL;
    }
    x->run_dir = cli_strdup(folder);
    for (size_t n = strlen(x->run_dir); n > 1 && x->run_dir[n - 1] == '/'; n--)
        x->run_dir[n - 1] = '\0';
    return path;
}

// Fails for a folder that is not a model_dir of the program. Python jobs leave
// such folders, with a center file or a checkpoint.
static void refuse_folder(const char *folder) {
    CLI_FREED char *center = cli_printf("%s/center.bin", folder);
    CLI_FREED char *latest = cli_printf("%s/checkpoint", folder);
    const char *const values = is_file(center)   ? center
                               : is_file(latest) ? folder
                                                 : NULL;
    if (!values)
        cli_fail("%s: is a folder without experiment.json; name an experiment "
                 "file or the folder of a run",
                 folder);
    else
        cli_fail("%s: is the folder of a run without experiment.json, such as "
                 "a Python job's; read its values with hooke.load in Python, "
                 "'hooke inspect %s' or 'hooke convert %s model.safetensors'",
                 folder, values, values);
}

// The file that an operand names; NULL after a message.
static char *find_file(experiment *x, const char *operand) {
    struct stat st;
    const bool there = stat(operand, &st) == 0;
    char *kept = there && S_ISDIR(st.st_mode) ? kept_file(x, operand) : NULL;
    if (kept)
        return kept;
    if (there && !S_ISDIR(st.st_mode)) {
        x->dir = folder_of(operand);
        return cli_strdup(operand);
    }
    char *shelf = on_a_shelf(operand);
    if (shelf) { // data lies where the user is, not where Hooke is installed
        x->dir = cli_strdup(".");
        x->shipped = true;
        return shelf;
    }
    if (cli_is_url(operand) ||
        (!there && is_table_name(operand) && is_pattern(operand))) {
        x->dir = cli_strdup(".");
        return cli_strdup(operand);
    }
    if (there)
        refuse_folder(operand);
    else if (strchr(operand, '/') || strchr(operand, '.'))
        cli_fail("%s: %s", operand, strerror(errno));
    else
        cli_fail("%s: no such file, and Hooke has no built-in experiment of "
                 "this name",
                 operand);
    return NULL;
}

static int read_built_in(experiment *x) {
    free(x->dir);
    x->dir = cli_strdup(".");
    x->root = tree_parse(built_in, sizeof built_in - 1, "built in");
    return x->root ? 0 : CLI_FAILED;
}

// A C file or shared object takes the place of an experiment: the built-in
// one with another model.
static int read_model(experiment *x) {
    CLI_TRY(read_built_in(x));
    tree *model = tree_get(x->root, "model");
    tree_free(model->child);
    model->child = NULL;
    char *name = base_name(x->path);
    const bool good = tree_set_text(x->root, "model.library", x->path) &&
                      tree_set_text(x->root, "name", name);
    free(name);
    return good ? 0 : CLI_FAILED;
}

// The program alone, without its files, still has its first experiment.
static bool is_built_in(const char *operand) {
    if (!operand)
        return true;
    CLI_FREED char *shelf = on_a_shelf(operand);
    return !shelf && strcmp(operand, "digits") == 0 &&
           access(operand, F_OK) != 0;
}

// Relative paths start where they did in training, as long as that is there.
static void find_data(experiment *x) {
    const char *dir = tree_text(tree_path(x->root, "run.dir"), ".");
    x->dir = cli_strdup(access(dir, F_OK) == 0 ? dir : ".");
}

// So does a table, of which a column is learned. Several files of one table
// have a pattern.
static int read_table(const cli_args *a, experiment *x) {
    static const char text[] = "model: {canned: dnn}\n"
                               "data: {train: {source: csv}}\n";
    if (!cli_has(a, "label"))
        return cli_fail("%s: is a table; which column should the model "
                        "predict? Name it with --label NAME ('hooke init %s "
                        "--label NAME' writes an experiment to edit)",
                        x->path, x->path);
    x->root = tree_parse(text, sizeof text - 1, x->path);
    return x->root && tree_set_text(x->root, "data.train.files",
                                    strcmp(x->dir, ".") == 0 ? x->path
                                                             : file_of(x->path))
               ? 0
               : CLI_FAILED;
}

static int read_tree(const cli_args *a, experiment *x, const char *operand) {
    if (is_built_in(operand)) {
        x->path = cli_strdup("built in");
        return read_built_in(x);
    }
    x->path = find_file(x, operand);
    if (!x->path)
        return CLI_FAILED;
    if (cli_ends(x->path, ".c") || cli_ends(x->path, ".so"))
        return read_model(x);
    const char *kind = x->run_dir ? NULL : file_kind(x->path);
    if (kind)
        return cli_fail(
            "%s: is %s, not an experiment; save a table as CSV, or name the "
            "file in an experiment (hooke help experiment)",
            x->path, kind);
    if (is_table_name(x->path))
        return read_table(a, x);
    if (cli_is_url(x->path))
        return cli_fail("%s: experiments are read from local files only, and "
                        "the address of a table has to end in .csv or .tsv",
                        x->path);
    x->root = tree_read(x->path);
    if (x->root && x->run_dir)
        find_data(x);
    return x->root ? 0 : CLI_FAILED;
}

// Keys that the other kind of model would not hear.
static int check_kind(const experiment *x) {
    static const char *const canned[] = {
        "model.hidden",           "model.dropout",     "model.target",
        "model.linear_optimizer", "model.linear_rate", "model.columns",
        "model.class_weights",    "data.train.weight"};
    static const char *const own[] = {"model.l2", "model.loss", "model.metrics",
                                      "model.input"};
    const bool is_canned = tree_path(x->root, "model.canned") != NULL;
    const char *const *list = is_canned ? own : canned;
    const size_t n = is_canned ? sizeof own / sizeof own[0]
                               : sizeof canned / sizeof canned[0];
    for (size_t i = 0; i < n; i++) {
        const tree *t = tree_path(x->root, list[i]);
        if (t)
            return cli_fail(
                "%s%s has no effect on this model; it is only for %s",
                tree_where(t), list[i],
                is_canned ? "models with layers"
                          : "canned models (canned: dnn)");
    }
    return 0;
}

static int check_model(experiment *x) {
    const tree *model = tree_get(x->root, "model");
    const tree *library = tree_get(model, "library");
    const int ways = (library != NULL) + (tree_get(model, "layers") != NULL) +
                     (tree_get(model, "canned") != NULL);
    if (ways != 1)
        return cli_fail("%s: a model needs one of layers, canned or library",
                        x->path);
    if (check_kind(x))
        return CLI_FAILED;
    if (!library)
        return 0;
    char *path = experiment_path(x, tree_text(library, ""));
    if (x->run_dir) { // a run keeps a copy
        char *kept = cli_printf("%s/%s", x->run_dir, file_of(path));
        free(path);
        path = kept;
    }
    const int failed = load_library(x, path);
    free(path);
    return failed;
}

// The same file has the same name wherever the folder of the project is.
static char *file_name(const experiment *x) {
    if (strcmp(x->path, "built in") == 0)
        return cli_strdup("digits");
    if (x->shipped)
        return base_name(x->path);
    char *real = realpath(x->path, NULL), *here = realpath(".", NULL);
    const size_t n = here ? strlen(here) : 0;
    const bool below =
        real && n && strncmp(real, here, n) == 0 && (real[n] == '/' || n == 1);
    char *name = cli_strdup(!real   ? x->path
                            : below ? real + n + (n > 1)
                                    : real);
    free(real);
    free(here);
    return name;
}

int experiment_open(const cli_args *a, const char *operand, experiment **out) {
    experiment *x = cli_alloc(sizeof *x);
    int failed = read_tree(a, x, operand);
    // Short forms become long ones first, so that --set can reach into them.
    if (!failed && !schema_check(x->root))
        failed = CLI_FAILED;
    if (!failed)
        failed = apply_sets(a, x->root);
    if (!failed && !schema_check(x->root))
        failed = CLI_USAGE;
    if (!failed)
        failed = data_check(x);
    if (!failed)
        failed = check_model(x);
    if (failed)
        return failed;
    const char *name = tree_text(tree_get(x->root, "name"), NULL);
    const char *file = tree_text(tree_path(x->root, "run.file"), NULL);
    x->name = name                     ? cli_strdup(name)
              : x->run_dir             ? base_name(x->run_dir)
              : is_table_name(x->path) ? table_base_name(x->path)
                                       : base_name(x->path);
    x->file = x->run_dir && file ? cli_strdup(file) : file_name(x);
    x->label_name = cli_strdup("label");
    const tree *model = tree_get(x->root, "model");
    x->tag = model ? tree_json(model) : cli_strdup("");
    *out = x;
    return 0;
}
