// cluster/center/board.h - named notes that a center server keeps for its
// cluster.
#ifndef HKI_BOARD_H
#define HKI_BOARD_H
#include <pthread.h>
#include "cluster/cluster.h"

typedef struct hki_note {
    char key[HKI_BOARD_KEY + 1];
    uint8_t *value;
    size_t size;
} hki_note;

typedef struct hki_board {
    pthread_mutex_t lock;   // guards the notes
    pthread_rwlock_t calls; // guards the answerer; held while it answers
    bool has_lock, has_calls;
    hki_answer_fn answer; // of reads that begin with prefix; NULL: none
    void *answer_user;
    char prefix[16];
    hki_note note[HKI_BOARD_NOTES];
    size_t count;
} hki_board;

hk_status hki_board_init(hki_board *b, const char *what);
void hki_board_deinit(hki_board *b);
hk_status hki_board_post(hki_board *b, const char *key, const void *value,
                         size_t size, bool if_absent);
hk_status hki_board_read(hki_board *b, const char *key, void *value,
                         size_t capacity, size_t *size);
// As hki_server_answer.
void hki_board_answer(hki_board *b, const char *prefix, hki_answer_fn fn,
                      void *user);
bool hki_board_name(hki_board *b, size_t i, char name[HKI_BOARD_KEY + 1]);

#endif // HKI_BOARD_H
