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
    pthread_mutex_t lock; // guards the notes
    bool has_lock;
    hki_note note[HKI_BOARD_NOTES];
    size_t count;
} hki_board;

hk_status hki_board_init(hki_board *b, const char *what);
void hki_board_deinit(hki_board *b);
hk_status hki_board_post(hki_board *b, const char *key, const void *value,
                         size_t size, bool if_absent);
hk_status hki_board_read(hki_board *b, const char *key, void *value,
                         size_t capacity, size_t *size);
bool hki_board_name(hki_board *b, size_t i, char name[HKI_BOARD_KEY + 1]);

#endif // HKI_BOARD_H
