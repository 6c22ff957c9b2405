// cluster/center/board.h - named notes that a center server keeps for its
// cluster.
#ifndef HKI_BOARD_H
#define HKI_BOARD_H
#include "cluster/cluster.h"

#define HKI_BOARD_OWN 4 // notes of the run itself

typedef struct hki_note {
    char key[HKI_BOARD_KEY + 1];
    unsigned owners; // who may change it (hki_party)
    uint8_t *value;
    size_t size;
} hki_note;

typedef struct hki_board {
    hki_mutex lock; // guards the notes
    hki_note note[HKI_BOARD_NOTES + HKI_BOARD_OWN];
    size_t count, count_own; // all; of the run itself
} hki_board;

void hki_board_init(hki_board *b);
void hki_board_deinit(hki_board *b);
// by: the peer's kind (hki_party); 0: this center, which may write anything.
hk_status hki_board_post(hki_board *b, unsigned by, const char *key,
                         const void *value, size_t size, bool if_absent);
hk_status hki_board_read(hki_board *b, const char *key, void *value,
                         size_t capacity, size_t *size);
bool hki_board_name(hki_board *b, size_t i, char name[HKI_BOARD_KEY + 1]);

#endif // HKI_BOARD_H
