// csv_table.h - rows with named columns: CSV and TFRecord files, the words of
// their labels, and the feature columns of canned models.
#ifndef CLI_TABLE_H
#define CLI_TABLE_H
#include "experiment/experiment.h"

// A key of a data set, taken over from train where that is the rule.
const tree *data_get(const data_user *u, const char *key);
// The examples of a set, one at a time, before features and batches.
hk_dataset *data_examples(const data_user *u);

// What has to be known beside the weights: columns and their types, the words
// of the label, fitted feature columns. Learnt from the training data once
// and kept in model_dir/table.json and features.json.
typedef struct table {
    char **names; // columns in the order of the file
    hk_dtype *types;
    int64_t *longest; // list of each column while learning; 0: no list
    size_t n;
    char *label;  // name of the label's column; NULL: none
    char **words; // of a label in text; their place is the class
    size_t n_words;
    int64_t classes;          // of a label in numbers; 0: it is to be measured
    hk_feature_set *features; // of a canned model; NULL: none
} table;

// Reads it from model_dir, or learns it when `learn` (training). 0 or an exit
// code after a message. Nothing to do for pictures.
int table_open(experiment *x, const settings *s, bool learn);
// Keeps it in another folder, too. 0 or an exit code after a message.
int table_keep(const char *folder);
const table *table_of(const experiment *x); // NULL: none

hk_dataset *table_csv(const data_user *u, const char *const *files, size_t n);
hk_dataset *table_tfrecord(const data_user *u, hk_dataset *records);
// Feature columns on batches; d as it is for other models.
hk_dataset *table_features(const data_user *u, hk_dataset *d);

// model.columns (or every column) as a feature set fitted to the data.
int columns_learn(table *t, const data_user *u);

#endif // CLI_TABLE_H
