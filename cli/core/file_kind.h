// file_kind.h - what a file is, by its name and by its first bytes.
#ifndef CLI_FILE_KIND_H
#define CLI_FILE_KIND_H
#include <stdbool.h>

// A table as text: .csv, .tsv or .tab, also with .gz behind it.
bool is_table_name(const char *path);
// The table's name without folder, ending and the characters of a pattern.
char *table_base_name(const char *path);
// An experiment by its name: .yaml, .yml, or that of a run.
bool is_experiment_name(const char *path);
bool is_pattern(const char *path); // *, ? or [
// "a zip file", "an Excel workbook"...; NULL: nothing that is known here.
const char *file_kind(const char *path);

#endif // CLI_FILE_KIND_H
