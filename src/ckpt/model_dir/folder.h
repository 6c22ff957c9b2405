// folder.h - a model_dir: its state file, its journal, its newest checkpoint.
#ifndef HKI_CKPT_FOLDER_H
#define HKI_CKPT_FOLDER_H
#include "base/io.h"
#include "ckpt/core/formats.h"
#include "ckpt/model_dir/state_file.h"

// "<folder>/<name>", or name itself when it is absolute; in fresh memory.
hk_status hki_folder_join(const char *folder, const char *name, char **out);
// When the checkpoint (or file) was written, seconds since 1970; 0: unknown.
double hki_folder_time(const char *folder, const char *name);

// ---- state -----------------------------------------------------------------

// Fills an empty state. No file: it stays empty; an unreadable one is reported
// through the log and taken as absent. Times that it does not know are those
// of the files.
hk_status hki_folder_load(const char *folder, hk_context *log, hki_state *out);
hk_status hki_folder_store(const char *folder, const hki_state *s,
                           bool durable);

// ---- journal ---------------------------------------------------------------
//
// Written before a save or a deletion and removed after it, so that what a
// crash left is known by name. Lines: "writing <name>", "deleting <name>".

typedef struct hki_journal {
    char *writing; // NULL: none
    hki_paths deleting;
} hki_journal;

hk_status hki_journal_parse(const char *text, size_t size, const char *what,
                            hki_journal *out); // out: empty before
void hki_journal_deinit(hki_journal *j);
hk_status hki_journal_store(const char *folder, const char *writing,
                            const hki_paths *deleting, bool durable);
void hki_journal_remove(const char *folder);
// Finishes what the journal tells: a checkpoint that was written completely
// becomes the newest of *s, other remains are removed. *changed: s was.
hk_status hki_journal_recover(const char *folder, hk_context *log, hki_state *s,
                              bool *changed);

// ---- the newest checkpoint -------------------------------------------------

// Takes over an open checkpoint, also when it fails. HK_E_DATA and HK_E_IO
// mean that it is damaged.
typedef hk_status (*hki_visit_fn)(void *user, hk_ckpt *c, int64_t step);

// Opens the folder's checkpoints, newest first, until one opens and visit
// succeeds with it. Damaged and missing ones are reported through the log and
// passed over. basename: of checkpoints that s does not list; NULL: any.
// HK_E_NOT_FOUND when there is none, HK_E_DATA when all are damaged.
hk_status hki_folder_visit(const char *folder, const hki_state *s,
                           const char *basename, hk_context *log,
                           hki_visit_fn visit, void *user);
// The first that opens. step: NULL allowed.
hk_status hki_folder_open_newest(const char *folder, const hki_state *s,
                                 const char *basename, hk_context *log,
                                 hk_ckpt **out, int64_t *step);

#endif // HKI_CKPT_FOLDER_H
