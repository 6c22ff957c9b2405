// words.h - distinct texts in the order they came, each with its count.
#ifndef CLI_WORDS_H
#define CLI_WORDS_H
#include <stddef.h>
#include <stdint.h>

typedef struct word_list {
    char **text;
    int64_t *count;
    size_t n, capacity;
    uint32_t *slot; // index + 1 by hash, open addressing; 0: free
    size_t n_slots; // a power of two, or 0
} word_list;

// The index of a text, added if it is not there; its count grows by one.
size_t words_add(word_list *w, const void *bytes, size_t size);
void words_free(word_list *w);

#endif // CLI_WORDS_H
