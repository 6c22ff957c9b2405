// snapshot_places.h - a name beside every place in memory that a training
// needs to go on. A save copies from the places, a restore reads into them, so
// that both know the same names.
#ifndef HKI_ESTIMATOR_SNAPSHOT_PLACES_H
#define HKI_ESTIMATOR_SNAPSHOT_PLACES_H
#include "estimator/estimator.h"

typedef struct hki_places {
    hk_name_map *map;
    hki_arena arena; // numbers and bytes that are made for the file
} hki_places;

hk_status hki_places_init(hki_places *p);
void hki_places_deinit(hki_places *p);

// All that a checkpoint holds.
hk_status hki_places_all(hki_places *p, hk_estimator *e);

// Its parts: the float entries of a vector; the average and the center; a
// worker's own values; its slots and counters, and those of its tie to a
// center.
hk_status hki_places_vector(hki_places *p, const char *prefix,
                            const hk_layout *l, float *x);
hk_status hki_places_state(hki_places *p, hki_crew *c);
hk_status hki_places_values(hki_places *p, hki_worker *w);
hk_status hki_places_worker(hki_places *p, hki_worker *w, bool tied);
// What stands before the names of worker id; lives as long as p.
hk_status hki_places_prefix(hki_places *p, uint32_t id, const char **out);

#endif // HKI_ESTIMATOR_SNAPSHOT_PLACES_H
