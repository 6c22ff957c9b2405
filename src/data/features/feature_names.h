// data/features/feature_names.h - the words of a saved set; private to the
// module.
#ifndef HKI_FEATURE_NAMES_H
#define HKI_FEATURE_NAMES_H

#define HKI_FEATURES_FORMAT "hooke.features"
#define HKI_FEATURES_VERSION 1

typedef struct hki_name {
    const char *name;
    int value;
} hki_name;

// Entry i has the value i; columns: i + 1.
extern const hki_name hki_missing_names[7], hki_normalizer_names[4],
    hki_transform_names[2], hki_combiner_names[3], hki_column_names[9];

#endif // HKI_FEATURE_NAMES_H
