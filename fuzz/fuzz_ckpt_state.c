// fuzz_ckpt_state.c - the state file and the journal of a model_dir from
// arbitrary bytes. A state that is read, written and read again is the same.
#include "ckpt/model_dir/folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const hki_state *s) {
    hki_buf first = {0}, second = {0};
    hki_state again = {0};
    if (hki_state_format(s, &first) != HK_OK ||
        hki_state_parse(first.data, first.size, "again", &again) != HK_OK ||
        hki_state_format(&again, &second) != HK_OK ||
        strcmp(first.data, second.data) != 0)
        __builtin_trap();
    hki_state_deinit(&again);
    hki_buf_deinit(&first);
    hki_buf_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hki_state s = {0};
    hki_journal j = {0};
    if (hki_state_parse((const char *)data, size, "fuzz", &s) == HK_OK)
        check_again(&s);
    hki_state_deinit(&s);
    if (hki_journal_parse((const char *)data, size, "fuzz", &j) == HK_OK)
        for (size_t i = 0; i < j.deleting.count; i++)
            if (strchr(j.deleting.items[i], '/') != NULL)
                __builtin_trap();
    hki_journal_deinit(&j);
    return 0;
}
