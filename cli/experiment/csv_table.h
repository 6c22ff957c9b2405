// csv_table.h - rows with named columns: CSV and TFRecord files, the words of
// their labels, and the feature columns of canned models.
#ifndef CLI_TABLE_H
#define CLI_TABLE_H
#include "experiment/csv_dialect.h"
#include "experiment/experiment.h"
#include "experiment/split.h"

// A key of a data set, taken over from train where that is the rule.
const tree *data_get(const data_user *u, const char *key);
// The examples of a set, one at a time, before features and batches.
hk_dataset *data_examples(const data_user *u);
// Paths of a key, seen from the experiment's folder, with their number.
char **data_paths(const data_user *u, const char *key, size_t *n);
void data_free_paths(char **list, size_t n);
// A number or a list of them, as many as *n says; freed.
float *data_floats(const tree *t, size_t *n);
// The rows of a set's files, before any of them is left out.
hk_dataset *data_source_rows(const data_user *u);
// Are its values of 0 to 255, by its source?
bool data_has_pixels(const data_user *u);
// How the files of a set are read.
hk_file_options data_file_options(const data_user *u);
// Where indexes go that cannot be kept beside their files.
void data_index_folder(const char *folder);
// Are rows without a label left out?
bool data_drops_unlabelled(const data_user *u);
// Are only some of the files' rows of this set, as of a holdout?
bool data_picks(const data_user *u);
// The examples that `skip` and `count` leave; d is taken.
hk_dataset *data_cut(const data_user *u, hk_dataset *d);
// The part of a process among several; d is taken.
hk_dataset *data_take_part(const data_user *u, hk_dataset *d);
// How the rows of one set of files are shared out.
split_plan data_split_plan(const experiment *x);

typedef struct table_column {
    char *name;
    hk_dtype type;
    int date;        // hk_date_order + 1; 0: none
    int32_t place;   // field in the training file
    int64_t longest; // list while learning; 0: no list
    // By the training file; 0 where nobody looked.
    int64_t missing, distinct;
} table_column;

// What has to be known beside the weights: columns and their types, the words
// of the label, fitted feature columns. Learnt from the training data once
// and kept in model_dir/table.json and features.json.
typedef struct table {
    table_column *column; // that are used, in the order of the file
    size_t n;
    size_t n_fields; // of the training file; 0: not known
    char decimal;    // of the training file's numbers; 0: a point
    char *label;     // name of the label's column; NULL: none
    char *weight;    // of the weights' column; NULL: none
    char **words;    // of a label in text; their place is the class
    size_t n_words;
    int64_t classes;          // of a label in numbers; 0: it is to be measured
    hk_feature_set *features; // of a canned model; NULL: none
    split rows_of;            // the sets, of a CSV file; n 0: by blocks
    int64_t rows;             // trained on; 0: not known
    // A measured label is learnt as (label - mean) / scale, or its logarithm.
    hk_target target;
    double target_mean, target_scale;
    double *class_weight; // of each class; NULL: all are alike
    size_t n_class_weights;
    char *summary; // what a run begins with; NULL: nothing
} table;

// Reads it from model_dir, or learns it when `learn` (training). 0 or an exit
// code after a message. Nothing to do for pictures.
int table_open(experiment *x, const settings *s, bool learn);
// Keeps it in another folder, too. 0 or an exit code after a message.
int table_keep(const char *folder);
const table *table_of(const experiment *x); // NULL: none
void table_tell(const settings *s); // the summary, at the start of a run

hk_dataset *table_csv(const data_user *u, const char *const *files, size_t n);
// The same with columns of one's own, in the fields of `select`.
hk_dataset *table_read_csv(const data_user *u, const char *const *files,
                           size_t n, const dialect *d,
                           const hk_csv_column *columns, const int32_t *select,
                           size_t n_columns);
hk_dataset *table_tfrecord(const data_user *u, hk_dataset *records);
// Feature columns on batches; d as it is for other models.
hk_dataset *table_features(const data_user *u, hk_dataset *d);

// model.columns (or every column) as a feature set fitted to the data.
int columns_learn(table *t, const data_user *u);
// What it does with a column that model.columns does not name; free it.
char *columns_treatment(const experiment *x, const table_column *c);
// Do the columns enter layers side by side?
bool experiment_mixes(const experiment *x, const table *t);
const table_column *table_find(const table *t, const char *name);
// Its columns of dates, with their number; free it.
size_t table_dates(const table *t, hk_date_column **out);

// ---- parts of it -------------------------------------------------------------

struct table_facts;
// Words or classes, or a number to be measured, by all labels; the note says
// which, for people (free it). 0 or an exit code after a message.
int label_decide(table *t, const data_user *u, const char *file,
                 const struct table_facts *f, char **note);
// The class of each row; as many as there are rows.
uint32_t *label_classes(const table *t, const struct table_facts *f);
// Scaling of a measured label and weights of classes, by the training rows.
int label_fit(table *t, const data_user *u, const char *file,
              const struct table_facts *f, const uint32_t *classes);

// From training data to all but the feature columns. 0 or an exit code after a
// message.
int table_learn_csv(table *t, const data_user *u, const char *const *files,
                    size_t n);
int table_learn_tfrecord(table *t, const data_user *u);
const char *table_label_name(const data_user *u);
int table_check_types(const data_user *u); // of 'columns'

int table_save(const table *t, const char *folder);
// blocks: where no sets were kept.
int table_load(table *t, const char *folder, const split_plan *blocks);

typedef struct column_type {
    hk_dtype dtype;
    bool raw;      // one bytes value that holds the elements
    bool list;     // any number of values
    int date;      // hk_date_order + 1
    int64_t width; // 0: a scalar or a list
} column_type;
// int, float, text, date, with [n] for arrays and [] for lists of any length;
// bytes[n]: n raw bytes.
bool column_type_parse(const char *text, column_type *out);

#endif // CLI_TABLE_H
