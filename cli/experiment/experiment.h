// experiment.h - an experiment file, ready for the estimator.
#ifndef CLI_EXPERIMENT_H
#define CLI_EXPERIMENT_H
#include "core/cli.h"
#include "hooke/hooks.h"
#include "core/tree.h"

typedef struct experiment {
    tree *root; // checked
    char *path; // as found; "built in" for the default
    char *dir;  // where relative paths start
    char *name;
    char *file;    // path from the working folder, or name of a shipped one
    char *run_dir; // the folder of a run, which was named in place of a file
    bool shipped;  // with Hooke; its data is the user's
    hk_model_fn model_fn; // of model.library; NULL: layers or canned
    void *library;        // handle of dlopen
    char *tag;            // tells models apart in the plan cache
    char *label_name;     // of the label after reading; "label" mostly
    int64_t crew;         // workers that a table's usual batch is shared by
} experiment;

// Reads EXPERIMENT (a path, the folder of a run, or the name of one that ships
// with Hooke; NULL: digits), applies every --set of the arguments and checks
// all. 0 or an exit
// code after a message. The result lives until the program ends.
int experiment_open(const cli_args *a, const char *operand, experiment **out);
// A key that the program itself sets in every experiment that it opens from now
// on, over what --set says.
void experiment_impose(const char *key, const char *value);
// A path of the file, seen from the experiment's folder; free it.
char *experiment_path(const experiment *x, const char *path);

// What the sections say.
typedef struct settings {
    hk_run_config config;
    hk_elastic_options elastic;
    hk_center_options center;   // NULL in config unless has_center
    bool has_center;            // something is not its default
    hk_optimizer_options outer; // of the center
    uint32_t row_period;        // of the connection to a center elsewhere
    bool center_bf16;
    hk_ema_options ema;
    hk_optimizer_options optimizer;
    hk_gradproc_options gradproc;
    bool has_gradproc;
    hk_params *params; // of a library's model_fn
    char *model_dir;
    bool own_dir;  // it is runs/NAME: nobody said otherwise
    int64_t steps; // local; 0: no bound
    int64_t epochs;
    double seconds;
    int64_t eval_steps; // local; 0: only at the end
    double eval_seconds;
    hk_weights eval_weights; // during training
    // From run.stop_metric: "accuracy>0.98".
    char *stop_metric;
    double stop_value;
    bool stop_above;
    int64_t early_stop_steps;
    hk_warm_start warm_start; // checkpoint NULL: none
    char *period_note;        // NULL: the period is what was asked for
    char *workers_note;       // NULL: the workers are as many as asked for
    char *resume_note;        // NULL: nothing has changed since the last start
    bool in_cluster;          // this process has a place in one
} settings;

// The place in a cluster that settings_read puts into the run config.
void settings_cluster(const hk_cluster_config *config);
int settings_read(const experiment *x, const cli_args *a, settings *s);
// What a tree says about an optimizer, over what is there.
void settings_rule(const tree *t, hk_optimizer_options *o);
// optimizer.schedule, of the rate that the settings have; NULL: nothing. 0 or
// an exit code after a message.
int settings_schedule(const tree *t, settings *s);
// The keys of elastic that shape its method, which is set, with so many workers
// over all processes.
int settings_method(const tree *t, uint32_t workers, settings *s);
// A run that is shorter than ten periods gets shorter ones; the table is open.
// Told by one line of the chief's when the run begins.
void settings_fit_period(const experiment *x, const cli_args *a, settings *s);
void settings_tell(const settings *s);
// run.device, run.precision and --device.
int settings_device(const tree *run, const cli_args *a, hk_run_config *c);
// What computes, in words to be freed: "cuda:0 (NVIDIA H200, ...), products in
// tf32"; NULL: CPUs. And as a line of its own.
char *device_words(const hk_run_config *c);
// Of a run on CPUs: ", products in bf16"; "" where they are float32.
const char *device_cpu_precision(const hk_run_config *c);
// A note of what computes: of a card; of CPUs where `auto` came to them, and
// why.
void device_tell(const hk_run_config *c);
void device_tell_cpu(const hk_run_config *c);
// The plug-in for graphics cards and what it finds, or why none can be used:
// lines with a first column of so many characters, or JSON.
void device_print(int width);
void device_json(FILE *f);
// The index of a cluster's worker and the addresses of its centers, once the
// rates of the run are known; other processes stay as they are.
void settings_join(settings *s);

// model_fn of the layers; the estimator's user data is a model_user.
typedef struct model_user {
    const experiment *x;
    const settings *s;
} model_user;
hk_status model_fn(hk_graph *g, hk_mode mode, hk_spec *m);

// The data of "train", "eval", "test" or "predict". override: NULL, or the
// --data of the command line (a path or pattern instead of files).
typedef struct data_user {
    const experiment *x;
    const char *set;
    const char *override;
    bool repeat;   // training without a number of epochs: again and again
    bool whole;    // every row, whichever set it is in
    bool learning; // the rows are read to learn a table
    bool stranger; // a worker that does not know its number: an own order
    int64_t part;  // counted from 0
    int64_t parts; // that several processes evaluate or predict; 0: all of it
} data_user;
// What --part says, into u; 0, or after a message.
int data_part_given(const cli_args *a, data_user *u);
// What --data says; "-" is standard input. That and pipes of any name are
// copied to a file without one, so that they can be read again. NULL: nothing,
// or after a message (*failed).
const char *data_given(const cli_args *a, int *failed);
hk_status data_input(void *user, const hk_input_call *call, hk_dataset **out);
// The set for the estimator; u lives as long as the source.
hk_source data_source(data_user *u);
// What is done to the numbers of a picture: (x * scale - mean) / std. false:
// nothing. d: examples of the set.
typedef struct scaling {
    char *feature;
    double scale;
    float *mean, *std; // one a channel; NULL: none
    size_t channels;
} scaling;
bool data_scaling(const data_user *u, const hk_dataset *d, scaling *out);
void data_scaling_free(scaling *s);
// Training examples, at most `most`; and how many of them make a batch.
int64_t data_rows(const experiment *x, int64_t most);
int64_t data_batch(const experiment *x);
// Are there examples of "eval", of "test"?
bool data_has(const experiment *x, const char *set);
// What the schema cannot check; 0 or an exit code after a message.
int data_check(const experiment *x);

// An estimator of the experiment. Everything lives until the program ends.
typedef struct job {
    experiment *x;
    settings s;
    hk_context *ctx;
    hk_estimator *e;
    model_user model;
    hk_canned *canned; // of model.canned; NULL: none
} job;
// learn: a table's columns and words may be learnt from the data (training).
int job_open(const cli_args *a, const char *operand, bool learn, job **out);
void job_close(job *j);
CLI_SCOPED_HANDLE(job, job_close)
// The same with other values of the experiment (root, taken): settings and
// model are made anew, the table and the context are j's, and there is no
// estimator.
int job_variant(const cli_args *a, const job *j, tree *root, job **out);
// A context whose log is the program's.
hk_status job_context(const cli_args *a, hk_context **out);
// The job of a model to evaluate or predict with: there is a checkpoint, and
// --data makes sense.
int job_open_trained(const cli_args *a, job **out);
// The sets that --weights names; without it *out stays as it is.
hk_status chosen_weights(const cli_args *a, hk_weights *out);
void job_stop(job *j); // ends the estimator, before job_close
// The options its estimator was made with; they live as long as the job.
void job_estimator_options(job *j, hk_estimator_options *out);

// Options that several commands share.
#define EXPERIMENT_OPTIONS EXPERIMENT_OPTIONS_LABEL('l')
// label_letter: 0 where -l is another option.
#define EXPERIMENT_OPTIONS_LABEL(label_letter)                                 \
    CLI_OPTION("model-dir", 'd', CLI_DIR, "DIR",                               \
               "folder of checkpoints and event files; default: runs/NAME"),   \
        CLI_OPTION("data-dir", 0, CLI_DIR, "DIR",                              \
                   "base of relative paths of the data"),                      \
        CLI_MANY("set", 's', "KEY=VALUE",                                      \
                 "sets a key of the experiment; can be repeated"),             \
        CLI_OPTION("label", label_letter, CLI_STRING, "NAME",                  \
                   "the column of a table that the model predicts"),           \
        CLI_OPTION("threads", 0, CLI_COUNT, "N",                               \
                   "number of threads; default: the number of cores"),         \
        CLI_OPTION("device", 0, CLI_STRING, "NAME",                            \
                   "auto, cpu, cuda or cuda:N; default: as in the "            \
                   "experiment, or cpu")
#define JSON_OPTION                                                            \
    CLI_SWITCH("json", 0,                                                      \
               "the last line on stdout is one JSON object with the result")
#define WEIGHTS_OPTION                                                         \
    CLI_CHOICES("weights", 'w', "center|ema|local|all",                        \
                "weights to use; default: the center if there is one")
#define PART_OPTION                                                            \
    CLI_OPTION("part", 0, CLI_STRING, "K/N",                                   \
               "uses part K of N consecutive parts of the data, for several "  \
               "processes that share it")
#define CHECKPOINT_OPTION                                                      \
    CLI_OPTION("checkpoint", 0, CLI_FILE, "PATH",                              \
               "uses this checkpoint instead of the newest")

#endif // CLI_EXPERIMENT_H
