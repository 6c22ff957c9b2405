// saver.h - the parts of a saver.
#ifndef HKI_CKPT_SAVER_H
#define HKI_CKPT_SAVER_H
#include <pthread.h>
#include "ckpt/core/copy.h"
#include "ckpt/model_dir/retention.h"

// What is to be written. It owns its names, texts and, in the background, the
// values.
typedef struct hki_save_job {
    hki_arena arena;
    const char *name; // of the checkpoint in the folder
    hki_ckpt_plan plan;
    hki_copy copy; // its items are the plan's
    bool written;  // the checkpoint is there
} hki_save_job;

typedef enum hki_saver_phase {
    HKI_SAVER_IDLE = 0,
    HKI_SAVER_COPYING = 1, // the thread may help
    HKI_SAVER_WRITING = 2, // the thread has the job and the state
    HKI_SAVER_STOPPING = 3
} hki_saver_phase;

struct hk_saver {
    hk_saver_options opt; // its strings are in the arena
    hki_arena arena;
    const hki_ckpt_ops *ops;
    hki_lockfile *lock;
    hki_retention rules;
    hki_state state; // the thread's while it writes, else the caller's
    double (*clock)(void *user);
    void *clock_user;
    bool new_folder;     // no keep time was known when it was created
    hki_paths undeleted; // old checkpoints that could not be removed
    hk_saved *saved;     // what hk_saver_get_info gave out last
    hki_buf saved_paths; // its texts

    hki_save_job job;
    bool is_held;        // the job is copied, and nobody has asked for its file
    size_t buffer_bytes; // of job.copy.to, which one save leaves to the next

    hki_thread *thread; // NULL: saves are written by the caller
    hki_mutex mutex;    // guards the rest
    hki_cond wake;      // for the thread
    hki_cond done;      // for the caller
    hki_saver_phase phase;
    bool helping, helped; // the thread copies; it has had its turn
    hk_status failure;    // of a job in the background, until it is told
    char failure_text[1024];
};

// Writes s->job and brings state and folder up to date.
hk_status hki_saver_write(hk_saver *s);
// Puts the next state into effect: journal, act (NULL: nothing), state file,
// deletions. writing: the checkpoint that act writes, or NULL. next becomes
// the old state.
hk_status hki_saver_apply(hk_saver *s, const char *writing, hki_state *next,
                          hki_paths *doomed, hk_status (*act)(hk_saver *s));
// Replaces the clock (seconds since 1970), for tests; a folder without a keep
// time takes it from the new one.
void hki_saver_set_clock(hk_saver *s, double (*clock)(void *), void *user);

#endif // HKI_CKPT_SAVER_H
